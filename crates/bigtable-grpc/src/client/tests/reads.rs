//! Tests gathered reads of single rows: the requests that are sent, and each caller's answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bigtable::{Error, Family, Mutation, Page, PageLimit, Row, RowKey, RowMutation, RowRange};
use bigtable::{Selection, Store, Table, TableSchema, TimeRange, Timestamp};
use bigtable_fjall::{Durability, Options};
use bytes::Bytes;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::batches::requests;
use super::script::{DEADLINE, End, FAMILY, Script, open_with, rows, unavailable};
use crate::client::gather::{BEHIND_MAX, LATE_MAX};
use crate::client::{ClientOptions, GrpcStore};
use crate::proto::data::read_rows_response::CellChunk;
use crate::proto::extension::ReadEachResponse;
use crate::proto::extension::read_each_response::Part;
use crate::proto::rpc;
use crate::server::Server;

const DELAY: Duration = Duration::from_millis(50);

fn ts(number: u64) -> Timestamp {
    Timestamp::new(number).unwrap()
}

/// A selection up to a timestamp. Each transaction has its own.
fn up_to(number: u64) -> Selection {
    Selection::default().family(FAMILY, TimeRange::up_to(ts(number)), 1)
}

fn chunk(key: &Bytes) -> CellChunk {
    let like = rows(&["like"]).chunks.remove(0);
    CellChunk { row_key: key.clone(), ..like }
}

fn part(entry: u32, key: &Bytes) -> Part {
    Part { entry, chunks: vec![chunk(key)], ..Part::default() }
}

fn failing(entry: u32, code: Code) -> Part {
    let status = rpc::Status { code: code as i32, ..rpc::Status::default() };
    Part { entry, status: Some(status), ..Part::default() }
}

fn message(parts: Vec<Part>) -> ReadEachResponse {
    ReadEachResponse { parts }
}

/// An answer with one cell for each requested row.
pub(super) fn found(keys: &[Bytes]) -> ReadEachResponse {
    message((0..).zip(keys).map(|(entry, key)| part(entry, key)).collect())
}

async fn delayed(script: &Script, batch_delay: Duration) -> Arc<dyn Table> {
    let options = ClientOptions { batch_delay, deadline: DEADLINE, ..ClientOptions::default() };
    open_with(script, options).await.unwrap()
}

/// A scripted server that takes several reads in one request, and its table.
async fn taking(reads_max: u32) -> (Script, Arc<dyn Table>) {
    let script = Script::default();
    script.play(|play| play.reads_max = reads_max);
    let table = delayed(&script, DELAY).await;
    (script, table)
}

/// Reads rows at the same time, each at its own timestamp.
async fn read(table: &Arc<dyn Table>, keys: &[&str]) -> Vec<bigtable::Result<Row>> {
    let selects: Vec<_> = (1..).take(keys.len()).map(up_to).collect();
    let keys: Vec<_> = keys.iter().map(|key| RowKey::from(*key)).collect();
    join_all(keys.iter().zip(&selects).map(|(key, select)| table.read_row(key, select))).await
}

/// The number of rows in each request for several reads, and the number of requests for one.
fn asked(script: &Script) -> (Vec<usize>, usize) {
    script.play(|play| (play.each_asked.iter().map(Vec::len).collect(), play.asked.len()))
}

fn is_found(result: &bigtable::Result<Row>, key: &str) -> bool {
    matches!(result, Ok(row) if row.key == RowKey::from(key) && row.cells.len() == 1)
}

#[tokio::test]
async fn reads_at_different_timestamps_go_in_one_request() {
    let (script, table) = taking(4).await;
    let results = read(&table, &["a", "b", "a"]).await;
    let right = results.iter().zip(["a", "b", "a"]).all(|(result, key)| is_found(result, key));
    assert!(right, "{results:?}");
    assert_eq!(asked(&script), (vec![3], 0));
    // A full request does not wait.
    let patient = delayed(&script, Duration::from_secs(3600)).await;
    let results = timeout(Duration::from_secs(60), read(&patient, &["a", "b", "c", "d"])).await;
    let results = results.unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(asked(&script), (vec![3, 4], 0));
    // A single read goes as an ordinary request, after the same delay.
    script.play(|play| play.reads.push_back((vec![rows(&["e"])], End::Well)));
    let begun = tokio::time::Instant::now();
    assert!(is_found(&read(&table, &["e"]).await[0], "e"));
    assert!(begun.elapsed() >= DELAY, "{:?}", begun.elapsed());
    assert_eq!(asked(&script), (vec![3, 4], 1));
}

#[tokio::test]
async fn a_read_of_rows_that_names_one_row_goes_together_with_others() {
    let (script, table) = taking(4).await;
    let (a, b, select) = (RowKey::from("a"), [RowKey::from("b")], up_to(1));
    let (one, rows) = tokio::join!(table.read_row(&a, &select), table.read_rows(&b, &select));
    assert!(is_found(&one, "a"), "{one:?}");
    assert!(matches!(&rows, Ok(rows) if rows.len() == 1 && rows[0].key == b[0]), "{rows:?}");
    assert_eq!(asked(&script), (vec![2], 0));
}

/// The page of the range `a..c` that has at most so many rows.
async fn page(table: &Arc<dyn Table>, rows_max: usize) -> bigtable::Result<Page> {
    let range = RowRange::between("a", "c");
    table.scan(&range, &up_to(1), PageLimit { rows_max, ..PageLimit::default() }).await
}

#[tokio::test]
async fn a_short_scan_goes_together_with_reads() {
    // This server takes one read in each request.
    let script = Script::default();
    let table = delayed(&script, DELAY).await;
    let (d, select) = (RowKey::from("d"), up_to(2));
    let together = async |table: &Arc<dyn Table>, rows_max| {
        tokio::join!(table.read_row(&d, &select), page(table, rows_max))
    };
    script.play(|play| {
        // The scan does not wait.
        let answers = ["a", "d"].map(|key| (vec![rows(&[key])], End::Well));
        play.reads.extend(answers);
    });
    let (row, found) = together(&table, 2).await;
    assert!(is_found(&row, "d"), "{row:?}");
    assert!(matches!(&found, Ok(page) if page.rows[0].key == RowKey::from("a")), "{found:?}");
    assert_eq!(asked(&script), (vec![], 2));

    let (script, table) = taking(4).await;
    script.play(|play| {
        let [a, b] = ["a", "b"].map(Bytes::from);
        let page = Part { chunks: vec![chunk(&a), chunk(&b)], scanned: b, ..part(1, &a) };
        play.each.push_back(Ok((vec![message(vec![part(0, &Bytes::from("d")), page])], End::Well)));
    });
    let (row, found) = together(&table, 2).await;
    let found = found.unwrap();
    let keys: Vec<_> = found.rows.iter().map(|row| row.key.to_string()).collect();
    assert!(is_found(&row, "d") && keys == ["a", "b"], "{row:?} {keys:?}");
    let rest = RowRange::between("a", "c").after(RowKey::from("b"));
    assert_eq!(found.resume, Some(rest));
    assert_eq!(asked(&script), (vec![2], 0));
    // A page of many rows keeps no other read waiting.
    let (row, found) = together(&table, 65).await;
    assert!(row.is_ok() && found.is_ok(), "{row:?} {found:?}");
    assert_eq!(asked(&script), (vec![2], 2));
}

#[tokio::test]
async fn a_page_that_breaks_the_rules_is_not_believed() {
    let [a, b, d] = ["a", "b", "d"].map(Bytes::from);
    let of = |rows: &[&Bytes], scanned: &Bytes| {
        let chunks = rows.iter().map(|key| chunk(key)).collect();
        Part { entry: 0, chunks, scanned: scanned.clone(), ..Part::default() }
    };
    let none = Bytes::new();
    let (open, aa) = (Part { more: true, ..of(&[&a], &none) }, Bytes::from("aa"));
    for wrong in [
        of(&[&d], &none),
        of(&[&b, &a], &none),
        of(&[&a, &b], &a),
        of(&[&a], &d),
        of(&[&a, &aa, &b], &none),
        open,
    ] {
        let (script, table) = taking(10).await;
        let told = format!("{wrong:?}");
        // The read of the row is the first entry.
        let wrong = Part { entry: 1, ..wrong };
        script.play(|play| play.each.push_back(Ok((vec![message(vec![wrong])], End::Well))));
        let (found, _) = tokio::join!(page(&table, 2), read(&table, &["z"]));
        assert!(matches!(found, Err(Error::Unavailable { .. })), "{told}: {found:?}");
    }
}

#[tokio::test]
async fn without_a_delay_a_read_is_a_request_of_its_own() {
    let script = Script::default();
    script.play(|play| play.reads_max = 10);
    let table = open_with(&script, ClientOptions::default()).await.unwrap();
    let results = read(&table, &["a", "b", "c"]).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(asked(&script), (vec![], 3));
}

#[tokio::test]
async fn a_read_that_fails_fails_alone() {
    let (script, table) = taking(10).await;
    let keys = ["a", "b", "c", "d"].map(Bytes::from);
    let parts = vec![
        part(0, &keys[0]),
        failing(1, Code::InvalidArgument),
        failing(2, Code::Unavailable),
        Part { entry: 3, ..Part::default() },
    ];
    // The client repeats only the read that may succeed a moment later.
    script.play(|play| play.each.push_back(Ok((vec![message(parts)], End::Well))));
    let results = read(&table, &["a", "b", "c", "d"]).await;
    assert!(is_found(&results[0], "a") && is_found(&results[2], "c"), "{results:?}");
    assert!(matches!(results[1], Err(Error::InvalidRequest(_))), "{results:?}");
    assert!(matches!(&results[3], Ok(row) if row.cells.is_empty()), "{results:?}");
    assert_eq!(asked(&script), (vec![4, 1], 0));
    // The client gives up on a read that always fails, and its other callers do not wait for
    // that.
    script.play(|play| {
        let again = || Ok((vec![message(vec![failing(0, Code::Unavailable)])], End::Well));
        let first = vec![failing(0, Code::Unavailable), part(1, &keys[1])];
        play.each.push_back(Ok((vec![message(first)], End::Well)));
        play.each.extend((0..20).map(|_| again()));
    });
    let results = read(&table, &["a", "b"]).await;
    assert!(matches!(results[0], Err(Error::Unavailable { .. })), "{results:?}");
    assert!(is_found(&results[1], "b"), "{results:?}");
}

#[tokio::test]
async fn what_had_not_come_over_a_broken_connection_is_asked_for_again() {
    let (script, table) = taking(10).await;
    let keys = ["a", "b", "c"].map(Bytes::from);
    let cut = Part { more: true, ..part(0, &keys[0]) };
    script.play(|play| {
        play.each.push_back(Err(Status::unavailable("not yet")));
        play.each.push_back(Ok((vec![message(vec![part(1, &keys[1]), cut])], unavailable())));
        play.each.push_back(Ok((vec![message(vec![part(1, &keys[2])])], End::Stalls)));
    });
    let results = read(&table, &["a", "b", "c"]).await;
    let right = results.iter().zip(["a", "b", "c"]).all(|(result, key)| is_found(result, key));
    assert!(right, "{results:?}");
    assert_eq!(asked(&script), (vec![3, 3, 2, 1], 0));
    // A server that is unavailable fails all of them.
    script.play(|play| play.each.extend((0..20).map(|_| Err(Status::unavailable("away")))));
    let results = read(&table, &["a", "b"]).await;
    let away = |result: &bigtable::Result<Row>| matches!(result, Err(Error::Unavailable { .. }));
    assert!(results.iter().all(away), "{results:?}");
}

#[tokio::test]
async fn a_server_that_breaks_the_rules_is_believed_nothing() {
    let keys = ["a", "b"].map(Bytes::from);
    let open = |entry, key| Part { more: true, ..part(entry, key) };
    let wrong = [
        vec![part(0, &keys[1])],
        vec![part(7, &keys[0])],
        vec![open(0, &keys[0]), part(1, &keys[1])],
        vec![open(0, &keys[0]), part(0, &keys[1])],
        vec![open(0, &keys[0])],
        vec![Part { chunks: vec![CellChunk::default()], ..Part::default() }],
    ];
    for parts in wrong {
        let (script, table) = taking(10).await;
        let told = format!("{parts:?}");
        script.play(|play| play.each.push_back(Ok((vec![message(parts)], End::Well))));
        let results = read(&table, &["a", "b"]).await;
        let failed = results.iter().all(|r| matches!(r, Err(Error::Unavailable { .. })));
        assert!(failed, "{told}: {results:?}");
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_keeps_nobody_from_its_answer() {
    let (script, table) = taking(10).await;
    let other = table.clone();
    let gives_up = tokio::spawn(async move { read(&other, &["a"]).await });
    let waits = tokio::spawn({
        let table = table.clone();
        async move { read(&table, &["b", "c"]).await }
    });
    tokio::task::yield_now().await;
    gives_up.abort();
    let results = waits.await.unwrap();
    assert!(is_found(&results[0], "b") && is_found(&results[1], "c"), "{results:?}");
    assert!(gives_up.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!(asked(&script), (vec![3], 0));
}

#[tokio::test]
async fn to_other_servers_reads_by_the_same_filter_go_together() {
    let script = Script::default();
    let table = delayed(&script, DELAY).await;
    // One transaction reads three rows. Another reads one, and its page is full with the first row.
    let [one, other] = [up_to(1), up_to(2)];
    let of = |key: &'static str, select| {
        let table = table.clone();
        async move { table.read_row(&RowKey::from(key), select).await }
    };
    script.play(|play| {
        play.reads.extend((0..2).map(|_| (vec![rows(&["a", "c"])], End::Well)));
    });
    let (c, b, a, d) = tokio::join!(of("c", &one), of("b", &one), of("a", &one), of("a", &other));
    assert!(is_found(&a, "a") && is_found(&c, "c") && is_found(&d, "a"), "{a:?} {c:?} {d:?}");
    assert!(matches!(&b, Ok(row) if row.cells.is_empty()), "{b:?}");
    let mut named = script.play(|play| {
        let keys = |asked: &crate::proto::data::ReadRowsRequest| {
            asked.rows.as_ref().map_or(0, |rows| rows.row_keys.len())
        };
        play.asked.iter().map(keys).collect::<Vec<_>>()
    });
    named.sort_unstable();
    assert_eq!(named, [1, 3]);
    // An error that may concern one row only makes the client read each row by itself.
    script.play(|play| {
        let bad = || End::With(Status::failed_precondition("a row is too large"));
        play.reads = [(vec![], bad()), (vec![rows(&["a"])], End::Well), (vec![], bad())].into();
    });
    let (a, b) = tokio::join!(of("a", &one), of("b", &one));
    let results = [a, b];
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert_eq!(script.play(|play| play.asked.len()), 5);

    // The server supported several reads when the store was opened, and no longer does.
    let (script, table) = taking(10).await;
    script.play(|play| play.each.push_back(Err(Status::unimplemented("what is that?"))));
    let results = read(&table, &["a", "b"]).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(asked(&script), (vec![2], 2));
}

#[tokio::test]
async fn requests_of_several_tables_go_together() {
    let script = Script::default();
    script.play(|play| (play.reads_max, play.entries_max) = (10, 10));
    let options =
        ClientOptions { batch_delay: DELAY, deadline: DEADLINE, ..ClientOptions::default() };
    let address = format!("bigtable://{}/p/i", script.serve().await).parse().unwrap();
    let store = GrpcStore::open(&address, options).await.unwrap();
    let schema = TableSchema {
        groups: vec![bigtable::LocalityGroup::on_disk("f", bigtable::Layout::Versions)],
    };
    let [t, u] = [store.table("t", &schema).unwrap(), store.table("u", &schema).unwrap()];
    let (select, row) = (up_to(1), RowKey::from("r"));
    let change = || requests(&["c"]).remove(0);
    let (a, b, c, d) = tokio::join!(
        t.read_row(&row, &select),
        u.read_row(&row, &select),
        t.check_and_mutate_row(change()),
        u.check_and_mutate_row(change()),
    );
    assert!(a.is_ok() && b.is_ok() && c.is_ok() && d.is_ok(), "{a:?} {b:?} {c:?} {d:?}");
    let mut named = script.play(|play| std::mem::take(&mut play.named));
    named.sort_unstable();
    assert_eq!(named, ["t/c u/c", "t/r u/r"]);
}

/// A random selection. It draws from few names and times, so that reads find something.
fn select(random: &mut StdRng, schema: &TableSchema) -> Selection {
    loop {
        let selection = columns(random);
        // A selection that names a cell twice is refused by every kind of read, so it is drawn
        // again.
        if selection.check(schema).is_ok() {
            return selection;
        }
    }
}

fn columns(random: &mut StdRng) -> Selection {
    let mut selection = Selection::default();
    for _ in 0..random.random_range(0..4) {
        let at = ts(random.random_range(0..12));
        let time = match random.random_range(0..4) {
            0 => TimeRange::ALL,
            1 => TimeRange::since(at),
            2 => TimeRange::below(at),
            _ => TimeRange::up_to(at),
        };
        let family = Family::from_static(["f", "g"][random.random_range(0..2)]);
        let versions = random.random_range(1..4);
        selection = if random.random_ratio(1, 3) {
            selection.family(family, time, versions)
        } else {
            let qualifier = ["p", "q", "absent"][random.random_range(0..3)];
            selection.column(family, qualifier, time, versions)
        };
    }
    selection
}

/// Reads a range in short pages, all of it.
async fn scan(
    table: &dyn Table,
    (range, select, rows_max): &(RowRange, Selection, usize),
    pages: &AtomicU64,
) -> bigtable::Result<Vec<Row>> {
    let limit = PageLimit { rows_max: *rows_max, ..PageLimit::default() };
    let (mut left, mut rows) = (Some(range.clone()), Vec::new());
    while let Some(range) = left {
        pages.fetch_add(1, Ordering::Relaxed);
        let page = table.scan(&range, select, limit).await?;
        assert!(page.rows.len() <= *rows_max, "{} rows", page.rows.len());
        rows.extend(page.rows);
        left = page.resume;
    }
    Ok(rows)
}

async fn write(table: &dyn Table, random: &mut StdRng) {
    for row in 0..20 {
        let set = |random: &mut StdRng| {
            let family = Family::from_static(["f", "g"][random.random_range(0..2)]);
            let value = vec![7; [0, 3, 300_000][random.random_range(0..3)]];
            let at = ts(random.random_range(0..12));
            Mutation::set(family, ["p", "q"][random.random_range(0..2)], at, value)
        };
        let count = random.random_range(1..9);
        let mutations = (0..count).map(|_| set(random)).collect();
        let request = RowMutation { mutations, ..RowMutation::new(format!("r{row}")) };
        table.mutate_row(request).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gathered_reads_find_what_single_ones_find() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Buffered, ..Options::default() };
    let server = Server::open(dir.path().join("data"), options).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("bigtable://{}/p/i", listener.local_addr().unwrap()).parse().unwrap();
    let served = tokio::spawn(server.serve(listener, std::future::pending()));
    let open = |batches, batch_delay| {
        let options = ClientOptions { batches, batch_delay, ..ClientOptions::default() };
        GrpcStore::open(&address, options)
    };
    let group = |name| bigtable::LocalityGroup::on_disk(name, bigtable::Layout::Versions);
    let schema = TableSchema { groups: vec![group("f"), group("g")] };
    let single = open(true, Duration::ZERO).await.unwrap();
    let open_both = async |store: &GrpcStore| {
        let [t, u] = ["t", "u"].map(|name| store.open_table(name, &schema));
        [t.await.unwrap(), u.await.unwrap()]
    };
    let alone = open_both(&single).await;
    let mut random = StdRng::seed_from_u64(7);
    for table in &alone {
        write(&**table, &mut random).await;
    }
    for batches in [true, false] {
        let store = open(batches, Duration::from_millis(5)).await.unwrap();
        // Garbage collection must also wait for requests that gather, and that are sent late.
        let delays = Duration::from_millis(5) + BEHIND_MAX;
        let life = single.request_life_max().unwrap() + delays + LATE_MAX;
        assert_eq!(store.request_life_max(), Some(life));
        let tables = open_both(&store).await;
        for _ in 0..5 {
            let draw = |_| {
                let row = RowKey::from(format!("r{}", random.random_range(0..25)));
                (random.random_range(0..2), row, select(&mut random, &schema))
            };
            let reads: Vec<_> = (0..200).map(draw).collect();
            let before = (store.reads_sent(), store.requests_sent());
            let together = reads
                .iter()
                .map(|(of, row, select): &(usize, _, _)| tables[*of].read_row(row, select));
            let together = join_all(together);
            let together = together.await;
            let sent = (store.reads_sent() - before.0, store.requests_sent() - before.1);
            assert_eq!(sent.0, sent.1);
            assert!(!batches || sent.0 < 20, "{} requests for 200 reads", sent.0);
            for ((of, row, select), found) in reads.iter().zip(together) {
                let expected = alone[*of].read_row(row, select).await.unwrap();
                assert_eq!(found.unwrap(), expected, "{row} by {select:?}");
            }
            let draw = |_| {
                let key = |n: usize| RowKey::from(format!("r{n}"));
                let from = random.random_range(0..20);
                let to = from + random.random_range(0..10);
                let rows_max = [1, 3, 64, 100][random.random_range(0..4)];
                let range = RowRange::between(key(from), key(to));
                let of: usize = random.random_range(0..2);
                (of, (range, select(&mut random, &schema), rows_max))
            };
            let scans: Vec<_> = (0..50).map(draw).collect();
            let (before, pages) = (store.requests_sent(), AtomicU64::new(0));
            let together = scans.iter().map(|(of, wanted)| scan(&*tables[*of], wanted, &pages));
            let together = join_all(together).await;
            let (sent, pages) = (store.requests_sent() - before, pages.into_inner());
            assert!(!batches || sent < pages / 2, "{sent} requests for {pages} pages");
            for ((of, wanted), found) in scans.iter().zip(together) {
                let expected = scan(&*alone[*of], wanted, &AtomicU64::new(0)).await.unwrap();
                assert_eq!(found.unwrap(), expected, "{wanted:?}");
            }
        }
    }
    served.abort();
}
