//! Observers that take long: their row locks are renewed (H73).

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator_core::{Observer, Registration, Runtime, WorkerOptions};

use crate::notifications::COUNT;
use crate::world::{BAL, World, get_column, observer, run_both, set};

const SECOND: Duration = Duration::from_secs(1);

/// When the runs of an observer began.
#[derive(Debug, Clone, Default)]
struct Began(Arc<Mutex<Vec<Duration>>>);

impl Began {
    fn times(&self) -> Vec<Duration> {
        self.0.lock().unwrap().clone()
    }
}

/// An observer that takes so long, and then counts its run in the changed row.
fn slow(world: &World, takes: Duration, began: &Began) -> impl Observer + use<> {
    let (runtime, began) = (world.runtime.clone(), began.clone());
    observer(move |tx, change| {
        began.0.lock().unwrap().push(runtime.now());
        let sleep = runtime.sleep(takes);
        let (table, row) = (change.table.clone(), change.row.clone());
        Box::pin(async move {
            sleep.await;
            let old = tx.get(&table, row.clone(), &COUNT).await?;
            let old: u32 = old.map_or(0, |old| String::from_utf8_lossy(&old).parse().unwrap());
            tx.set(&table, row, &COUNT, (old + 1).to_string())
        })
    })
}

/// Row locks that last for a second.
fn short_locks(threads: usize, run_max: Duration) -> WorkerOptions {
    WorkerOptions { threads, row_lock_lifetime: SECOND, run_max, ..WorkerOptions::default() }
}

/// The count in a row, once everything is done.
async fn counted(client: &percolator_core::Client, row: &str) -> String {
    assert!(client.wait_idle(Some(60 * SECOND)).await.unwrap().idle);
    let table = client.table("t").await.unwrap();
    get_column(client, &table, row, &COUNT).await.unwrap_or_default()
}

#[test]
fn h73_an_observer_that_outlasts_its_row_lock_runs_once() {
    run_both(async |world| {
        let (one, other) = (world.client().await, world.client().await);
        let table = one.table("t").await.unwrap();
        let began = Began::default();
        let mut workers = Vec::new();
        for client in [&one, &other] {
            let slow = Registration::strong("o", "t", BAL, slow(&world, 5 * SECOND, &began));
            let options = short_locks(2, 60 * SECOND);
            workers.push(client.observe(vec![slow], options).await.unwrap());
        }
        set(&one, &table, &[("a", "1")]).await;
        assert_eq!(counted(&one, "a").await, "1");
        assert_eq!(began.times().len(), 1, "{began:?}");
        let renewed = one.stats().row_locks_renewed + other.stats().row_locks_renewed;
        assert!((10..20).contains(&renewed), "three times a second, for five seconds: {renewed}");
        for workers in workers {
            workers.stop().await;
        }
    });
}

#[test]
fn h73_the_renewal_ends_with_the_longest_run_and_of_two_runs_one_commits() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let began = Began::default();
        let slow = Registration::strong("o", "t", BAL, slow(&world, 8 * SECOND, &began));
        let workers = client.observe(vec![slow], short_locks(2, 3 * SECOND)).await.unwrap();
        set(&client, &table, &[("a", "1")]).await;
        assert_eq!(counted(&client, "a").await, "1");
        let times = began.times();
        assert!(times.len() > 1, "nobody has the row for ever: {times:?}");
        let apart = times[1] - times[0];
        assert!(apart > 3 * SECOND && apart < 6 * SECOND, "{times:?}");
        workers.stop().await;
    });
}

/// A worker that was stopped in the middle of a run gives its row lock up.
#[test]
fn a_row_lock_goes_with_the_run_that_is_dropped() {
    run_both(async |world| {
        let (one, other) = (world.process(Default::default(), 0).await, world.client().await);
        let table = other.table("t").await.unwrap();
        let began = Began::default();
        let begin = |takes| Registration::strong("o", "t", BAL, slow(&world, takes, &began));
        let options = WorkerOptions { row_lock_lifetime: 600 * SECOND, ..short_locks(1, SECOND) };
        let first = one.client.observe(vec![begin(60 * SECOND)], options.clone()).await.unwrap();
        set(&one.client, &table, &[("a", "1")]).await;
        world.sleep_ms(100).await;
        assert_eq!(began.times().len(), 1);
        one.crash();
        drop((first, one));
        let second = other.observe(vec![begin(SECOND)], options).await.unwrap();
        assert_eq!(counted(&other, "a").await, "1");
        second.stop().await;
    });
}

/// Retried commits of the transaction of a batch hold the lock of the batch, too.
#[test]
fn h73_a_batch_that_outlasts_its_lock_is_delivered_once() {
    use percolator_core::{Batch, BatchObserver, Change, Column, Result, Transaction, async_trait};
    const CHANGED: Column = Column::literal("f:changed");

    struct Slow(percolator_core::testing::VirtualRuntime, Arc<AtomicUsize>);
    #[async_trait]
    impl BatchObserver for Slow {
        async fn observe(&self, _: &mut Transaction, changes: &[Change]) -> Result<()> {
            self.1.fetch_add(changes.len(), SeqCst);
            self.0.sleep(5 * SECOND).await;
            Ok(())
        }
    }

    run_both(async |world| {
        let (one, other) = (world.client().await, world.client().await);
        let delivered = Arc::new(AtomicUsize::new(0));
        let mut workers = Vec::new();
        for client in [&one, &other] {
            let slow = Slow(world.runtime.clone(), delivered.clone());
            let batch = Batch { interval: Duration::from_millis(100), ..Batch::default() };
            let slow = Registration::batched("o", "t", CHANGED, batch, slow);
            let options = short_locks(1, 60 * SECOND);
            workers.push(client.observe(vec![slow], options).await.unwrap());
        }
        let table = one.table("t").await.unwrap();
        one.transact(async |mut tx| tx.notify(&table, "a", &CHANGED)).await.unwrap();
        assert!(one.wait_idle(Some(60 * SECOND)).await.unwrap().idle);
        assert_eq!(delivered.load(SeqCst), 1);
        for workers in workers {
            workers.stop().await;
        }
    });
}
