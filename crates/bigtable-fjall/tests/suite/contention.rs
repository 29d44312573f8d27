//! Tests many callers at the same time: groups, the order of changes to a row, and callers
//! that drop their requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::scope;

use bigtable::{ConditionalMutation, Mutation, Probe, RowMutation, TimeRange};
use bigtable_fjall::Durability;
use futures::executor::block_on;
use futures::future::join_all;

use crate::{EACH, NEWEST, PLAIN, contents, open, set, ts};

#[test]
fn groups_are_whole() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let (_store, table) = open(dir.path(), durability);
        scope(|scope| {
            for thread in 0..16 {
                let table = &*table;
                scope.spawn(move || {
                    for row in 0..8 {
                        // Two threads write to the same row.
                        let row = format!("{}/{row}", thread / 2);
                        let sets = EACH.iter().map(|f| set(f, thread, "v")).collect();
                        let request = RowMutation { mutations: sets, ..RowMutation::new(row) };
                        block_on(table.mutate_row(request)).unwrap();
                    }
                });
            }
        });
        let rows = contents(&*table);
        assert_eq!(rows.len(), 64, "{durability:?}");
        assert!(rows.iter().all(|row| row.cells.len() == 8), "{durability:?}: {rows:?}");
    }
}

#[test]
fn batches_of_several_callers() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open(dir.path(), Durability::Buffered);
    let won = AtomicU64::new(0);
    scope(|scope| {
        for thread in 0..4 {
            let (table, won) = (&*table, &won);
            scope.spawn(move || {
                let lock = |row: u64| ConditionalMutation {
                    predicate: vec![Probe::new(NEWEST, "q", TimeRange::ALL)],
                    otherwise: vec![set(&NEWEST, thread, "v"), set(&PLAIN, thread, "v")],
                    ..ConditionalMutation::new(format!("{row}"))
                };
                // All threads request all rows, and each row twice.
                let requests = (0..1000).map(|n| lock(n % 500)).collect();
                for result in block_on(table.check_and_mutate_rows(requests)) {
                    won.fetch_add(u64::from(!result.unwrap()), Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(won.into_inner(), 500);
    assert!(contents(&*table).iter().all(|row| row.cells.len() == 2));
}

#[test]
fn callers_may_go_away() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(dir.path(), Durability::Buffered);
    scope(|scope| {
        for thread in 0..4 {
            let table = &*table;
            scope.spawn(move || {
                for n in 0..200 {
                    let request = RowMutation::new(format!("{thread}/{n}"))
                        .mutation(set(&PLAIN, 1, "v"))
                        .mutation(Mutation::delete(PLAIN, "q", TimeRange::at(ts(2))));
                    let mut call = table.mutate_row(request);
                    if n % 2 == 0 {
                        block_on(call).unwrap();
                    } else {
                        // The call is polled once and dropped. Its request is committed,
                        // waiting, or being committed.
                        let waker = std::task::Waker::noop();
                        let polled = call.as_mut().poll(&mut Context::from_waker(waker));
                        assert!(!matches!(polled, Poll::Ready(Err(_))), "{polled:?}");
                    }
                }
            });
        }
    });
    // Closing the store commits the waiting requests.
    drop((store, table));
    let (_store, table) = open(dir.path(), Durability::Buffered);
    assert_eq!(contents(&*table).len(), 800);
}

#[test]
fn one_thread_with_many_calls() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open(dir.path(), Durability::Sync);
    let calls = (0..500_u64).map(|n| {
        table.mutate_row(RowMutation::new(format!("{}", n % 50)).mutation(set(&PLAIN, n, "v")))
    });
    for result in block_on(join_all(calls)) {
        result.unwrap();
    }
    let rows = contents(&*table);
    assert_eq!(rows.len(), 50);
    assert!(rows.iter().all(|row| row.cells.len() == 10));
}
