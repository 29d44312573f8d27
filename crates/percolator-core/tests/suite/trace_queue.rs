//! Tests the way of an entry of the trace: which cascades are kept, what is counted, and how the
//! entries are found again.

use std::time::Duration;

use percolator_core::{Batch, Client, Registration, Sampling, Side, Table, Timestamp, Why};

use crate::faults::{Fault, Op};
use crate::notifications::one_thread;
use crate::trace::{CHANGED, QUEUE, TABLE, Takes, clients, names, step, traced};
use crate::world::{A, B, BAL, World, run, set};

/// Writes a cell and notifies a column of its row.
async fn notify(client: &Client, table: &Table, row: &str, value: &str) -> Timestamp {
    let mut tx = client.begin().await.unwrap();
    tx.set(table, row, &A, value.to_owned()).unwrap();
    tx.notify(table, row, &CHANGED).unwrap();
    tx.commit().await.unwrap()
}

/// A newer change of a cascade that is not kept hits the same cell before the observer runs.
#[test]
fn a_run_is_kept_if_any_change_that_it_handles_is_kept() {
    for apart in [false, true] {
        run(async |world| {
            let (loader, runner) = clients(&world, apart).await;
            let second = || vec![Registration::weak("second", "t", &CHANGED, step(B, None))];
            loader.observe(second(), one_thread()).await.unwrap().stop().await;
            let table = loader.table("t").await.unwrap();
            let mut changes = Vec::new();
            for n in 0..40 {
                let row = format!("r{n:02}");
                let old = notify(&loader, &table, &row, "1").await;
                changes.push((old, notify(&loader, &table, &row, "2").await, row));
            }
            let workers = runner.observe(second(), one_thread()).await.unwrap();
            loader.wait_idle(None).await.unwrap();
            world.sleep_ms(10_000).await;
            let at =
                async |row: &str, ts| loader.why(&table, row, &A, Some(ts)).await.unwrap().unwrap();
            let mut old_alone = 0;
            for (old, new, row) in &changes {
                let (old, new) = (at(row, *old).await, at(row, *new).await);
                let is_kept = |why: &Why| why.nodes[0].record.is_some();
                let runs = |why: &Why| names(why).contains(&("second", Side::Effect));
                assert_eq!(is_kept(&old), runs(&old), "{old:#?}");
                assert_eq!(is_kept(&old) || is_kept(&new), runs(&new), "{new:#?}");
                old_alone += usize::from(is_kept(&old) && !is_kept(&new));
            }
            assert!(old_alone > 2, "{old_alone}");
            workers.stop().await;
        });
    }
}

/// How often a client reads the trace for a run with so many causes, all of them kept.
async fn reads(world: &World, causes: usize) -> usize {
    let loader = world.client_with(traced(Sampling::All)).await;
    let runner = world.client_with(traced("1/4".parse().unwrap())).await;
    let batch = Batch { changes_max: 8, interval: Duration::from_millis(100) };
    let third = || vec![Registration::batched("third", "t", &QUEUE, batch, Takes)];
    loader.observe(third(), one_thread()).await.unwrap().stop().await;
    let table = loader.table("t").await.unwrap();
    for n in 0..causes {
        let mut tx = loader.begin().await.unwrap();
        tx.notify(&table, format!("r{n}"), &QUEUE).unwrap();
        tx.commit().await.unwrap();
        // The next one belongs to another bucket.
        for _ in 0..1_024 {
            loader.oracle().timestamp().await.unwrap();
        }
    }
    world.sleep_ms(1_000).await;
    world.store.clear_trace();
    let workers = runner.observe(third(), one_thread()).await.unwrap();
    loader.wait_idle(None).await.unwrap();
    world.sleep_ms(2_000).await;
    workers.stop().await;
    assert_eq!(runner.stats().observer_runs, 1);
    let reads = world.store.trace();
    reads.iter().filter(|request| request.op == Op::SystemRead && request.table == TABLE).count()
}

#[test]
fn one_kept_cause_is_enough_and_no_other_is_looked_up() {
    let one = run(async |world| reads(&world, 1).await);
    let four = run(async |world| reads(&world, 4).await);
    assert_eq!(one, four);
}

/// Commits changes of which nobody leaves a trace, and lets another client handle them.
async fn runs_of_unknown_causes(world: &World, runs: usize) -> Client {
    let (silent, runner) =
        (world.client().await, world.client_with(traced("1/4".parse().unwrap())).await);
    let first = vec![Registration::strong("first", "t", &BAL, step(A, None))];
    let workers = runner.observe(first, one_thread()).await.unwrap();
    let table = silent.table("t").await.unwrap();
    for n in 0..runs {
        set(&silent, &table, &[(&format!("r{n}"), "1")]).await;
    }
    silent.wait_idle(None).await.unwrap();
    workers.stop().await;
    runner
}

#[test]
fn what_is_held_back_when_a_client_is_closed_is_counted() {
    run(async |world| {
        let runner = runs_of_unknown_causes(&world, 3).await;
        runner.close().await;
        assert_eq!(runner.stats().trace_dropped, 3);
    });
}

#[test]
fn what_is_held_back_while_the_store_is_out_of_reach_is_counted() {
    for (fails, counted) in [(true, 3), (false, 0)] {
        run(async |world| {
            let times = if fails { usize::MAX } else { 0 };
            let refused = world.store.when(times, Fault::Fail, |request| request.table == TABLE);
            let runner = runs_of_unknown_causes(&world, 3).await;
            world.sleep_ms(7_000).await;
            assert_eq!(runner.stats().trace_dropped, counted);
            refused.release();
        });
    }
}

#[test]
fn what_waits_behind_a_write_that_does_not_end_is_counted_when_a_client_is_closed() {
    run(async |world| {
        let client = world.client_with(traced(Sampling::All)).await;
        let table = client.table("t").await.unwrap();
        let held = world.store.when(1, Fault::HoldReply, |request| request.table == TABLE);
        set(&client, &table, &[("r", "1")]).await;
        held.arrived().await;
        set(&client, &table, &[("r", "2")]).await;
        set(&client, &table, &[("r", "3")]).await;
        client.close().await;
        assert_eq!(client.stats().trace_dropped, 2);
        held.release();
    });
}
