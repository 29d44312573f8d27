//! Tests commits whose callers drop the future: a timeout fires, or a client of the service
//! hangs up.

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, join_all, select};
use percolator_core::{Column, Options, Registration, Runtime, Secondaries};

use crate::faults::{Fault, LOCK, Op, Request};
use crate::notifications::one_thread;
use crate::world::{get, observer, run, run_both, set, writing};

/// The commit waits for different things when it is dropped. In each case it must end, and no
/// other client may wait for its locks.
#[test]
fn h72_a_commit_whose_caller_lets_go_is_finished() {
    for (op, row) in
        [(Op::Prewrite, "p"), (Op::Prewrite, "s"), (Op::CommitPrimary, "p"), (Op::Commit, "s")]
    {
        for fault in [Fault::Hold, Fault::HoldReply] {
            run_both(async |world| {
                let options = Options { secondaries: Secondaries::Awaited, ..Options::default() };
                let owner = world.process(options, 0).await.client;
                let other = world.client().await;
                let table = other.table("t").await.unwrap();
                let held = world.store.on(op, row, 1, fault);
                let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
                let commit = Box::pin(tx.commit());
                let Either::Right(((), commit)) = select(commit, pin!(held.arrived())).await else {
                    panic!("{op:?} {row} was not held");
                };
                drop(commit);
                held.release();
                world.sleep_ms(10).await;
                let before = world.runtime.now();
                for row in ["p", "s"] {
                    let found = get(&other, &table, row).await;
                    assert_eq!(found.as_deref(), Some("1"), "{op:?} {row} {fault:?}");
                }
                let waited = world.runtime.now() - before;
                assert!(waited < Duration::from_millis(10), "{op:?} {row} {fault:?}: {waited:?}");
                assert_eq!(world.cells(&table, LOCK).await, 0);
                assert_eq!(owner.stats().committed, 1);
            });
        }
    }
}

/// Nothing of a dead process is finished.
#[test]
fn h72_a_process_that_dies_takes_its_commits_along() {
    run(async |world| {
        let (owner, other) = (world.process(Options::default(), 0).await, world.client().await);
        let table = other.table("t").await.unwrap();
        let held = world.store.on(Op::CommitPrimary, "p", 1, Fault::Hold);
        let tx = writing(&owner.client, &table, &[("p", "1"), ("s", "1")]).await;
        owner.spawn(async move { drop(tx.commit().await) });
        held.arrived().await;
        owner.crash();
        held.release();
        world.sleep_ms(10).await;
        assert_eq!(world.cells(&table, LOCK).await, 2, "it was finished by a dead process");
        assert_eq!(get(&other, &table, "s").await, None);
    });
}

/// However many callers drop their futures at once, each commit is finished.
#[test]
fn a_thousand_commits_whose_callers_let_go_are_finished() {
    run(async |world| {
        let owner = world.process(Options::default(), 0).await.client;
        let other = world.client().await;
        let table = other.table("t").await.unwrap();
        let rows: Vec<String> = (0..1000).map(|n| format!("{n:04}")).collect();
        let prewrites = |request: &Request| request.op == Op::Prewrite;
        let held = world.store.when(usize::MAX, Fault::Hold, prewrites);
        let write = async |row: &String| {
            let second = format!("{row}-second");
            writing(&owner, &table, &[(row, "1"), (&second, "1")]).await
        };
        let written = join_all(rows.iter().map(write)).await;
        // Poll each commit up to its first wait.
        let mut commits: Vec<_> = written.into_iter().map(|tx| Box::pin(tx.commit())).collect();
        let ended = commits.iter_mut().filter_map(|commit| commit.now_or_never()).count();
        drop(commits);
        held.release();
        world.sleep_ms(100).await;
        assert_eq!(ended, 0, "all were under way");
        let before = world.runtime.now();
        for row in &rows {
            assert_eq!(get(&other, &table, row).await.as_deref(), Some("1"), "{row}");
        }
        assert!(world.runtime.now() - before < Duration::from_secs(1));
        assert_eq!(world.cells(&table, LOCK).await, 0);
        assert_eq!(owner.stats().committed, 1000);
    });
}

/// A commit that waits for the oracle may hold the lock that all other commits wait for. It
/// must go on, however many others were dropped before it.
#[test]
fn h72_commits_that_wait_for_each_other_are_finished() {
    const COMMITS: usize = 600;
    run(async |world| {
        let owner = world.process(Options::default(), 0).await.client;
        let other = world.client().await;
        let table = other.table("t").await.unwrap();
        let rows: Vec<String> = (0..COMMITS).map(|n| format!("{n:04}")).collect();
        let write = async |row: &String| writing(&owner, &table, &[(row, "1")]).await;
        let written = join_all(rows.iter().map(write)).await;
        // The oracle has used up its window, and writing the next one takes a while.
        let held = world.store.when(usize::MAX, Fault::Hold, |request| request.op == Op::System);
        while world.oracle.timestamp().now_or_never().is_some() {}
        let mut commits: Vec<_> = written.into_iter().map(|tx| Box::pin(tx.commit())).collect();
        let ended = commits.iter_mut().filter_map(|commit| commit.now_or_never()).count();
        assert_eq!(ended, 0, "all wait for a timestamp");
        // The first commit writes the window. It is dropped last.
        commits.into_iter().rev().for_each(drop);
        held.release();
        world.sleep_ms(100).await;
        assert_eq!(owner.stats().committed, COMMITS as u64);
        assert_eq!(world.cells(&table, LOCK).await, 0);
    });
}

/// A transaction that only notifies has no locks. It must leave all of its notifications
/// nevertheless.
#[test]
fn h72_notifications_whose_sender_lets_go_are_all_left() {
    const SIGNAL: Column = Column::literal("signal");
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let nothing = observer(|_, _| Box::pin(async { Ok(()) }));
        let weak = Registration::weak("o", "t", &SIGNAL, nothing);
        client.observe(vec![weak], one_thread()).await.unwrap().stop().await;
        let failed = world.store.on(Op::Notify, "b", 1, Fault::Fail);
        let mut tx = client.begin().await.unwrap();
        for row in ["a", "b"] {
            tx.notify(&table, row, &SIGNAL).unwrap();
        }
        let mut commit = Box::pin(tx.commit());
        assert!((&mut commit).now_or_never().is_none());
        assert_eq!(failed.count(), 1, "it waits to try again");
        drop(commit);
        world.sleep_ms(1000).await;
        for row in ["a", "b"] {
            assert_eq!(world.notified(&table, row, &SIGNAL).await, 1, "{row}");
        }
        assert_eq!(client.stats().committed, 1);
    });
}

/// A future that was never polled has sent no request.
#[test]
fn a_commit_that_was_never_polled_does_nothing() {
    run(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("p", "0")]).await;
        let tx = writing(&client, &table, &[("p", "1"), ("s", "1")]).await;
        drop(tx.commit());
        world.sleep_ms(10).await;
        assert_eq!(get(&client, &table, "p").await.as_deref(), Some("0"));
    });
}

/// For example, the future of a branch of `select!` while another branch awaits.
#[test]
fn h77_a_commit_that_is_not_polled_is_finished() {
    for op in [Op::Prewrite, Op::CommitPrimary] {
        run_both(async |world| {
            let owner = world.process(Options::default(), 0).await.client;
            let other = world.client().await;
            let table = other.table("t").await.unwrap();
            let held = world.store.on(op, "p", 1, Fault::Hold);
            let tx = writing(&owner, &table, &[("p", "1"), ("s", "1")]).await;
            let commit = Box::pin(tx.commit());
            let Either::Right(((), commit)) = select(commit, pin!(held.arrived())).await else {
                panic!("{op:?} was not held");
            };
            held.release();
            let before = world.runtime.now();
            // The first begins while the commit has a lock, the second waits for its end.
            let _ = get(&other, &table, "p").await;
            assert!(owner.close_within(Duration::from_secs(60)).await.commits_left == 0);
            let waited = world.runtime.now() - before;
            assert!(waited < Duration::from_secs(3), "{op:?}: {waited:?}");
            assert_eq!(get(&other, &table, "s").await.as_deref(), Some("1"));
            // The caller gets the result, although a task has finished the work.
            let later = other.begin().await.unwrap().start_ts();
            assert!(commit.await.unwrap() < later);
        });
    }
}
