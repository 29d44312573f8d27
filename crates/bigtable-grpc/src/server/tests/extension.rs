//! Tests several CheckAndMutateRow in one request, and several reads.

use super::*;
use crate::proto::data::RowRange;
use crate::proto::data::row_range::{EndKey, StartKey};
use crate::proto::extension::check_and_mutate_rows_request::Entry;
use crate::proto::extension::check_and_mutate_rows_response::Outcome;
use crate::proto::extension::extension_client::ExtensionClient;
use crate::proto::extension::read_each_request::Entry as ReadEntry;
use crate::proto::extension::{CheckAndMutateRowsRequest, DescribeRequest, ReadEachRequest};

impl World {
    async fn check_all(&self, table: &str, entries: Vec<Entry>) -> Result<Vec<Outcome>, Status> {
        let mut client = ExtensionClient::new(self.channel.clone());
        let table_names = vec![table.to_owned()];
        let request = CheckAndMutateRowsRequest { entries, table_names };
        client.check_and_mutate_rows(request).await.map(|answer| answer.into_inner().outcomes)
    }
}

fn entry(row: &str, then: Vec<Mutation>, otherwise: Vec<Mutation>) -> Entry {
    Entry {
        row_key: row.to_owned().into(),
        predicate_filter: Some(filter(WireFilter::PassAllFilter(true))),
        true_mutations: then,
        false_mutations: otherwise,
        table: 0,
    }
}

fn code(outcome: &Outcome) -> Option<Code> {
    outcome.status.as_ref().map(|status| Code::from_i32(status.code))
}

#[tokio::test]
async fn each_entry_is_as_if_it_were_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let good = |q: &str| vec![set(&format!("a:{q}"), 1000, "v")];
    let bad = || vec![set("a:p", 1000, "v"), set("bogus:q", 1000, "v")];
    world.mutate("there", good("old")).await.unwrap();
    let mut unsound = entry("unsound", good("q"), vec![]);
    unsound.predicate_filter = Some(filter(WireFilter::PassAllFilter(false)));
    let entries = vec![
        entry("there", good("then"), good("otherwise")),
        entry("absent", good("then"), good("otherwise")),
        entry("bogus", good("q"), bad()),
        entry("untaken", bad(), good("q")),
        entry("", good("q"), good("q")),
        unsound,
        entry("empty", vec![], vec![]),
        entry("there", good("again"), vec![]),
    ];
    let outcomes = world.check_all(TABLE, entries).await.unwrap();
    let codes: Vec<_> = outcomes.iter().map(code).collect();
    let (not_found, invalid) = (Some(Code::NotFound), Some(Code::InvalidArgument));
    assert_eq!(codes, [None, None, not_found, None, invalid, invalid, invalid, None]);
    let matched: Vec<_> = outcomes.iter().map(|outcome| outcome.predicate_matched).collect();
    assert_eq!(matched, [true, false, false, false, false, false, false, true]);
    assert_eq!(
        world.all().await,
        [
            "absent/a:otherwise@1000=v",
            "there/a:again@1000=v",
            "there/a:old@1000=v",
            "there/a:then@1000=v",
            "untaken/a:q@1000=v"
        ]
    );
    world.stop().await;
}

#[tokio::test]
async fn a_request_beyond_the_limits_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let mut client = ExtensionClient::new(world.channel.clone());
    let described = client.describe(DescribeRequest {}).await.unwrap().into_inner();
    let max = described.entries_max as usize;
    let one = |i: usize| entry(&format!("r{i:06}"), vec![], vec![set("a:q", 1000, "v")]);
    let over = world.check_all(TABLE, (0..=max).map(one).collect()).await;
    refused(over.map(|_| ()), Code::InvalidArgument);
    let many = entry("r", vec![], vec![set("a:q", 1000, "v"); limits::MUTATIONS_MAX]);
    let over = world.check_all(TABLE, vec![many.clone(), one(0)]).await;
    refused(over.map(|_| ()), Code::InvalidArgument);
    refused(world.check_all(TABLE, vec![]).await.map(|_| ()), Code::InvalidArgument);
    let elsewhere = format!("{INSTANCE}/tables/nowhere");
    let outcomes = world.check_all(&elsewhere, vec![one(0)]).await.unwrap();
    assert_eq!(outcomes.iter().map(code).collect::<Vec<_>>(), [Some(Code::NotFound)]);
    assert!(world.all().await.is_empty());
    let outcomes = world.check_all(TABLE, (0..max).map(one).collect()).await.unwrap();
    assert!(outcomes.len() == max && outcomes.iter().all(|o| code(o).is_none()));
    assert_eq!(world.all().await.len(), max);
    let outcomes = world.check_all(TABLE, vec![many]).await.unwrap();
    assert_eq!(outcomes.iter().map(code).collect::<Vec<_>>(), [None]);
    world.stop().await;
}

impl World {
    /// Reads entries. Returns the cells or the code of each, and the number of messages.
    async fn read_each(
        &self,
        entries: Vec<ReadEntry>,
    ) -> Result<(Vec<Result<Vec<String>, Code>>, usize), Status> {
        self.read_each_of(&[TABLE], entries).await
    }

    /// Reads entries of some tables.
    async fn read_each_of(
        &self,
        tables: &[&str],
        entries: Vec<ReadEntry>,
    ) -> Result<(Vec<Result<Vec<String>, Code>>, usize), Status> {
        let mut client =
            ExtensionClient::new(self.channel.clone()).max_decoding_message_size(4 << 20);
        let mut found: Vec<_> = entries.iter().map(|_| None).collect();
        let table_names = tables.iter().map(|name| (*name).to_owned()).collect();
        let request = ReadEachRequest { entries, table_names };
        let mut stream = client.read_each(request).await?.into_inner();
        let (mut chunks, mut messages) = (Vec::new(), 0);
        while let Some(message) = stream.message().await? {
            messages += 1;
            for part in message.parts {
                chunks.extend(part.chunks);
                if part.more {
                    continue;
                }
                let outcome = match part.status {
                    Some(status) => Err(Code::from_i32(status.code)),
                    None => Ok(show(&std::mem::take(&mut chunks))),
                };
                assert!(found[part.entry as usize].replace(outcome).is_none(), "answered once");
            }
        }
        Ok((found.into_iter().map(|found| found.expect("an answer")).collect(), messages))
    }
}

fn wants(row: &str, wanted: WireFilter) -> ReadEntry {
    let (row_key, filter) = (row.to_owned().into(), Some(filter(wanted)));
    ReadEntry { row_key, filter, ..ReadEntry::default() }
}

#[tokio::test]
async fn each_read_is_as_if_it_were_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a", "b"]).await;
    for row in ["r", "s"] {
        world.set(row, "a:q", 1000, "old").await;
        world.set(row, "a:q", 2000, "new").await;
        world.set(row, "b:q", 1000, "b").await;
    }
    let before = |end_timestamp_micros| {
        let range = TimestampRange { start_timestamp_micros: 0, end_timestamp_micros };
        WireFilter::TimestampRangeFilter(range)
    };
    let family = |name: &str| WireFilter::FamilyNameRegexFilter(name.to_owned());
    let pass = || WireFilter::PassAllFilter(true);
    let entries = vec![
        wants("s", before(2000)),
        wants("r", pass()),
        wants("s", family("b")),
        wants("absent", pass()),
        wants("r", WireFilter::PassAllFilter(false)),
        wants("", pass()),
        wants("r", family("bogus")),
        ReadEntry { row_key: "s".into(), ..ReadEntry::default() },
        wants("r", before(1000)),
    ];
    let (found, _) = world.read_each(entries.clone()).await.unwrap();
    for (entry, found) in entries.into_iter().zip(found) {
        let rows = RowSet { row_keys: vec![entry.row_key.clone()], row_ranges: Vec::new() };
        let alone = ReadRowsRequest {
            rows: Some(rows),
            filter: entry.filter.clone(),
            ..ReadRowsRequest::default()
        };
        let alone = world.read(alone).await.map_err(|status| status.code());
        assert_eq!(found, alone, "{entry:?}");
    }
    world.stop().await;
}

#[tokio::test]
async fn an_entry_reads_a_page_of_a_range() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    for row in ["r1", "r2", "r3"] {
        world.set(row, "a:q", 1000, "v").await;
    }
    let page = |from: &str, to: &str, rows_max| {
        let start_key = Some(StartKey::StartKeyClosed(from.to_owned().into()));
        let end_key = Some(EndKey::EndKeyOpen(to.to_owned().into()));
        let row_range = Some(RowRange { start_key, end_key });
        ReadEntry { row_range, rows_max, ..ReadEntry::default() }
    };
    let third = WireFilter::RowKeyRegexFilter("r3".into());
    let entries = vec![
        page("r1", "r4", 2),
        page("r1", "r4", 0),
        page("r4", "r1", 1),
        page("r1", "r1", 1),
        wants("r2", WireFilter::PassAllFilter(true)),
        ReadEntry { bytes_max: 1, ..page("r2", "r4", 9) },
        ReadEntry { filter: Some(filter(WireFilter::BlockAllFilter(true))), ..page("r", "s", 1) },
        ReadEntry { row_key: "r1".into(), ..page("r", "s", 1) },
        // Rows that do not pass the filter do not make a page.
        ReadEntry { filter: Some(filter(third)), ..page("r1", "r4", 1) },
    ];
    let table_names = vec![TABLE.to_owned()];
    let request = ReadEachRequest { entries: entries.clone(), table_names };
    let mut stream =
        ExtensionClient::new(world.channel.clone()).read_each(request).await.unwrap().into_inner();
    let mut scanned = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        scanned.extend(message.parts.into_iter().map(|part| (part.entry, part.scanned)));
    }
    scanned.retain(|(_, scanned)| !scanned.is_empty());
    assert_eq!(scanned, [(0, "r2".into()), (5, "r2".into())]);
    let (found, _) = world.read_each(entries).await.unwrap();
    let cells = |rows: &[&str]| Ok(rows.iter().map(|row| format!("{row}/a:q@1000=v")).collect());
    let expected = [
        cells(&["r1", "r2"]),
        cells(&["r1", "r2", "r3"]),
        Err(Code::InvalidArgument),
        cells(&[]),
        cells(&["r2"]),
        cells(&["r2"]),
        cells(&[]),
        Err(Code::InvalidArgument),
        cells(&["r3"]),
    ];
    assert_eq!(found, expected);
    world.stop().await;
}

#[tokio::test]
async fn a_request_may_name_several_tables() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    world.create("u", &["a"]).await.unwrap();
    let names = [TABLE, &format!("{INSTANCE}/tables/no"), &format!("{INSTANCE}/tables/u")];
    let of = |table| {
        let value = format!("table {table}");
        Entry { table, ..entry("r", vec![], vec![set("a:q", 1000, &value)]) }
    };
    let change = async |entries| {
        let table_names = names.iter().map(|name| (*name).to_owned()).collect();
        let request = CheckAndMutateRowsRequest { entries, table_names };
        let mut client = ExtensionClient::new(world.channel.clone());
        client.check_and_mutate_rows(request).await.map(|answer| answer.into_inner().outcomes)
    };
    let outcomes = change(vec![of(2), of(1), of(0), of(2)]).await.unwrap();
    let codes: Vec<_> = outcomes.iter().map(code).collect();
    assert_eq!(codes, [None, Some(Code::NotFound), None, None]);
    let matched: Vec<_> = outcomes.iter().map(|outcome| outcome.predicate_matched).collect();
    assert_eq!(matched, [false, false, false, true]);
    // An entry beyond the tables, and more tables than entries.
    for wrong in [vec![of(0), of(1), of(3)], vec![of(0), of(1)]] {
        refused(change(wrong).await.map(|_| ()), Code::InvalidArgument);
    }

    let of = |table| ReadEntry { table, ..wants("r", WireFilter::PassAllFilter(true)) };
    let entries = vec![of(2), of(1), of(0)];
    let (found, _) = world.read_each_of(&names, entries).await.unwrap();
    let cell = |table: &str| Ok(vec![format!("r/a:q@1000={table}")]);
    assert_eq!(found, [cell("table 2"), Err(Code::NotFound), cell("table 0")]);
    let beyond = [of(0), of(1), of(3)];
    for (tables, entries) in [
        (&names[..], &beyond[..]),
        (&names, &beyond[..2]),
        (&[], &beyond[..1]),
        (&["malformed"], &beyond[..1]),
    ] {
        let refusal = world.read_each_of(tables, entries.to_vec()).await;
        refused(refusal.map(|_| ()), Code::InvalidArgument);
    }
    world.stop().await;
}

#[tokio::test]
async fn several_reads_have_limits_and_come_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_table(dir.path(), &["a"]).await;
    let mut client = ExtensionClient::new(world.channel.clone());
    let described = client.describe(DescribeRequest {}).await.unwrap().into_inner();
    let max = described.reads_max as usize;
    let pass = |row: &str| wants(row, WireFilter::PassAllFilter(true));
    for count in [0, max + 1] {
        let refusal = world.read_each(vec![pass("r"); count]).await;
        refused(refusal.map(|_| ()), Code::InvalidArgument);
    }
    let elsewhere = format!("{INSTANCE}/tables/no");
    let (found, _) = world.read_each_of(&[&elsewhere], vec![pass("r")]).await.unwrap();
    assert_eq!(found, [Err(Code::NotFound)]);
    world.set("small", "a:q", 1000, "v").await;
    // The values exceed the largest message, alone and together.
    world.set("large", "a:q", 1000, &"v".repeat(9 << 20)).await;
    world.set("middle", "a:q", 1000, &"v".repeat(1 << 20)).await;
    let mut entries = vec![pass("small"); max - 12];
    entries.extend(["middle"; 10].map(pass));
    entries.extend(["large"; 2].map(pass));
    let (found, messages) = world.read_each(entries).await.unwrap();
    let right = |(n, found): (usize, &Result<Vec<String>, Code>)| {
        let expected = match max - n {
            1 | 2 => format!("large/a:q@1000={} bytes", 9 << 20),
            3..=12 => format!("middle/a:q@1000={} bytes", 1 << 20),
            _ => "small/a:q@1000=v".to_owned(),
        };
        *found == Ok(vec![expected])
    };
    assert!(found.iter().enumerate().all(right));
    assert!((8..100).contains(&messages), "{messages} messages");
    world.stop().await;
}
