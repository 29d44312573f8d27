//! Tests observers that take long: their row locks are renewed (H73), they leave threads to
//! others, and they can be stopped.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator_core::{
    Client, Column, Holder, Observer, Registration, Runtime, WorkerOptions, Workers,
};

use crate::notifications::COUNT;
use crate::world::{BAL, World, get_column, observer, run_both, set};

const SECOND: Duration = Duration::from_secs(1);

/// When the runs of an observer began.
#[derive(Debug, Clone, Default)]
pub(crate) struct Began(Arc<Mutex<Vec<Duration>>>);

impl Began {
    pub(crate) fn times(&self) -> Vec<Duration> {
        self.0.lock().unwrap().clone()
    }
}

/// An observer that takes this long, and then counts its run in the changed row.
pub(crate) fn slow(world: &World, takes: Duration, began: &Began) -> impl Observer + use<> {
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

/// Options with row locks that last for a second.
fn short_locks(threads: usize, run_max: Duration) -> WorkerOptions {
    WorkerOptions { threads, row_lock_lifetime: SECOND, run_max, ..WorkerOptions::default() }
}

/// The count in a row, once everything is done.
async fn counted(client: &Client, row: &str) -> String {
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
            let slow = Registration::strong("o", "t", &BAL, slow(&world, 5 * SECOND, &began));
            let options = short_locks(2, 60 * SECOND);
            workers.push(client.observe(vec![slow], options).await.unwrap());
        }
        // The first scans are over then. A scan that finds the change at once runs beside the hint.
        world.sleep_ms(10).await;
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

/// Observes with runs of five seconds, and with row locks of one second.
async fn observe_slowly(world: &World, client: &Client, began: &Began) -> Workers {
    let slow = Registration::strong("o", "t", &BAL, slow(world, 5 * SECOND, began));
    client.observe(vec![slow], short_locks(2, 60 * SECOND)).await.unwrap()
}

/// A run after a hint begins without a lock in the store. A scan of another process finds the
/// notification while the run lasts.
#[test]
fn h73_a_long_run_after_a_hint_takes_the_lock_although_it_began_without() {
    run_both(async |world| {
        let (one, other) = (world.client().await, world.client().await);
        let (table, began) = (one.table("t").await.unwrap(), Began::default());
        let workers = observe_slowly(&world, &one, &began).await;
        set(&one, &table, &[("a", "1")]).await;
        world.sleep_ms(200).await;
        let others = observe_slowly(&world, &other, &began).await;
        assert_eq!(counted(&one, "a").await, "1");
        assert_eq!(began.times().len(), 1, "{began:?}");
        workers.stop().await;
        others.stop().await;
    });
}

/// Another process has the row's lock when the run asks for it first.
#[test]
fn h73_a_long_run_that_was_refused_its_lock_asks_again() {
    run_both(async |world| {
        let (one, other) = (world.client().await, world.client().await);
        let (table, began) = (one.table("t").await.unwrap(), Began::default());
        let holder = Holder { owner: other.incarnation(), work: u64::MAX };
        let locks = other.services().locks.clone();
        assert!(locks.try_lock(b"t\0a", holder, 10 * SECOND).await.unwrap());
        let workers = observe_slowly(&world, &one, &began).await;
        set(&one, &table, &[("a", "1")]).await;
        world.sleep_ms(200).await;
        assert_eq!(began.times().len(), 1);
        locks.unlock(b"t\0a", holder);
        world.sleep_ms(1_000).await;
        let others = observe_slowly(&world, &other, &began).await;
        assert_eq!(counted(&one, "a").await, "1");
        assert_eq!(began.times().len(), 1, "{began:?}");
        workers.stop().await;
        others.stop().await;
    });
}

/// The first run conflicts with another process, and the second has the lock from its begin.
#[test]
fn h73_a_run_after_a_hint_whose_commit_conflicts_goes_on_with_the_lock() {
    run_both(async |world| {
        let (one, other) = (world.client().await, world.client().await);
        let table = one.table("t").await.unwrap();
        let free = Arc::new(Mutex::new(Vec::new()));
        let noted = free.clone();
        let run = observer(move |tx, change| {
            let (other, noted) = (other.clone(), noted.clone());
            Box::pin(async move {
                let holder = Holder { owner: other.incarnation(), work: u64::MAX };
                let is_free = other.services().locks.try_lock(b"t\0a", holder, SECOND).await?;
                noted.lock().unwrap().push(is_free);
                if is_free {
                    other.services().locks.unlock(b"t\0a", holder);
                    let table = other.table("t").await?;
                    other
                        .transact(async |mut tx| tx.set(&table, "a", &COUNT, "in between"))
                        .await?;
                }
                tx.set(&change.table, change.row.clone(), &COUNT, "done")
            })
        });
        let registration = Registration::strong("o", "t", &BAL, run);
        let workers = one.observe(vec![registration], WorkerOptions::default()).await.unwrap();
        // The first scan is over then.
        world.sleep_ms(10).await;
        set(&one, &table, &[("a", "1")]).await;
        assert_eq!(counted(&one, "a").await, "done");
        assert_eq!(*free.lock().unwrap(), [true, false]);
        workers.stop().await;
    });
}

#[test]
fn h73_the_renewal_ends_with_the_longest_run_and_of_two_runs_one_commits() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let began = Began::default();
        let slow = Registration::strong("o", "t", &BAL, slow(&world, 8 * SECOND, &began));
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

#[test]
fn h73_a_batch_that_outlasts_its_lock_is_delivered_once() {
    use percolator_core::{Batch, BatchObserver, Change, Result, Transaction};
    const CHANGED: Column = Column::literal("f:changed");

    struct Slow(percolator_core::testing::VirtualRuntime, Arc<AtomicUsize>);
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
            let slow = Registration::batched("o", "t", &CHANGED, batch, slow);
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

const OTHER: Column = Column::literal("f:other");

/// Runs two threads with a slow observer that has two changes, and with a quick observer whose
/// change comes later. Returns when the quick one ran.
async fn quick_ran_at(world: &World, bound: Option<usize>, bound_of_all: usize) -> Duration {
    let (worker, writer) = (world.client().await, world.client().await);
    let table = worker.table("t").await.unwrap();
    let (began, quick) = (Began::default(), Began::default());
    let mut strong = Registration::strong("slow", "t", &BAL, slow(world, 3 * SECOND, &began));
    if let Some(runs) = bound {
        strong = strong.runs_max(runs);
    }
    let quick_one = slow(world, Duration::from_millis(1), &quick);
    let quick_one = Registration::strong("quick", "t", &OTHER, quick_one);
    let options = WorkerOptions { threads: 2, runs_max: bound_of_all, ..WorkerOptions::default() };
    let workers = worker.observe(vec![strong, quick_one], options).await.unwrap();
    // For some changes there are hints; others have to be found.
    set(&worker, &table, &[("a", "1"), ("b", "1")]).await;
    set(&writer, &table, &[("c", "1"), ("d", "1")]).await;
    world.sleep_ms(1500).await;
    let since = world.runtime.now();
    let change = async |mut tx: percolator_core::Attempt| tx.set(&table, "e", &OTHER, "1");
    worker.transact(change).await.unwrap();
    assert!(worker.wait_idle(Some(60 * SECOND)).await.unwrap().idle);
    assert_eq!(began.times().len(), 4);
    workers.stop().await;
    quick.times()[0] - since
}

#[test]
fn slow_observers_leave_threads_to_others_if_they_are_bounded() {
    run_both(async |world| {
        let unbounded = quick_ran_at(&world, None, usize::MAX).await;
        assert!(unbounded > SECOND, "this is what the bound is for: {unbounded:?}");
    });
    for (bound, of_all) in [(Some(1), usize::MAX), (None, 1), (Some(1), 2)] {
        run_both(async |world| {
            let bounded = quick_ran_at(&world, bound, of_all).await;
            assert!(bounded < Duration::from_millis(100), "{bound:?}, {of_all}: {bounded:?}");
        });
    }
}

#[test]
fn no_observer_has_more_runs_at_a_time_than_its_bound() {
    run_both(async |world| {
        let (worker, writer) = (world.client().await, world.client().await);
        let table = worker.table("t").await.unwrap();
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let run = {
            let (now, most, runtime) = (now.clone(), most.clone(), world.runtime.clone());
            observer(move |_, _| {
                let (now, most) = (now.clone(), most.clone());
                let sleep = runtime.sleep(Duration::from_millis(300));
                Box::pin(async move {
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    sleep.await;
                    now.fetch_sub(1, SeqCst);
                    Ok(())
                })
            })
        };
        let options = WorkerOptions { threads: 8, ..WorkerOptions::default() };
        let strong = Registration::strong("o", "t", &BAL, run).runs_max(3);
        let workers = worker.observe(vec![strong], options).await.unwrap();
        let rows: Vec<String> = (0..40).map(|n| format!("{n:02}")).collect();
        let cells: Vec<(&str, &str)> = rows.iter().map(|row| (row.as_str(), "1")).collect();
        set(&worker, &table, &cells[..20]).await;
        set(&writer, &table, &cells[20..]).await;
        let since = world.runtime.now();
        assert!(worker.wait_idle(Some(60 * SECOND)).await.unwrap().idle);
        assert_eq!(most.load(SeqCst), 3);
        assert!(world.runtime.now() - since < 8 * SECOND, "40 runs by three take four seconds");
        workers.stop().await;
    });
}

#[test]
fn stop_within_abandons_a_run_that_hangs_and_the_next_worker_handles_the_change() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let began = Began::default();
        let options = WorkerOptions { threads: 2, ..WorkerOptions::default() };
        let hangs = Registration::strong("o", "t", &BAL, slow(&world, 3600 * SECOND, &began));
        let workers = client.observe(vec![hangs], options.clone()).await.unwrap();
        set(&client, &table, &[("a", "1")]).await;
        world.sleep_ms(10).await;
        let since = world.runtime.now();
        assert_eq!(workers.stop_within(10 * SECOND).await, 1);
        assert_eq!(world.runtime.now() - since, 10 * SECOND);
        assert_eq!(client.backlog().await.unwrap()[0].cells, 1);
        let quick = Registration::strong("o", "t", &BAL, slow(&world, SECOND, &began));
        let workers = client.observe(vec![quick], options).await.unwrap();
        assert_eq!(counted(&client, "a").await, "1");
        let took = world.runtime.now() - since;
        assert!(took < 13 * SECOND, "the row lock went with the run: {took:?}");
        let since = world.runtime.now();
        assert_eq!(workers.stop_within(10 * SECOND).await, 0);
        assert!(world.runtime.now() - since < SECOND, "there is nothing to wait for");
    });
}

#[test]
fn an_observer_is_asked_to_come_to_an_end() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        assert!(!client.begin().await.unwrap().is_stopping());
        let runtime = world.runtime.clone();
        let polite = observer(move |tx, _| {
            let (runtime, stopping) = (runtime.clone(), tx.stopping());
            Box::pin(async move {
                assert!(!tx.is_stopping());
                futures::future::select(Box::pin(stopping), runtime.sleep(3600 * SECOND)).await;
                assert!(tx.is_stopping());
                Err(percolator_core::Error::Unavailable("it is told to stop".to_owned()))
            })
        });
        let polite = Registration::strong("o", "t", &BAL, polite);
        let workers = client.observe(vec![polite], WorkerOptions::default()).await.unwrap();
        set(&client, &table, &[("a", "1")]).await;
        world.sleep_ms(1000).await;
        let since = world.runtime.now();
        workers.stop().await;
        assert!(world.runtime.now() - since < SECOND);
        assert_eq!(client.stats().observer_failures, 0, "that is no failure of the observer");
        assert_eq!(client.backlog().await.unwrap()[0].cells, 1);
    });
}
