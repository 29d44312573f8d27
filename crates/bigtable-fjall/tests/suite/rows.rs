//! Tests one-step commits of several rows in flight: their waiting readers, and the thread
//! that closes the store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bigtable::{
    AtCommit, CommitRow, CommitRows, Error, Glance, Glanced, Mutation, PageLimit, RowKey, RowRange,
    RowsOutcome, Selection, Store, Table, TimeRange, Timestamp,
};
use bigtable_fjall::{Durability, FjallStore};
use futures::executor::block_on;
use futures::{FutureExt, future::BoxFuture};

use crate::{MEMORY, NEWEST, PLAIN, open, set};

fn ts(number: u64) -> Timestamp {
    Timestamp::new(number).unwrap()
}

/// Writes at timestamp 7 when it is released. Keeps a handle of the store meanwhile.
#[derive(Debug)]
struct Held {
    gates: Option<(Sender<()>, Mutex<Receiver<()>>)>,
    _handle: Option<Arc<dyn Table>>,
}

impl AtCommit for Held {
    fn timestamp(&self) -> Option<Timestamp> {
        Some(ts(7))
    }

    /// At this point the timestamp is taken, and nothing is written yet.
    fn mutations(&self, _: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        if let Some((reached, release)) = &self.gates {
            reached.send(()).unwrap();
            release.lock().unwrap().recv().unwrap();
        }
        [PLAIN, NEWEST, MEMORY].iter().map(|f| set(f, commit_ts.as_u64(), "new")).collect()
    }
}

/// A change of one row, at a timestamp above 5.
fn request(row: &str, at: Held) -> CommitRows {
    let row = CommitRow { table: "t".into(), row: row.into(), predicate: Vec::new() };
    CommitRows { rows: vec![row], above: ts(5), bytes: 0, at: Arc::new(at) }
}

/// Commits row `b` on another thread, and runs `meanwhile` while its timestamp is taken.
fn while_held<T>(store: Arc<FjallStore>, meanwhile: impl FnOnce() -> T) -> T {
    let ((reached, is_reached), (let_go, release)) = (channel(), channel());
    let at = Held { gates: Some((reached, Mutex::new(release))), _handle: None };
    std::thread::scope(|scope| {
        let let_go = let_go;
        scope.spawn(move || {
            let outcome = block_on(store.commit_rows(request("b", at))).unwrap();
            assert_eq!(outcome, RowsOutcome::Committed(ts(7)));
        });
        is_reached.recv().expect("the request is under way");
        let result = meanwhile();
        let_go.send(()).unwrap();
        result
    })
}

fn poll_once<T>(future: &mut BoxFuture<'_, T>) -> Poll<T> {
    let waker = futures::task::noop_waker();
    future.as_mut().poll(&mut Context::from_waker(&waker))
}

/// The versions that a read of rows `a` to `c` finds, by row or by scan.
fn read<'a>(
    table: &'a dyn Table,
    row: &'static str,
    scans: bool,
    above: Option<u64>,
) -> BoxFuture<'a, Vec<u64>> {
    let select = [PLAIN, NEWEST, MEMORY]
        .into_iter()
        .fold(Selection::default(), |select, family| select.family(family, TimeRange::ALL, 9));
    let select = Selection { above: above.map(ts), ..select };
    Box::pin(async move {
        let rows = if scans {
            let range = RowRange::row(row);
            table.scan(&range, &select, PageLimit::default()).await.unwrap().rows
        } else {
            vec![table.read_row(&RowKey::from(row), &select).await.unwrap()]
        };
        rows.iter().flat_map(|row| &row.cells).map(|cell| cell.timestamp.as_u64()).collect()
    })
}

#[test]
fn who_may_be_too_late_for_the_timestamp_waits_and_sees_the_whole() {
    for durability in [Durability::Buffered, Durability::Sync] {
        for scans in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (store, table) = open(dir.path(), durability);
            let mut late = while_held(Arc::new(store), || {
                for (row, above) in [("a", Some(9)), ("c", Some(9)), ("b", Some(5)), ("b", None)] {
                    let mut early = read(&*table, row, scans, above);
                    let found = poll_once(&mut early);
                    assert_eq!(found, Poll::Ready(Vec::new()), "row {row} above {above:?}");
                }
                for (row, s, shows) in
                    [("a", 9, true), ("b", 5, true), ("b", 6, false), ("b", 9, false)]
                {
                    let row = &RowKey::from(row);
                    let at =
                        Glance { row, qualifier: b"q", family: &NEWEST, guard: &MEMORY, s: ts(s) };
                    let glanced = table.glance(at).unwrap();
                    assert_eq!(glanced == Glanced::Absent, shows, "row {row} at {s}: {glanced:?}");
                }
                let mut late = [6, 7, 9].map(|above| read(&*table, "b", scans, Some(above)));
                for (index, read) in late.iter_mut().enumerate() {
                    assert!(poll_once(read).is_pending(), "reader {index}");
                }
                late
            });
            for read in &mut late {
                assert_eq!(block_on(read), [7, 7, 7], "{durability:?}, scans: {scans}");
            }
            assert_eq!(block_on(read(&*table, "b", scans, None)), [7, 7, 7]);
        }
    }
}

#[test]
fn a_request_whose_caller_has_gone_may_be_the_last_to_hold_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(dir.path(), Durability::Buffered);
    let store = Arc::new(store);
    while_held(store.clone(), || {
        let at = Held { gates: None, _handle: Some(table.clone()) };
        // Polled once, and dropped.
        let given_up = pin!(store.commit_rows(request("c", at))).now_or_never();
        assert!(given_up.is_none(), "it waits behind the other");
        drop((store, table));
    });
    // The last holder closes the store, on whichever thread it is. Until then the directory is
    // in use.
    let since = Instant::now();
    let (_store, table) = loop {
        match FjallStore::open(dir.path(), crate::options(Durability::Buffered)) {
            Err(Error::InUse { .. }) if since.elapsed() < Duration::from_secs(20) => {
                std::thread::yield_now();
            }
            opened => break reopened(opened.unwrap()),
        }
    };
    for row in ["b", "c"] {
        assert_eq!(block_on(read(&*table, row, false, None)), [7, 7, 7], "row {row}");
    }
}

fn reopened(store: FjallStore) -> (FjallStore, Arc<dyn Table>) {
    let table = block_on(store.open_table("t", &crate::schema())).unwrap();
    (store, table)
}
