//! Tests readers of rows whose one-step commit is in flight: its timestamp is issued, and its
//! batch is not published.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::pin::pin;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use bigtable::{AtCommit, CommitRow, CommitRows, Glance, Glanced, RowKey, RowsOutcome};
use futures::FutureExt;

use super::*;
use crate::power_cut::held::{Catch, Place, hold};

/// The commit timestamp. Readers in these tests use snapshots at this timestamp.
const COMMIT: u64 = 9;
/// The start timestamp of the commit.
const START: u64 = 5;
/// The committed rows. Between each two of them is another row.
const ROWS: [&str; 3] = ["b", "d", "f"];

/// Issues the timestamp, then waits until the test lets it continue.
#[derive(Debug)]
struct Step {
    issued: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl AtCommit for Step {
    fn timestamp(&self) -> Option<Timestamp> {
        self.issued.lock().unwrap().send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
        Some(ts(COMMIT))
    }

    fn mutations(&self, _: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        vec![set(&NEWEST, commit_ts.as_u64(), "new")]
    }
}

fn request(at: Arc<dyn AtCommit>) -> CommitRows {
    let row = |row: &str| CommitRow { table: "t".into(), row: row.into(), predicate: vec![] };
    let rows = ROWS.into_iter().map(row).collect();
    CommitRows { rows, above: ts(START), bytes: 100, at }
}

/// A new store in which each row has an old version.
fn open_old(dir: &Path) -> (FjallStore, Arc<dyn Table>) {
    let (store, table) = open(dir, Durability::Buffered);
    for row in ["a", "b", "c", "d", "e", "f", "g"] {
        let old = bigtable::RowMutation::new(row).mutation(set(&NEWEST, 1, "old"));
        block_on(table.mutate_row(old)).unwrap();
    }
    (store, table)
}

fn newest(s: u64) -> Selection {
    Selection::default().column(NEWEST, "q", TimeRange::up_to(ts(s)), 1).above(ts(s))
}

fn glance(table: &dyn Table, row: &str, s: u64) -> Glanced {
    let row = RowKey::from(row);
    let at = Glance { row: &row, qualifier: b"q", family: &NEWEST, guard: &MEMORY, s: ts(s) };
    table.glance(at).unwrap()
}

fn versions(rows: &[Row]) -> Vec<u64> {
    rows.iter().flat_map(|row| &row.cells).map(|cell| cell.timestamp.as_u64()).collect()
}

/// While the rows are pending, checks that readers at the commit timestamp wait for them and
/// that others do not. Then `publish` ends the commit, and the waiting readers see it.
fn look(table: &dyn Table, publish: impl FnOnce()) {
    let ranges = [("a", "z"), ("b", "c"), ("c", "e"), ("e", "z")];
    let between = |(from, to): (&str, &str)| RowRange {
        start: std::ops::Bound::Included(from.into()),
        end: std::ops::Bound::Excluded(to.into()),
    };
    for s in [START, COMMIT] {
        for row in ["a", "c", "e", "g"] {
            assert!(matches!(glance(table, row, s), Glanced::Newest(at, _) if at == ts(1)));
            let read = table.read_row(&row.into(), &newest(s)).now_or_never();
            assert_eq!(versions(&[read.expect("nobody commits this row").unwrap()]), [1]);
        }
    }
    for row in ROWS {
        assert!(matches!(glance(table, row, START), Glanced::Newest(at, _) if at == ts(1)));
        assert_eq!(glance(table, row, COMMIT), Glanced::Nothing, "row {row} is pending");
        let read = table.read_row(&row.into(), &newest(START)).now_or_never();
        assert_eq!(versions(&[read.expect("an older snapshot waits for nothing").unwrap()]), [1]);
    }
    let select = newest(COMMIT);
    let keys: Vec<RowKey> = ROWS.into_iter().map(RowKey::from).collect();
    let mut reads: Vec<_> = keys.iter().map(|key| table.read_row(key, &select)).collect();
    for (row, read) in ROWS.iter().zip(&mut reads) {
        assert!(read.now_or_never().is_none(), "a read of row {row} does not wait");
    }
    let ranges: Vec<_> = ranges.into_iter().map(between).collect();
    let mut scans: Vec<_> =
        ranges.iter().map(|r| table.scan(r, &select, Default::default())).collect();
    for (range, scan) in ranges.iter().zip(&mut scans) {
        assert!(scan.now_or_never().is_none(), "a scan of {range:?} does not wait");
    }
    publish();
    for read in reads {
        assert_eq!(versions(&[block_on(read).unwrap()]), [COMMIT], "once it is published");
    }
    let all = versions(&block_on(pin!(scans.swap_remove(0))).unwrap().rows);
    assert_eq!(all, [1, COMMIT, 1, COMMIT, 1, COMMIT, 1], "all of it or nothing");
    assert!(ROWS.iter().all(|row| matches!(
        glance(table, row, COMMIT),
        Glanced::Newest(at, _) if at == ts(COMMIT)
    )));
}

#[test]
fn h08_h27_a_reader_at_an_issued_timestamp_waits_for_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open_old(dir.path());
    let ((issued, is_issued), (let_go, go_on)) = (channel(), channel());
    let at = Arc::new(Step { issued: Mutex::new(issued), go_on: Mutex::new(go_on) });
    std::thread::scope(|scope| {
        // Moved here, so that a failed assertion drops it and the committer does not wait
        // forever.
        let let_go = let_go;
        let commit = scope.spawn(|| block_on(store.commit_rows(request(at))));
        is_issued.recv().unwrap();
        look(&*table, || {
            let_go.send(()).unwrap();
            let outcome = commit.join().unwrap().unwrap();
            assert_eq!(outcome, RowsOutcome::Committed(ts(COMMIT)));
        });
    });
}

/// Issues the timestamp without waiting; its batch is held.
#[derive(Debug)]
struct OneStep(Arc<Catch>);

impl AtCommit for OneStep {
    fn timestamp(&self) -> Option<Timestamp> {
        self.0.here();
        Some(ts(COMMIT))
    }

    fn mutations(&self, _: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        vec![set(&NEWEST, commit_ts.as_u64(), "new")]
    }
}

#[test]
fn h27_rows_are_pending_until_readers_see_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open_old(dir.path());
    let commit = |catch| {
        let outcome = block_on(store.commit_rows(request(Arc::new(OneStep(catch))))).unwrap();
        assert_eq!(outcome, RowsOutcome::Committed(ts(COMMIT)));
    };
    hold(Place::Items, commit, || {
        for row in ROWS {
            assert_eq!(glance(&*table, row, COMMIT), Glanced::Nothing, "row {row} is pending");
            let (row, select) = (row.into(), newest(COMMIT));
            let read = table.read_row(&row, &select).now_or_never();
            assert!(read.is_none(), "a read of row {row} does not wait for its batch");
        }
    });
    let page = block_on(table.scan(&RowRange::all(), &newest(COMMIT), Default::default()));
    assert_eq!(versions(&page.unwrap().rows), [1, COMMIT, 1, COMMIT, 1, COMMIT, 1]);
}

#[test]
fn h39_a_read_sees_what_was_acknowledged_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open_old(dir.path());
    for version in 2..6 {
        let next = bigtable::RowMutation::new("a").mutation(set(&NEWEST, version, "next"));
        block_on(table.mutate_row(next)).unwrap();
        let row = block_on(table.read_row(&"a".into(), &newest(COMMIT))).unwrap();
        assert_eq!(versions(&[row]), [version]);
        assert!(matches!(
            glance(&*table, "a", COMMIT),
            Glanced::Newest(at, _) if at == ts(version)
        ));
        // A scan reads from a snapshot, even if the cache has all of it.
        let page = block_on(table.scan(&RowRange::all(), &newest(COMMIT), Default::default()));
        assert_eq!(versions(&page.unwrap().rows)[0], version);
    }
}
