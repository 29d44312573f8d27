//! Tests changes of several rows in one step, in stores that offer them. A change must be
//! atomic, and no reader may miss a change at or below its timestamp.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;

use futures::executor::block_on;

use super::fixture::*;
use super::threads::Stop;
use crate::{AtCommit, COMMIT_ROWS_MAX, CommitRow, CommitRows, Error, Family, Mutation, RowRange};
use crate::{RowsOutcome, Selection, Store, Table, TimeRange, Timestamp};

/// Writes `q` of a family in every row, at the next timestamp of a clock.
#[derive(Debug)]
struct Next {
    clock: Option<Arc<AtomicU64>>,
    family: Family,
}

impl AtCommit for Next {
    fn timestamp(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(|clock| ts(clock.fetch_add(1, Ordering::SeqCst)))
    }

    fn mutations(&self, row: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        vec![set(&self.family, b"q", commit_ts.as_u64(), &format!("v{row}"))]
    }
}

fn clock(store: &dyn Store) -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(store.floor().as_u64() + 1))
}

fn tick(clock: &AtomicU64) -> u64 {
    clock.fetch_add(1, Ordering::SeqCst)
}

/// A request whose rows must have no version of `q` at or above `s`.
fn request<'a>(
    rows: impl IntoIterator<Item = (&'a str, &'a str)>,
    f: &Family,
    s: u64,
    clock: Option<Arc<AtomicU64>>,
) -> CommitRows {
    let row = |(table, row): (&str, &str)| CommitRow {
        table: table.into(),
        row: row.into(),
        predicate: vec![probe(f, b"q", TimeRange::since(ts(s)))],
    };
    let at = Arc::new(Next { clock, family: f.clone() });
    CommitRows { rows: rows.into_iter().map(row).collect(), above: ts(s), bytes: 0, at }
}

/// Returns whether the store offers this. A store that does not must refuse the request.
async fn has_it(store: &dyn Store) -> bool {
    if !store.commits_rows() {
        let none = request([], &PLAIN, store.floor().as_u64(), Some(clock(store)));
        invalid("several rows at once", store.commit_rows(none).await);
    }
    store.commits_rows()
}

async fn two_tables(store: &dyn Store, a: &str, b: &str) -> [Arc<dyn Table>; 2] {
    [table(store, a).await, table(store, b).await]
}

pub(super) async fn all_or_nothing(store: &dyn Store) {
    if !has_it(store).await {
        return;
    }
    let tables = two_tables(store, "rows_a", "rows_b").await;
    let names = [("rows_a", "r"), ("rows_a", "s"), ("rows_b", "r")];
    let clock = clock(store);
    for f in &EACH {
        let s = tick(&clock);
        let c = clock.load(Ordering::SeqCst);
        let written = |rows: &[bool; 3]| rows.map(|there| if there { 1 } else { 0 });
        let committed =
            ok("three rows", store.commit_rows(request(names, f, s, Some(clock.clone()))).await);
        assert_eq!(committed, RowsOutcome::Committed(ts(c)), "{f}: the clock's next timestamp");
        assert_eq!(versions(&tables, f).await, written(&[true; 3]), "{f}: every row is written");
        let again = ok("again", store.commit_rows(request(names, f, s, Some(clock.clone()))).await);
        assert_eq!(again, RowsOutcome::Rejected { row: 0 }, "{f}: the first row that rejects");
        // The last row has a conflict, so the first two must stay unchanged.
        let s = tick(&clock);
        mutate(&*tables[1], b"r", [set(f, b"q", s + 1, "newer")]).await;
        clock.fetch_add(1, Ordering::SeqCst);
        let third =
            ok("a conflict", store.commit_rows(request(names, f, s, Some(clock.clone()))).await);
        assert_eq!(third, RowsOutcome::Rejected { row: 2 }, "{f}: the row that rejects");
        assert_eq!(versions(&tables, f).await, [1, 1, 2], "{f}: nothing is written");
        let s = tick(&clock);
        let none = ok("no timestamp", store.commit_rows(request(names, f, s, None)).await);
        assert_eq!(none, RowsOutcome::NoTimestamp, "{f}: without a timestamp");
        assert_eq!(versions(&tables, f).await, [1, 1, 2], "{f}: nothing is written without one");
    }
}

/// The number of versions of `q` in each of the three rows.
async fn versions([a, b]: &[Arc<dyn Table>; 2], f: &Family) -> [usize; 3] {
    let mut counts = [0; 3];
    let rows = [(a, "r"), (a, "s"), (b, "r")];
    for (count, (table, row)) in counts.iter_mut().zip(rows) {
        let select = column(f, b"q", TimeRange::ALL, u32::MAX);
        *count = read(&**table, row.as_bytes(), &select).await.cells.len();
    }
    counts
}

pub(super) async fn refused(store: &dyn Store) {
    if !has_it(store).await {
        return;
    }
    let table = table(store, "rows_refused").await;
    let name = "rows_refused";
    let clock = clock(store);
    let s = tick(&clock);
    let ask = |rows: Vec<(&'static str, &'static str)>, f: &Family, s: u64| {
        store.commit_rows(request(rows, f, s, Some(clock.clone())))
    };
    let unordered = vec![(name, "s"), (name, "r")];
    invalid("rows out of order", ask(unordered, &PLAIN, s).await);
    invalid("a row twice", ask(vec![(name, "r"), (name, "r")], &PLAIN, s).await);
    invalid("a table that is not open", ask(vec![("rows_nowhere", "r")], &PLAIN, s).await);
    invalid("an empty key", ask(vec![(name, "")], &PLAIN, s).await);
    let unknown = Family::from_static("no-such-family");
    invalid("an unknown family", ask(vec![(name, "r")], &unknown, s).await);
    // The predicate is valid, but the mutations are not.
    let mut late = request([(name, "r")], &PLAIN, s, Some(clock.clone()));
    late.at = Arc::new(Next { clock: Some(clock.clone()), family: unknown });
    invalid("an unknown family at the last moment", store.commit_rows(late).await);
    let many: Vec<String> = (0..=COMMIT_ROWS_MAX).map(|row| format!("{row:05}")).collect();
    let rows = many.iter().map(|row| (name, row.as_str()));
    let too_many = request(rows, &PLAIN, s, Some(clock.clone()));
    invalid("too many rows", store.commit_rows(too_many).await);
    let rows = many[1..].iter().map(|row| (name, row.as_str()));
    let most = request(rows, &PLAIN, s, Some(clock.clone()));
    assert!(matches!(store.commit_rows(most).await, Ok(RowsOutcome::Committed(_))));

    let floor = ts(clock.fetch_add(2, Ordering::SeqCst) + 1);
    ok("raising the floor", store.raise_floor(floor).await);
    match ask(vec![(name, "r")], &PLAIN, s).await {
        Err(Error::TooOld { asked, floor: f }) if (asked, f) == (ts(s), floor) => {}
        got => panic!("several rows above {s}, floor {floor}: expected TooOld, got {got:?}"),
    }
    let select = column(&PLAIN, b"q", TimeRange::ALL, 1);
    let got = read(&*table, b"r", &select).await;
    assert!(got.cells.is_empty(), "nothing that was refused is written: {:?}", shown(&got));
}

/// Writers change one row in each of two tables. A reader with a timestamp must see both rows
/// of a change or neither, whenever its reads happen.
pub(super) async fn seen_whole(store: &dyn Store) {
    const COMMITS: u64 = 300;
    if !has_it(store).await {
        return;
    }
    let tables = two_tables(store, "rows_seen_a", "rows_seen_b").await;
    let names = [("rows_seen_a", "r"), ("rows_seen_b", "r")];
    let clock = clock(store);
    for f in [PLAIN, NEWEST] {
        let done = AtomicBool::new(false);
        let committed = scope(|scope| {
            let _stop = Stop(&done);
            for reader in 0..2 {
                let (tables, clock, done, f) = (&tables, &clock, &done, &f);
                scope.spawn(move || {
                    while !done.load(Ordering::SeqCst) {
                        let s = ts(tick(clock));
                        let seen = block_on(newest(tables, f, s, reader == 0));
                        assert_eq!(seen[0], seen[1], "{f}: half of a change was read at {s}");
                    }
                });
            }
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let (clock, f) = (&clock, &f);
                    scope.spawn(move || {
                        let mut committed = BTreeSet::new();
                        for _ in 0..COMMITS {
                            let s = tick(clock);
                            let request = request(names, f, s, Some(clock.clone()));
                            let outcome = ok("two rows", block_on(store.commit_rows(request)));
                            if let RowsOutcome::Committed(commit_ts) = outcome {
                                assert!(commit_ts > ts(s), "{f}: {commit_ts} is not above {s}");
                                committed.insert(commit_ts);
                            }
                        }
                        committed
                    })
                })
                .collect();
            let join = |writer: std::thread::ScopedJoinHandle<'_, BTreeSet<Timestamp>>| {
                writer.join().expect("a writer panicked")
            };
            let mut committed = BTreeSet::new();
            for writer in writers {
                committed.append(&mut join(writer));
            }
            committed
        });
        for table in &tables {
            let row = read(&**table, b"r", &column(&f, b"q", TimeRange::ALL, u32::MAX)).await;
            let written: BTreeSet<_> = row.cells.iter().map(|cell| cell.timestamp).collect();
            assert_eq!(written, committed, "{f}: what is there is what was acknowledged");
        }
    }
}

/// The newest version that a reader at `s` sees in each table.
async fn newest(
    tables: &[Arc<dyn Table>; 2],
    f: &Family,
    s: Timestamp,
    scans: bool,
) -> [Option<Timestamp>; 2] {
    let select: Selection = column(f, b"q", TimeRange::up_to(s), 1).above(s);
    let mut seen = [None; 2];
    for (seen, table) in seen.iter_mut().zip(tables) {
        let row = if scans {
            super::fixture::scan(&**table, &RowRange::all(), &select).await.pop()
        } else {
            Some(read(&**table, b"r", &select).await)
        };
        *seen = row.and_then(|row| row.newest(f, b"q").map(|cell| cell.timestamp));
    }
    seen
}
