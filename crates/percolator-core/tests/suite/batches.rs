//! Tests batching observers. They run soon or in large batches, and deliver again after a crash.
//! They get past one bad change, one contended change, and an outage of the system that they feed
//! (H51, H56).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::Store;
use bigtable::layer::StoreLayer;
use percolator_core::{
    Batch, BatchObserver, Change, Client, Column, Error, Options, Registration, Result, Runtime,
    Services, Table, Transaction, WorkerOptions, Workers,
};

use crate::faults::{Fault, FaultyStore, Op};
use crate::notifications::{COUNT, one_thread};
use crate::world::{World, counting, get_column, run_both};

const CHANGED: Column = Column::literal("f:changed");

/// Counts deliveries of each row. Fails for the row `bad` while `poison` is set.
struct Export {
    delivered: Arc<Mutex<Vec<String>>>,
    poison: Arc<AtomicBool>,
}

impl BatchObserver for Export {
    async fn observe(&self, tx: &mut Transaction, changes: &[Change]) -> Result<()> {
        tx.set(&changes[0].table, "export", &COUNT, changes.len().to_string())?;
        let rows: Vec<String> = changes.iter().map(|change| change.row.to_string()).collect();
        if self.poison.load(SeqCst) && rows.iter().any(|row| row == "bad") {
            return Err(Error::application("poison"));
        }
        self.delivered.lock().unwrap().extend(rows);
        Ok(())
    }
}

#[test]
fn a_batch_is_delivered_again_after_a_crash_before_it_was_cleared() {
    for op in [Op::Prewrite, Op::CommitPrimary, Op::Clear] {
        run_both(async |world| {
            let (writer, crashing) =
                (world.client().await, world.process(Options::default(), 0).await);
            let table = writer.table("t").await.unwrap();
            let delivered = Arc::new(Mutex::new(Vec::new()));
            let poison = Arc::new(AtomicBool::new(false));
            let batched = || {
                let export = Export { delivered: delivered.clone(), poison: poison.clone() };
                let batch = Batch { changes_max: 3, interval: Duration::from_secs(1) };
                vec![Registration::batched("export", "t", &CHANGED, batch, export)]
            };
            let notify = async |rows: &[&str]| {
                let mut tx = writer.begin().await.unwrap();
                rows.iter().for_each(|row| tx.notify(&table, *row, &CHANGED).unwrap());
                tx.commit().await.unwrap();
            };
            let lost = crashing.client.observe(batched(), one_thread()).await.unwrap();
            let held = world.store.when(3, Fault::Hold, move |request| request.op == op);
            notify(&["a", "b", "c", "d"]).await;
            held.arrived().await;
            crashing.crash();
            drop(lost);
            held.release();
            let workers = writer.observe(batched(), one_thread()).await.unwrap();
            writer.wait_idle(None).await.unwrap();
            let mut rows = std::mem::take(&mut *delivered.lock().unwrap());
            rows.sort();
            assert_eq!(rows.len(), 7, "the three of one batch twice: {rows:?}, {op:?}");
            rows.dedup();
            assert_eq!(rows, ["a", "b", "c", "d"], "{op:?}");
            workers.stop().await;
        });
    }
}

#[test]
fn h56_a_batch_with_one_bad_change_delivers_the_others() {
    run_both(async |world| {
        let writer = world.client().await;
        let table = writer.table("t").await.unwrap();
        let delivered = Arc::new(Mutex::new(Vec::new()));
        let poison = Arc::new(AtomicBool::new(false));
        let batched = || {
            let export = Export { delivered: delivered.clone(), poison: poison.clone() };
            let batch = Batch { changes_max: 3, interval: Duration::from_secs(1) };
            vec![Registration::batched("export", "t", &CHANGED, batch, export)]
        };
        let notify = async |rows: &[&str]| {
            let mut tx = writer.begin().await.unwrap();
            rows.iter().for_each(|row| tx.notify(&table, *row, &CHANGED).unwrap());
            tx.commit().await.unwrap();
        };
        let workers = writer.observe(batched(), one_thread()).await.unwrap();
        poison.store(true, SeqCst);
        notify(&["a", "bad", "c"]).await;
        let report = writer.wait_idle(None).await.unwrap();
        assert_eq!(report.set_aside.len(), 1);
        let mut rows = std::mem::take(&mut *delivered.lock().unwrap());
        rows.sort();
        assert_eq!(rows, ["a", "c"]);
        poison.store(false, SeqCst);
        assert_eq!(writer.replay(None).await.unwrap(), 1);
        writer.wait_idle(None).await.unwrap();
        assert_eq!(*delivered.lock().unwrap(), ["bad"]);
        workers.stop().await;
        // A second observer on the column is refused: the first would clear its notifications.
        let second = Registration::weak("second", "t", &CHANGED, counting(COUNT));
        let mut both = batched();
        both.push(second);
        assert!(writer.observe(both, one_thread()).await.is_err());
    });
}

/// Feeds a system that may be down.
struct Feed {
    down: Arc<AtomicBool>,
    delivered: Arc<Mutex<Vec<String>>>,
}

impl BatchObserver for Feed {
    async fn observe(&self, _: &mut Transaction, changes: &[Change]) -> Result<()> {
        if self.down.load(SeqCst) {
            return Err(Error::application("it is down"));
        }
        self.delivered.lock().unwrap().extend(changes.iter().map(|c| c.row.to_string()));
        Ok(())
    }
}

#[test]
fn h56_an_outage_of_what_a_batch_feeds_sets_no_change_aside() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let (down, delivered) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let feed = Feed { down: down.clone(), delivered: Arc::clone(&delivered) };
        let batch = Batch { changes_max: 100, interval: Duration::from_millis(100) };
        let feed = Registration::batched("feed", "t", &CHANGED, batch, feed);
        let workers = client.observe(vec![feed], one_thread()).await.unwrap();
        let mut tx = client.begin().await.unwrap();
        let rows: Vec<String> = (0..40).map(|n| format!("r{n:02}")).collect();
        rows.iter().for_each(|row| tx.notify(&table, row.as_str(), &CHANGED).unwrap());
        tx.commit().await.unwrap();
        // These are a thousand rounds. If they counted, each change would have used up its
        // attempts many times over.
        world.sleep_ms(100_000).await;
        assert!(client.set_aside().await.unwrap().is_empty());
        down.store(false, SeqCst);
        assert!(client.wait_idle(None).await.unwrap().set_aside.is_empty());
        let mut all = std::mem::take(&mut *delivered.lock().unwrap());
        all.sort();
        assert_eq!(all, rows);
        workers.stop().await;
    });
}

/// Counts each change in its row. In the row `hot` a rival writes the same cell meanwhile, as
/// long as it has turns left.
struct Contended {
    rival: Client,
    /// How often the rival comes first.
    turns: Arc<AtomicUsize>,
}

impl BatchObserver for Contended {
    async fn observe(&self, tx: &mut Transaction, changes: &[Change]) -> Result<()> {
        for Change { table, row, .. } in changes {
            tx.set(table, row.clone(), &COUNT, "1")?;
        }
        let hot = changes.iter().find(|change| change.row == "hot".into());
        let turn = |turns: usize| turns.checked_sub(1);
        if let Some(Change { table, .. }) = hot
            && self.turns.fetch_update(SeqCst, SeqCst, turn).is_ok()
        {
            tx.set(table, "shared", &COUNT, "the batch's")?;
            self.rival.transact(async |mut tx| tx.set(table, "shared", &COUNT, "other")).await?;
        }
        Ok(())
    }
}

/// Delivers a batch of 60 changes for a while. The rival contends one of them `turns` times.
/// Returns the changes that were not delivered.
async fn contend(world: &crate::world::World, turns: usize) -> Vec<String> {
    let (client, rival) = (world.client().await, world.client().await);
    let table = client.table("t").await.unwrap();
    let turns = Arc::new(AtomicUsize::new(turns));
    let observer = Contended { rival, turns: turns.clone() };
    let batch = Batch { changes_max: 100, interval: Duration::from_millis(100) };
    let registration = Registration::batched("contended", "t", &CHANGED, batch, observer);
    let workers = client.observe(vec![registration], one_thread()).await.unwrap();
    let mut rows: Vec<String> = (0..59).map(|n| format!("r{n:02}")).collect();
    rows.push("hot".to_owned());
    let mut tx = client.begin().await.unwrap();
    rows.iter().for_each(|row| tx.notify(&table, row.as_str(), &CHANGED).unwrap());
    tx.commit().await.unwrap();
    world.sleep_ms(10_000).await;
    let mut missing = Vec::new();
    for row in rows {
        if get_column(&client, &table, &row, &COUNT).await.is_none() {
            missing.push(row);
        }
    }
    assert!(client.set_aside().await.unwrap().is_empty(), "no change is at fault");
    turns.store(0, SeqCst);
    assert!(client.wait_idle(None).await.unwrap().idle);
    workers.stop().await;
    missing
}

#[test]
fn h51_a_batch_that_does_not_commit_keeps_its_notifications() {
    run_both(async |world| {
        let missing = contend(&world, 1).await;
        assert!(missing.is_empty(), "acknowledged and never delivered: {missing:?}");
    });
}

#[test]
fn h56_a_batch_with_one_contended_change_delivers_the_others() {
    run_both(async |world| {
        let missing = contend(&world, usize::MAX).await;
        assert_eq!(missing, ["hot"], "one contended change keeps all of them from delivery");
    });
}

/// Notes how many changes each batch has.
struct Sizes(Arc<Mutex<Vec<usize>>>);

impl BatchObserver for Sizes {
    async fn observe(&self, _: &mut Transaction, changes: &[Change]) -> Result<()> {
        self.0.lock().unwrap().push(changes.len());
        Ok(())
    }
}

/// A batch that gathers, in a process that hears of changes from the oracle alone.
struct Gathering {
    world: World,
    writer: Client,
    table: Table,
    sizes: Arc<Mutex<Vec<usize>>>,
    _workers: Workers,
}

impl Gathering {
    /// A batch that gathers for ten seconds.
    async fn new(world: World) -> Self {
        Gathering::of(world, Duration::from_secs(10)).await
    }

    async fn of(world: World, interval: Duration) -> Self {
        let (worker, peek_every) = (world.client().await, Some(Duration::from_millis(500)));
        Gathering::with(world, interval, &worker, peek_every).await
    }

    async fn with(
        world: World,
        interval: Duration,
        worker: &Client,
        peek_every: Option<Duration>,
    ) -> Self {
        let writer = world.client().await;
        let table = writer.table("t").await.unwrap();
        let sizes = Arc::default();
        let batch = Batch { changes_max: 500, interval };
        let observer = Sizes(Arc::clone(&sizes));
        let observer = Registration::batched("sizes", "t", &CHANGED, batch, observer);
        let options =
            WorkerOptions { idle_max: Duration::from_secs(10), peek_every, ..one_thread() };
        let workers = worker.observe(vec![observer], options).await.unwrap();
        Gathering { world, writer, table, sizes, _workers: workers }
    }

    async fn notify(&self, row: String) {
        let mut tx = self.writer.begin().await.unwrap();
        tx.notify(&self.table, row, &CHANGED).unwrap();
        tx.commit().await.unwrap();
    }

    /// Waits until a batch was delivered, and returns the time since `begun`.
    async fn delivered_since(&self, begun: Duration) -> Duration {
        while self.sizes.lock().unwrap().is_empty() {
            self.world.sleep_ms(10).await;
        }
        self.world.runtime.now() - begun
    }

    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.sizes.lock().unwrap())
    }
}

#[test]
fn a_change_alone_is_delivered_within_a_second_and_its_neighbours_with_it() {
    run_both(async |world| {
        let gathering = Gathering::new(world.clone()).await;
        for quiet_ms in [60_000, 3_170, 11_030] {
            world.sleep_ms(quiet_ms).await;
            let begun = world.runtime.now();
            gathering.notify(format!("a{quiet_ms}")).await;
            gathering.notify(format!("b{quiet_ms}")).await;
            let waited = gathering.delivered_since(begun).await;
            assert!(waited < Duration::from_secs(1), "{waited:?} after {quiet_ms} ms");
            assert_eq!(gathering.take(), [2]);
        }
    });
}

#[test]
fn a_batch_gathers_for_its_whole_interval_while_changes_come() {
    run_both(async |world| {
        let gathering = Gathering::new(world.clone()).await;
        world.sleep_ms(60_000).await;
        for n in 0..600 {
            gathering.notify(format!("r{n:03}")).await;
            world.sleep_ms(100).await;
        }
        // The load has ended, so the rest is not kept waiting.
        world.sleep_ms(1000).await;
        let sizes = gathering.take();
        assert_eq!(sizes.iter().sum::<usize>(), 600, "{sizes:?}");
        assert!(sizes.len() <= 7, "a batch in ten seconds, and the rest: {sizes:?}");
    });
}

#[test]
fn a_batch_of_a_minute_gathers_a_trickle_of_changes_and_ends_soon_after_it() {
    run_both(async |world| {
        let gathering = Gathering::of(world.clone(), Duration::from_secs(60)).await;
        world.sleep_ms(61_000).await;
        for n in 0..50 {
            gathering.notify(format!("r{n:02}")).await;
            world.sleep_ms(1000).await;
        }
        let waited = gathering.delivered_since(world.runtime.now()).await;
        assert!(waited < Duration::from_secs(2), "{waited:?} after the last change");
        assert_eq!(gathering.take(), [50]);
        // Without an end of the changes, the interval is the bound.
        for n in 0..120 {
            gathering.notify(format!("s{n:03}")).await;
            world.sleep_ms(1000).await;
        }
        let sizes = gathering.take();
        assert!(sizes.len() == 2 || sizes.len() == 1, "a batch in a minute: {sizes:?}");
        assert!(sizes[0] >= 55, "{sizes:?}");
    });
}

/// One process makes the changes of two columns, and delivers them.
#[test]
fn a_batch_does_not_wait_for_the_end_of_another_columns_changes() {
    run_both(async |world| {
        let client = world.client().await;
        let (table, other) = (client.table("t").await.unwrap(), Column::literal("other"));
        let (sizes, others) = (Arc::default(), Arc::default());
        let batch = Batch { changes_max: 500, interval: Duration::from_secs(60) };
        let rare = Sizes(Arc::clone(&sizes));
        let frequent = Sizes(Arc::clone(&others));
        let registrations = vec![
            Registration::batched("rare", "t", &CHANGED, batch, rare),
            Registration::batched("frequent", "t", &other, batch, frequent),
        ];
        let _workers = client.observe(registrations, one_thread()).await.unwrap();
        for n in 0..30 {
            let mut tx = client.begin().await.unwrap();
            let column = if n == 0 { &CHANGED } else { &other };
            tx.notify(&table, format!("r{n}"), column).unwrap();
            tx.commit().await.unwrap();
            world.sleep_ms(200).await;
        }
        assert_eq!((sizes.lock().unwrap().len(), others.lock().unwrap().len()), (1, 0));
    });
}

/// The worker's process hears nothing, so it finds a change when it looks for one.
#[test]
fn a_batch_of_a_minute_looks_for_changes_every_ten_seconds() {
    run_both(async |world| {
        let worker = world.client().await;
        let minute = Duration::from_secs(60);
        let gathering = Gathering::with(world.clone(), minute, &worker, None).await;
        world.sleep_ms(61_000).await;
        let begun = world.runtime.now();
        gathering.notify("r".to_owned()).await;
        let waited = gathering.delivered_since(begun).await;
        assert!(waited <= Duration::from_secs(12), "{waited:?}");
    });
}

#[test]
fn a_batch_of_a_minute_that_has_failed_is_tried_again_after_ten_seconds() {
    run_both(async |world| {
        let client = world.client().await;
        let table = client.table("t").await.unwrap();
        let (delivered, poison) = (Arc::default(), Arc::new(AtomicBool::new(true)));
        let export = Export { delivered: Arc::clone(&delivered), poison: poison.clone() };
        let batch = Batch { changes_max: 500, interval: Duration::from_secs(60) };
        let registration = Registration::batched("export", "t", &CHANGED, batch, export);
        let _workers = client.observe(vec![registration], one_thread()).await.unwrap();
        let mut tx = client.begin().await.unwrap();
        tx.notify(&table, "bad", &CHANGED).unwrap();
        tx.commit().await.unwrap();
        world.sleep_ms(5000).await;
        poison.store(false, SeqCst);
        world.sleep_ms(15_000).await;
        assert_eq!(*delivered.lock().unwrap(), ["bad"]);
    });
}

/// A store whose room for notifications is half full.
#[derive(Debug)]
struct HalfFull(Arc<FaultyStore>);

impl StoreLayer for HalfFull {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn pressure(&self) -> f64 {
        0.5
    }
}

#[test]
fn a_batch_gathers_no_more_while_the_room_for_notifications_fills_up() {
    run_both(async |world| {
        let store = Arc::new(HalfFull(world.store.clone()));
        let services = Services { store, ..world.client().await.services().clone() };
        let worker = Client::open(services, Options::default()).await.unwrap();
        let (minute, peek) = (Duration::from_secs(60), Some(Duration::from_millis(500)));
        let gathering = Gathering::with(world.clone(), minute, &worker, peek).await;
        world.sleep_ms(1000).await;
        for n in 0..50 {
            gathering.notify(format!("r{n:02}")).await;
            world.sleep_ms(100).await;
        }
        let sizes = gathering.take();
        assert!(sizes.len() >= 2, "{sizes:?} in five seconds");
    });
}
