//! Tests observers that are paused and resumed (H75).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator_core::{
    Batch, BatchObserver, Change, Client, Column, Registration, Result, Table, Transaction,
    WorkerOptions, Workers,
};

use crate::notifications::{COUNT, one_thread};
use crate::world::{A, B, BAL, counting, get_column, run_both, set};

const TODO: Column = Column::literal("f:todo");

async fn work(client: &Client, observers: &[(&str, Column)]) -> Workers {
    let strong = |(name, counter): &(&str, Column)| {
        Registration::strong(*name, "t", &BAL, counting(counter.clone()))
    };
    client.observe(observers.iter().map(strong).collect(), one_thread()).await.unwrap()
}

async fn counts(client: &Client, table: &Table, column: &Column, row: &str) -> Option<String> {
    get_column(client, table, row, column).await
}

/// One client has the workers, another pauses and resumes, and a third writes.
#[test]
fn h75_what_changes_during_a_pause_is_one_run_after_it() {
    run_both(async |world| {
        let (working, pausing) = (world.client().await, world.client().await);
        let writing = world.client().await;
        let table = working.table("t").await.unwrap();
        let workers = work(&working, &[("o", COUNT)]).await;
        set(&writing, &table, &[("r", "1")]).await;
        working.wait_idle(None).await.unwrap();
        assert_eq!(pausing.pause_observer("o").await.unwrap(), 1);
        for value in ["2", "3", "4"] {
            set(&writing, &table, &[("r", value), ("s", value)]).await;
            world.sleep_ms(5_000).await;
        }
        // No worker does anything for these changes, and no timestamp is taken.
        let before = world.oracle.peek().await.unwrap();
        world.sleep_ms(60_000).await;
        assert_eq!(world.oracle.peek().await.unwrap(), before);
        let report = pausing.wait_idle(None).await.unwrap();
        assert!(report.idle && report.paused.len() == 1, "{report:?}");
        let backlog = &pausing.backlog().await.unwrap()[0];
        assert_eq!((backlog.cells, &backlog.paused), (2, &vec!["o".to_owned()]));
        assert_eq!(counts(&writing, &table, &COUNT, "r").await.as_deref(), Some("1"));
        assert_eq!(counts(&writing, &table, &COUNT, "s").await, None);

        assert_eq!(pausing.resume_observer("o").await.unwrap(), 1);
        let report = pausing.wait_idle(None).await.unwrap();
        assert!(report.idle && report.paused.is_empty(), "{report:?}");
        assert_eq!(counts(&writing, &table, &COUNT, "r").await.as_deref(), Some("2"));
        assert_eq!(counts(&writing, &table, &COUNT, "s").await.as_deref(), Some("1"));
        assert!(pausing.backlog().await.unwrap().is_empty());
        workers.stop().await;
    });
}

/// A pause survives restarts: registering the observer again does not end it.
#[test]
fn h75_a_pause_survives_the_workers() {
    run_both(async |world| {
        let first = world.client().await;
        let table = first.table("t").await.unwrap();
        work(&first, &[("o", COUNT)]).await.stop().await;
        first.pause_observer("o").await.unwrap();
        let second = world.client().await;
        let workers = work(&second, &[("o", COUNT)]).await;
        set(&second, &table, &[("r", "1")]).await;
        world.sleep_ms(10_000).await;
        assert_eq!(counts(&second, &table, &COUNT, "r").await, None);
        assert_eq!(second.paused_observers().await.unwrap()[0].observer, "o");
        // The client that has the workers resumes.
        second.resume_observer("o").await.unwrap();
        second.wait_idle(None).await.unwrap();
        assert_eq!(counts(&second, &table, &COUNT, "r").await.as_deref(), Some("1"));
        assert_eq!(second.pause_observer("nobody").await.unwrap(), 0);
        workers.stop().await;
    });
}

/// A paused observer shares its column with another one. The other runs once, and clears
/// nothing.
#[test]
fn h75_other_observers_of_the_column_go_on_and_clear_nothing() {
    for together in [true, false] {
        run_both(async |world| {
            let (one, other) = (world.client().await, world.client().await);
            let table = one.table("t").await.unwrap();
            let both = [("a", A), ("b", B)];
            let workers = if together {
                vec![work(&one, &both).await]
            } else {
                vec![work(&one, &both[..1]).await, work(&other, &both[1..]).await]
            };
            one.pause_observer("a").await.unwrap();
            set(&one, &table, &[("r", "1")]).await;
            let report = other.wait_idle(None).await.unwrap();
            let paused: Vec<&str> = report.paused.iter().map(|p| &*p.observer).collect();
            assert!(report.idle && paused == ["a"], "{report:?}");
            // Workers visit the resting cell less and less often.
            world.sleep_ms(60_000).await;
            let begun = one.stats().begun;
            world.sleep_ms(60_000).await;
            assert!(one.stats().begun - begun <= 2, "{} transactions", one.stats().begun - begun);
            let value = async |column: Column| counts(&one, &table, &column, "r").await;
            assert_eq!((value(A).await, value(B).await.as_deref()), (None, Some("1")));
            assert_eq!(one.backlog().await.unwrap()[0].cells, 1);
            // `wait_idle` waits for a change that the other observer still has to handle.
            set(&one, &table, &[("r", "2")]).await;
            assert!(other.wait_idle(None).await.unwrap().idle);
            assert_eq!(value(B).await.as_deref(), Some("2"));

            other.resume_observer("a").await.unwrap();
            assert!(other.wait_idle(None).await.unwrap().paused.is_empty());
            let after = (value(A).await, value(B).await);
            assert_eq!(after, (Some("1".to_owned()), Some("2".to_owned())));
            assert!(one.backlog().await.unwrap().is_empty());
            for workers in workers {
                workers.stop().await;
            }
        });
    }
}

struct Export(Arc<Mutex<Vec<String>>>);

impl BatchObserver for Export {
    async fn observe(&self, _tx: &mut Transaction, changes: &[Change]) -> Result<()> {
        self.0.lock().unwrap().extend(changes.iter().map(|change| change.row.to_string()));
        Ok(())
    }
}

/// A batching observer pauses. So do two weak observers, which share a column and pause
/// together.
#[test]
fn h75_weak_observers_of_a_column_and_batches_pause() {
    run_both(async |world| {
        let (working, pausing) = (world.client().await, world.client().await);
        let table = working.table("t").await.unwrap();
        let exported = Arc::new(Mutex::new(Vec::new()));
        let batch = Batch { changes_max: 10, interval: Duration::from_millis(100) };
        let registrations = vec![
            Registration::weak("a", "t", &TODO, counting(A)),
            Registration::weak("b", "t", &TODO, counting(B)),
            Registration::batched("export", "t", &COUNT, batch, Export(exported.clone())),
        ];
        let workers = working.observe(registrations, WorkerOptions::default()).await.unwrap();
        world.sleep_ms(1_000).await;
        for name in ["a", "export"] {
            pausing.pause_observer(name).await.unwrap();
        }
        let notify = async || {
            let mut tx = working.begin().await.unwrap();
            tx.notify(&table, "r", &TODO).unwrap();
            tx.notify(&table, "r", &COUNT).unwrap();
            tx.commit().await.unwrap();
        };
        notify().await;
        world.sleep_ms(20_000).await;
        let report = pausing.wait_idle(None).await.unwrap();
        let paused: Vec<&str> = report.paused.iter().map(|p| &*p.observer).collect();
        assert_eq!(paused, ["export", "a", "b"]);
        assert_eq!(counts(&working, &table, &B, "r").await, None);
        assert!(exported.lock().unwrap().is_empty());

        for name in ["a", "export"] {
            pausing.resume_observer(name).await.unwrap();
        }
        assert!(pausing.wait_idle(None).await.unwrap().paused.is_empty());
        for column in [&A, &B] {
            assert_eq!(counts(&working, &table, column, "r").await.as_deref(), Some("1"));
        }
        assert_eq!(*exported.lock().unwrap(), ["r"]);
        workers.stop().await;
    });
}
