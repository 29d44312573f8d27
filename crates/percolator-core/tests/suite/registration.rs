//! Tests registering and retiring observers, and `wait_idle` (H58, H59).

use std::time::Duration;

use percolator_core::{Client, Column, Error, Options, Registration, Result, Runtime};

use crate::faults::{Fault, NOTIFY, Op};
use crate::notifications::{COUNT, observe, one_thread, register};
use crate::world::{A, B, BAL, add, counting, get_column, observer, run_both, set, writing};

const CHANGED: Column = Column::literal("f:changed");

#[test]
fn h58_columns_are_strong_or_weak_and_misuse_is_refused_before_any_request() {
    run_both(async |world| {
        // The writer began before the observers were registered. It learns of them with its
        // next timestamp.
        let (client, worker) = (world.client().await, world.client().await);
        let table = client.table("t").await.unwrap();
        register(&worker, "strong").await;
        let weak = || Registration::weak("weak", "t", &CHANGED, counting(COUNT));
        worker.observe(vec![weak()], one_thread()).await.unwrap().stop().await;
        let mut tx = client.begin().await.unwrap();
        world.store.clear_trace();
        let invalid = |result: Result<()>| assert!(matches!(result, Err(Error::Invalid { .. })));
        invalid(tx.set(&table, "r", &CHANGED, "x"));
        invalid(tx.delete(&table, "r", &CHANGED));
        invalid(tx.notify(&table, "r", &BAL));
        invalid(tx.notify(&table, "r", &COUNT));
        assert!(world.store.trace().is_empty());
        tx.notify(&table, "r", &CHANGED).unwrap();
        let both = Registration::strong("both", "t", &CHANGED, counting(COUNT));
        assert!(client.observe(vec![both], one_thread()).await.is_err());
        let twice = client.observe(vec![weak(), weak()], one_thread()).await;
        assert!(twice.is_err());
        let before = client.observers().await.unwrap();
        for (table, name) in [("no/table", "o"), ("t", ""), ("t", "a/b"), ("percolator.x", "o")] {
            let wrong = Registration::strong(name, table, &BAL, counting(COUNT));
            assert!(client.observe(vec![wrong], one_thread()).await.is_err());
        }
        let long = Column::new("f".repeat(percolator_core::COLUMN_BYTES_MAX)).unwrap();
        let wrong = Registration::strong("o", "t", &long, counting(COUNT));
        assert!(client.observe(vec![wrong], one_thread()).await.is_err());
        assert_eq!(client.observers().await.unwrap(), before, "a mistake leaves no trace");
    });
}

#[test]
fn h59_a_writer_with_the_old_schema_is_not_missed() {
    // The writer asks for its commit timestamp before or after the observer is registered.
    for asks_before in [true, false] {
        run_both(async |world| {
            let (worker, writer) =
                (world.client().await, world.process(Options::default(), 0).await);
            let table = worker.table("t").await.unwrap();
            let tx = writing(&writer.client, &table, &[("p", "1"), ("s", "1")]).await;
            let prewritten = tx.prewrite().await.unwrap();
            let held = world.store.on(Op::CommitPrimary, "p", 1, Fault::Hold);
            let mut prewritten = Some(prewritten);
            let mut commit = || world.beside(prewritten.take().unwrap().commit_primary());
            let early = asks_before.then(&mut commit);
            let (worker_, observed) = (worker.clone(), async |worker: Client| {
                observe(&worker, "o", counting(COUNT)).await
            });
            let registered = world.beside(async move { observed(worker_).await });
            world.sleep_ms(1_000).await;
            let commit = early.unwrap_or_else(&mut commit);
            held.arrived().await;
            held.release();
            // The writer dies before its secondaries are committed.
            drop(commit.await.unwrap().unwrap());
            writer.crash();
            let workers = registered.await.unwrap();
            worker.wait_idle(None).await.unwrap();
            for row in ["p", "s"] {
                let count = get_column(&worker, &table, row, &COUNT).await;
                assert_eq!(count.as_deref(), Some("1"), "{row}, {asks_before}");
            }
            workers.stop().await;
        });
    }
}

#[test]
fn h59_registering_finds_what_was_written_before_also_after_a_crash() {
    for crash_at in [None, Some("oracle"), Some("sweep")] {
        run_both(async |world| {
            let (client, crashing) =
                (world.client().await, world.process(Options::default(), 0).await);
            let table = client.table("t").await.unwrap();
            let rows: Vec<String> = (0..20).map(|n| format!("{n:02}")).collect();
            for row in &rows {
                set(&client, &table, &[(row, "1")]).await;
            }
            if let Some(point) = crash_at {
                let held = world.store.when(1, Fault::Hold, move |request| match point {
                    "oracle" => request.op == Op::System && request.row == "oracle".into(),
                    _ => request.op == Op::Notify && request.row == "07".into(),
                });
                let dying = crashing.client.clone();
                crashing.spawn(async move { register(&dying, "o").await });
                held.arrived().await;
                crashing.crash();
            }
            let workers = observe(&client, "o", counting(COUNT)).await;
            client.wait_idle(None).await.unwrap();
            for row in &rows {
                let count = get_column(&client, &table, row, &COUNT).await;
                assert_eq!(count.as_deref(), Some("1"), "{row}, {crash_at:?}");
            }
            workers.stop().await;
            // Registering again finds nothing: everything is acknowledged.
            observe(&client, "o", counting(COUNT)).await.stop().await;
            assert_eq!(world.cells(&table, NOTIFY).await, 0);
        });
    }
}

/// The schema is stored, but the oracle does not carry its version because of the crash. The
/// next client that registers must raise the version before it sweeps.
#[test]
fn h59_registering_after_a_crash_raises_the_version_before_the_sweep() {
    run_both(async |world| {
        let (writer, crashing) = (world.client().await, world.process(Options::default(), 0).await);
        let table = writer.table("t").await.unwrap();
        let old_schema = writing(&writer, &table, &[("r", "1")]).await;
        let raise = world.store.on(Op::System, "oracle", 1, Fault::Hold);
        let dying = crashing.client.clone();
        crashing.spawn(async move { register(&dying, "o").await });
        raise.arrived().await;
        crashing.crash();
        // The sweep is over, but this is not stored yet.
        let swept = world.store.on(Op::System, "observers", 1, Fault::Hold);
        let client = world.client().await;
        let registering = client.clone();
        let workers =
            world.beside(async move { observe(&registering, "o", counting(COUNT)).await });
        swept.arrived().await;
        old_schema.commit().await.unwrap();
        swept.release();
        let workers = workers.await.unwrap();
        client.wait_idle(None).await.unwrap();
        let count = get_column(&client, &table, "r", &COUNT).await;
        assert_eq!(count.as_deref(), Some("1"));
        workers.stop().await;
    });
}

#[test]
fn a_retired_observer_leaves_nothing_to_wait_for() {
    run_both(async |world| {
        let (client, writer) = (world.client().await, world.client().await);
        let table = client.table("t").await.unwrap();
        register(&client, "o").await;
        set(&writer, &table, &[("a", "1"), ("b", "1")]).await;
        let old_schema = writing(&writer, &table, &[("c", "1")]).await;
        assert!(!client.wait_idle(Some(Duration::from_secs(1))).await.unwrap().idle);
        let prewritten = old_schema.prewrite().await.unwrap();
        assert_eq!(client.retire_observer("o").await.unwrap(), 1);
        assert_eq!(client.retire_observer("o").await.unwrap(), 0);
        prewritten.commit_primary().await.unwrap();
        assert!(client.wait_idle(Some(Duration::from_secs(1))).await.unwrap().idle);
        assert!(world.cells(&table, NOTIFY).await <= 1);
        // An observer that is registered again finds all of them.
        let workers = observe(&client, "o", counting(COUNT)).await;
        client.wait_idle(None).await.unwrap();
        for row in ["a", "b", "c"] {
            assert_eq!(get_column(&client, &table, row, &COUNT).await.as_deref(), Some("1"));
        }
        workers.stop().await;
    });
}

#[test]
fn wait_idle_waits_for_work_in_flight_and_for_its_consequences() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let runtime = world.runtime.clone();
        let slow = observer(move |tx, change| {
            let sleep = runtime.sleep(Duration::from_secs(5));
            Box::pin(async move {
                sleep.await;
                add(tx, &change.table, &change.row, &A, 1).await
            })
        });
        let registrations = vec![
            Registration::strong("first", "t", &BAL, slow),
            Registration::strong("second", "t", &A, counting(B)),
        ];
        let workers = client.observe(registrations, one_thread()).await.unwrap();
        assert!(client.wait_idle(None).await.unwrap().idle);
        set(&client, &table, &[("r", "1")]).await;
        let early = client.wait_idle(Some(Duration::from_secs(1))).await.unwrap();
        assert!(!early.idle);
        assert_eq!(client.backlog().await.unwrap()[0].cells, 1);
        assert!(client.wait_idle(None).await.unwrap().idle);
        assert_eq!(get_column(&client, &table, "r", &B).await.as_deref(), Some("1"));
        assert!(client.backlog().await.unwrap().is_empty());
        workers.stop().await;
    });
}
