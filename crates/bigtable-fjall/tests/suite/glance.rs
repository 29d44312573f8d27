//! Tests glances during writes and collection: each glance returns the same as a read.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use bigtable::{Glance, Glanced, RowKey, RowMutation};

use super::*;

/// A glance at the newest version of a column on disk, guarded by a column in memory.
fn at(row: &RowKey, s: u64) -> Glance<'_> {
    Glance { row, qualifier: b"q", family: &EACH[1], guard: &EACH[2], s: ts(s) }
}

#[test]
fn h35_a_glance_below_the_floor_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(dir.path(), Durability::Buffered);
    block_on(table.mutate_row(RowMutation::new("r").mutation(set(&NEWEST, 3, "v")))).unwrap();
    block_on(store.raise_floor(ts(10))).unwrap();
    let row = "r".into();
    assert!(matches!(table.glance(at(&row, 5)), Err(Error::TooOld { .. })));
    assert!(matches!(table.glance(at(&row, 10)), Ok(Glanced::Newest(..))));
}

/// Glances at each commit timestamp as soon as it is issued, until `over` is set.
fn look(table: &dyn Table, issued: &AtomicU64, over: &AtomicBool) {
    let row = "r".into();
    while !over.load(SeqCst) {
        let s = issued.load(SeqCst);
        let found = match table.glance(at(&row, s)).expect("the store answers a glance") {
            Glanced::Nothing => continue,
            Glanced::Absent => 0,
            Glanced::Newest(at, _) => at.as_u64(),
        };
        if found != s {
            over.store(true, SeqCst);
        }
        assert_eq!(found, s, "a commit is missed");
    }
}

#[test]
fn h27_a_glance_misses_no_commit() {
    const COMMITS: u64 = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open(dir.path(), Durability::Buffered);
    let (issued, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| look(&*table, &issued, &over));
        }
        for n in 1..COMMITS {
            if over.load(SeqCst) {
                break;
            }
            let lock = RowMutation::new("r").mutation(set(&MEMORY, 2 * n, "lock"));
            block_on(table.mutate_row(lock)).unwrap();
            issued.store(2 * n + 1, SeqCst);
            // The write replaces the lock in one step, so a glance at its timestamp sees one
            // of the two.
            let unlock = Mutation::delete(MEMORY, "q", TimeRange::at(ts(2 * n)));
            let write = set(&NEWEST, 2 * n + 1, "w");
            let commit = RowMutation::new("r").mutation(write).mutation(unlock);
            block_on(table.mutate_row(commit)).unwrap();
        }
        over.store(true, SeqCst);
    });
}
