//! Tests changes that observers must skip: because they keep failing on them, or because the
//! transaction says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use percolator_core::{
    Client, Column, Error, Registration, Result, SetAside, Table, WorkerOptions, Workers,
};

use crate::notifications::{COUNT, one_thread};
use crate::world::{
    A, B, BAL, World, add, counting, get_column, is_aborted, observer, run_both, set,
};

const TODO: Column = Column::literal("f:todo");

/// An observer that fails while `fails` is set, and counts otherwise.
fn failing(name: &str, column: &Column, counter: Column, fails: &Arc<AtomicBool>) -> Registration {
    let fails = fails.clone();
    let run = observer(move |tx, change| {
        let (fails, counter) = (fails.load(SeqCst), counter.clone());
        Box::pin(async move {
            if fails {
                return Err(Error::application("cannot parse"));
            }
            add(tx, &change.table, &change.row, &counter, 1).await
        })
    });
    if *column == TODO {
        Registration::weak(name, "t", column, run)
    } else {
        Registration::strong(name, "t", column, run)
    }
}

async fn observe(client: &Client, registrations: Vec<Registration>) -> Workers {
    let options = WorkerOptions { failures_max: 2, ..one_thread() };
    client.observe(registrations, options).await.unwrap()
}

async fn set_aside(client: &Client) -> Vec<SetAside> {
    client.wait_idle(None).await.unwrap().set_aside
}

#[test]
fn a_skipped_change_is_acknowledged_and_the_next_one_runs() {
    run_both(async |world: World| {
        let (client, operator) = (world.client().await, world.client().await);
        let table = client.table("t").await.unwrap();
        let fails = Arc::new(AtomicBool::new(true));
        let workers = observe(&client, vec![failing("o", &BAL, COUNT, &fails)]).await;
        set(&client, &table, &[("r", "1")]).await;
        let aside = set_aside(&client).await;
        fails.store(false, SeqCst);
        assert!(operator.skip(&aside[0]).await.unwrap());
        assert!(!operator.skip(&aside[0]).await.unwrap(), "it is not there any more");
        let report = operator.wait_idle(None).await.unwrap();
        assert!(report.idle && report.set_aside.is_empty(), "{report:?}");
        assert!(operator.backlog().await.unwrap().is_empty());
        assert_eq!(get_column(&client, &table, "r", &COUNT).await, None);
        set(&client, &table, &[("r", "2")]).await;
        client.wait_idle(None).await.unwrap();
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("1"));
        workers.stop().await;
    });
}

/// A change that came after the failure was never tried, so it must not be skipped.
#[test]
fn a_change_that_is_newer_than_the_failure_is_not_skipped() {
    run_both(async |world: World| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let fails = Arc::new(AtomicBool::new(true));
        let workers = observe(&client, vec![failing("o", &BAL, COUNT, &fails)]).await;
        set(&client, &table, &[("r", "1")]).await;
        let aside = set_aside(&client).await;
        workers.stop().await;
        fails.store(false, SeqCst);
        set(&client, &table, &[("r", "2")]).await;
        assert!(client.skip(&aside[0]).await.unwrap());
        let workers = observe(&client, vec![failing("o", &BAL, COUNT, &fails)]).await;
        client.wait_idle(None).await.unwrap();
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("1"));
        assert!(client.set_aside().await.unwrap().is_empty());
        workers.stop().await;
    });
}

/// Two observers failed on one change. It is skipped for one, and stays set aside for the
/// other.
#[test]
fn a_change_is_skipped_for_one_observer_alone() {
    run_both(async |world: World| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let fails = Arc::new(AtomicBool::new(true));
        let registrations = vec![
            failing("one", &BAL, A, &fails),
            failing("two", &BAL, B, &fails),
            Registration::strong("sound", "t", &BAL, counting(COUNT)),
        ];
        let workers = observe(&client, registrations).await;
        set(&client, &table, &[("r", "1")]).await;
        let aside = set_aside(&client).await;
        assert_eq!(aside.len(), 2);
        assert!(client.skip(&aside[0]).await.unwrap());
        let left = set_aside(&client).await;
        assert_eq!(left, aside[1..]);
        fails.store(false, SeqCst);
        assert!(client.replay_one(&left[0]).await.unwrap());
        assert!(!client.replay_one(&left[0]).await.unwrap());
        assert!(set_aside(&client).await.is_empty());
        let value = async |column| get_column(&client, &table, "r", column).await;
        let values = [value(&A).await, value(&B).await, value(&COUNT).await];
        assert_eq!(values, [None, Some("1".to_owned()), Some("1".to_owned())]);
        workers.stop().await;
    });
}

/// A weak notification is not acknowledged, but dropped.
#[test]
fn a_weak_notification_is_skipped() {
    run_both(async |world: World| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let fails = Arc::new(AtomicBool::new(true));
        let workers = observe(&client, vec![failing("o", &TODO, COUNT, &fails)]).await;
        let mut tx = client.begin().await.unwrap();
        tx.notify(&table, "r", &TODO).unwrap();
        tx.commit().await.unwrap();
        let aside = set_aside(&client).await;
        fails.store(false, SeqCst);
        assert!(client.skip(&aside[0]).await.unwrap());
        assert!(set_aside(&client).await.is_empty());
        assert_eq!(get_column(&client, &table, "r", &COUNT).await, None);
        workers.stop().await;
    });
}

/// Writes a cell in a transaction that skips observers.
async fn set_unobserved(client: &Client, table: &Table, row: &str, value: &str) -> Result<()> {
    let set = async |mut tx: percolator_core::Attempt| {
        tx.set(table, row, &BAL, value.to_owned())?;
        tx.skip_observers();
        Ok(())
    };
    client.transact(set).await
}

/// An acknowledgement that hides later changes loses them (H50).
#[test]
fn h50_a_change_after_one_that_skips_observers_runs_its_observer() {
    run_both(async |world: World| {
        let (client, other) = (world.client().await, world.client().await);
        let table = client.table("t").await.unwrap();
        let counting = || vec![Registration::strong("o", "t", &BAL, counting(COUNT))];
        let workers = client.observe(counting(), one_thread()).await.unwrap();
        set_unobserved(&other, &table, "r", "1").await.unwrap();
        set_unobserved(&client, &table, "s", "1").await.unwrap();
        assert!(client.wait_idle(None).await.unwrap().idle);
        assert_eq!(world.notified(&table, "r", &BAL).await, 0);
        // The change of another client is newer, and so is a deletion.
        set(&other, &table, &[("r", "2")]).await;
        client.wait_idle(None).await.unwrap();
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("1"));
        let delete = async |mut tx: percolator_core::Attempt| tx.delete(&table, "r", &BAL);
        other.transact(delete).await.unwrap();
        client.wait_idle(None).await.unwrap();
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("2"));
        // A change that its observer has not handled yet is overwritten.
        workers.stop().await;
        set(&other, &table, &[("s", "2")]).await;
        set_unobserved(&other, &table, "s", "3").await.unwrap();
        // The sweep for an observer that is registered again finds nothing, either.
        assert_eq!(client.retire_observer("o").await.unwrap(), 1);
        let workers = client.observe(counting(), one_thread()).await.unwrap();
        client.wait_idle(None).await.unwrap();
        assert_eq!(get_column(&client, &table, "s", &COUNT).await, None);
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("2"));
        let state = client.cell_state(&table, "s", &BAL).await.unwrap();
        let acked = state.moments.iter().find(|moment| !moment.acks.is_empty()).unwrap();
        assert_eq!(acked.acks[0].1, acked.timestamp, "it acknowledges its own commit");
        workers.stop().await;
    });
}

/// Both are right: the transaction conflicts with a run that overlaps it, and with another
/// writer of its cell.
#[test]
fn a_transaction_that_skips_observers_conflicts_with_other_writers() {
    run_both(async |world: World| {
        let (client, other) = (world.client().await, world.client().await);
        let table = client.table("t").await.unwrap();
        let observers = vec![Registration::strong("o", "t", &BAL, counting(COUNT))];
        let workers = client.observe(observers, one_thread()).await.unwrap();
        let mut tx = client.begin().await.unwrap();
        tx.skip_observers();
        tx.set(&table, "r", &BAL, "1").unwrap();
        set(&other, &table, &[("r", "2")]).await;
        assert!(is_aborted(&tx.commit().await));
        client.wait_idle(None).await.unwrap();
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("1"));
        // The run of the observer writes its acknowledgement after the start of this one.
        set(&other, &table, &[("s", "1")]).await;
        let mut tx = client.begin().await.unwrap();
        tx.skip_observers();
        tx.set(&table, "s", &BAL, "2").unwrap();
        client.wait_idle(None).await.unwrap();
        assert!(is_aborted(&tx.commit().await));
        workers.stop().await;
    });
}

#[test]
fn acknowledgements_of_skipped_changes_count_as_cells() {
    run_both(async |world: World| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let observers = vec![Registration::strong("o", "t", &BAL, counting(COUNT))];
        let workers = client.observe(observers, one_thread()).await.unwrap();
        let max = percolator_core::TRANSACTION_CELLS_MAX;
        let mut tx = client.begin().await.unwrap();
        for row in 0..=max / 2 {
            tx.set(&table, format!("{row}"), &BAL, "").unwrap();
        }
        tx.skip_observers();
        let error = tx.commit().await.unwrap_err().to_string();
        assert!(error.contains("cells and acknowledgements"), "{error}");
        workers.stop().await;
    });
}
