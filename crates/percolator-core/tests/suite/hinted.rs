//! Tests runs that follow a hint without a look at the acknowledgement (H36, H47, H51 to H53, H56).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bigtable::{Selection, TimeRange};
use percolator_core::{
    Client, Column, CommitPath, Error, Options, Registration, Services, Table, Timestamp,
    WorkerOptions, Workers,
};

use crate::faults::{Fault, NOTIFY, Op, WRITE};
use crate::notifications::{COUNT, one_thread, register};
use crate::world::{BAL, World, add, counting, get_column, observer, run_in_process, set};

const OTHER: Column = Column::literal("f:other");
/// The row at which the first worker waits for the test.
const SLOW: &str = "slow";

/// Runs a test with each way to commit, on a store in this process.
fn run(test: impl AsyncFn(World, CommitPath)) {
    for path in [CommitPath::OneStep, CommitPath::TwoPhases] {
        run_in_process(async |world| test(world, path).await);
    }
}

/// A client in whose process the store is.
async fn client(world: &World, commit_path: CommitPath) -> Client {
    let services = world.client().await.services().clone();
    let services = Services { store: world.store.inner.clone(), ..services };
    Client::open(services, Options { commit_path, ..Options::default() }).await.unwrap()
}

/// Options of one worker that finds changes by hints alone.
fn by_hints() -> WorkerOptions {
    let rarely = Duration::from_secs(100_000);
    WorkerOptions { scan_period: rarely, idle_max: rarely, ..one_thread() }
}

/// A worker of a client that handles `SLOW` when the test says so, and later hints after it.
struct Held {
    client: Client,
    table: Table,
    released: Arc<AtomicBool>,
    workers: Workers,
}

/// The worker's action on rows other than `SLOW`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Counts,
    Fails,
    /// Collects garbage, and then counts.
    Collects,
}

impl Held {
    async fn begin(client: &Client, does: Does, options: WorkerOptions) -> Self {
        let (table, released) =
            (client.table("t").await.unwrap(), Arc::new(AtomicBool::new(false)));
        let gate = released.clone();
        let run = observer(move |tx, change| {
            let gate = gate.clone();
            Box::pin(async move {
                if change.row.as_bytes() == SLOW.as_bytes() {
                    while !gate.load(Ordering::Relaxed) {
                        tx.client().runtime().sleep(Duration::from_millis(1)).await;
                    }
                    return Ok(());
                }
                match does {
                    Does::Counts => {}
                    Does::Fails => return Err(Error::application("never works")),
                    Does::Collects => drop(tx.client().gc(Duration::ZERO).await?),
                }
                add(tx, &change.table, &change.row, &COUNT, 1).await
            })
        });
        let registration = Registration::strong("o", "t", &BAL, run);
        let workers = client.observe(vec![registration], options).await.unwrap();
        let runtime = client.runtime();
        // The first pass is over then.
        runtime.sleep(Duration::from_millis(10)).await;
        set(client, &table, &[(SLOW, "1")]).await;
        runtime.sleep(Duration::from_millis(10)).await;
        assert_eq!(client.stats().observer_runs_hinted, 1);
        Held { client: client.clone(), table, released, workers }
    }

    /// Lets the worker go on, and waits until it has followed its hints.
    async fn go_on(self) {
        self.released.store(true, Ordering::Relaxed);
        self.client.runtime().sleep(Duration::from_secs(10)).await;
        self.workers.stop().await;
    }

    async fn count(&self) -> String {
        get_column(&self.client, &self.table, "r", &COUNT).await.unwrap_or_default()
    }
}

/// Lets workers of another client handle all changes except that of the row `SLOW`.
async fn others_handle(world: &World, path: CommitPath, table: &Table, count: &str) {
    let other = client(world, path).await;
    let registration = Registration::strong("o", "t", &BAL, counting(COUNT));
    let workers = other.observe(vec![registration], one_thread()).await.unwrap();
    while get_column(&other, table, "r", &COUNT).await.as_deref() != Some(count) {
        world.sleep_ms(1).await;
    }
    workers.stop().await;
}

async fn delete(client: &Client, table: &Table) {
    client.transact(async |mut tx| tx.delete(table, "r", &BAL)).await.unwrap();
}

#[test]
fn a_change_of_this_process_is_handled_without_a_look_at_the_acknowledgement() {
    run(async |world, path| {
        let client = client(&world, path).await;
        let table = client.table("t").await.unwrap();
        let values = observer(|tx, change| {
            Box::pin(async move {
                let value = tx.get(&change.table, &change.row, &BAL).await?;
                assert_eq!(change.deleted, value.is_none());
                assert!(change.commit_ts < tx.start_ts());
                let length = value.map_or(0, |value| value.len());
                tx.set(
                    &change.table,
                    &change.row,
                    &COUNT,
                    format!("{length} {}", change.commit_ts.as_u64()),
                )
            })
        });
        let registration = Registration::strong("o", "t", &BAL, values);
        let workers = client.observe(vec![registration], by_hints()).await.unwrap();
        world.sleep_ms(10).await;
        for (n, length) in [(1, 1), (2, 5_000), (3, 0)] {
            let c = set(&client, &table, &[("r", &"v".repeat(length))]).await;
            world.sleep_ms(10).await;
            let found = get_column(&client, &table, "r", &COUNT).await;
            assert_eq!(found, Some(format!("{length} {}", c.as_u64())));
            assert_eq!(client.stats().observer_runs_hinted, n);
            assert_eq!(world.notified(&table, "r", &BAL).await, 0);
        }
        // A deletion goes the usual way.
        delete(&client, &table).await;
        world.sleep_ms(10).await;
        let found = get_column(&client, &table, "r", &COUNT).await.unwrap();
        assert!(found.starts_with("0 "), "{found}");
        let stats = client.stats();
        assert_eq!((stats.observer_runs, stats.observer_runs_hinted), (4, 3));
        workers.stop().await;
    });
}

#[test]
fn h52_a_hint_that_another_worker_was_faster_with_has_one_effect() {
    run(async |world, path| {
        let client = client(&world, path).await;
        let held = Held::begin(&client, Does::Counts, by_hints()).await;
        set(&client, &held.table, &[("r", "1")]).await;
        others_handle(&world, path, &held.table, "1").await;
        let table = held.table.clone();
        let before = client.stats();
        held.go_on().await;
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("1"));
        let stats = client.stats();
        // It ran in vain once. Its commit found the acknowledgement, and nothing was tried again.
        assert_eq!(stats.observer_runs_hinted, 2);
        assert_eq!(stats.conflicts - before.conflicts, 1);
        assert_eq!(stats.aborted - before.aborted, 1);
        assert_eq!(world.notified(&table, "r", &BAL).await, 0);
    });
}

/// The worker crashes at each step of its commit, and another process takes over.
#[test]
fn h51_a_hinted_run_that_crashes_anywhere_has_one_effect() {
    for op in [Op::Prewrite, Op::CommitPrimary] {
        for fault in [Fault::Hold, Fault::HoldReply] {
            run_in_process(async |world| {
                world.store.enter_process();
                let commit_path = CommitPath::TwoPhases;
                let options = Options { commit_path, ..Options::default() };
                let crashing = world.process(options, 0).await;
                let held = Held::begin(&crashing.client, Does::Counts, by_hints()).await;
                let table = world.client().await.table("t").await.unwrap();
                set(&crashing.client, &held.table, &[("r", "1")]).await;
                let caught = world.store.on(op, "r", 1, fault);
                held.released.store(true, Ordering::Relaxed);
                caught.arrived().await;
                assert_eq!(crashing.client.stats().observer_runs_hinted, 2);
                crashing.crash();
                drop(held);
                let other = world.client().await;
                let registration = Registration::strong("o", "t", &BAL, counting(COUNT));
                let workers = other.observe(vec![registration], one_thread()).await.unwrap();
                assert!(other.wait_idle(None).await.unwrap().idle);
                caught.release();
                world.sleep_ms(1_000).await;
                let found = get_column(&other, &table, "r", &COUNT).await;
                assert_eq!(found.as_deref(), Some("1"), "{op:?} {fault:?}");
                assert_eq!(world.notified(&table, "r", &BAL).await, 0);
                world.audit(&table).await;
                workers.stop().await;
            });
        }
    }
}

#[test]
fn h52_a_stale_hint_of_a_deletion_that_was_collected_has_no_effect() {
    run(async |world, path| {
        let client = client(&world, path).await;
        set(&client, &client.table("t").await.unwrap(), &[("r", "1")]).await;
        let held = Held::begin(&client, Does::Collects, by_hints()).await;
        delete(&client, &held.table).await;
        others_handle(&world, path, &held.table, "2").await;
        let table = held.table.clone();
        held.go_on().await;
        assert_eq!(get_column(&client, &table, "r", &COUNT).await.as_deref(), Some("2"));
    });
}

#[test]
fn h53_a_hinted_run_leaves_the_notification_to_observers_that_run_elsewhere() {
    // The schema names observers in the order of their names: one before "o", and one after it.
    for elsewhere in ["n", "p"] {
        run(async |world, path| {
            let (one, other) = (client(&world, path).await, client(&world, path).await);
            register(&other, elsewhere).await;
            let table = one.table("t").await.unwrap();
            let registration = Registration::strong("o", "t", &BAL, counting(COUNT));
            let workers = one.observe(vec![registration], by_hints()).await.unwrap();
            world.sleep_ms(10).await;
            set(&one, &table, &[("r", "1")]).await;
            world.sleep_ms(100).await;
            assert_eq!(get_column(&one, &table, "r", &COUNT).await.as_deref(), Some("1"));
            assert_eq!(world.notified(&table, "r", &BAL).await, 1);
            let registration = Registration::strong(elsewhere, "t", &BAL, counting(OTHER));
            let more = other.observe(vec![registration], one_thread()).await.unwrap();
            world.sleep_ms(10_000).await;
            assert_eq!(get_column(&one, &table, "r", &OTHER).await.as_deref(), Some("1"));
            assert_eq!(world.notified(&table, "r", &BAL).await, 0);
            workers.stop().await;
            more.stop().await;
        });
    }
}

/// Two changes, and a hint at the first of them alone.
#[test]
fn h47_a_hint_at_an_older_change_goes_the_usual_way() {
    run(async |world, path| {
        let (one, other) = (client(&world, path).await, client(&world, path).await);
        let held = Held::begin(&one, Does::Counts, by_hints()).await;
        set(&one, &held.table, &[("r", "1")]).await;
        let newer = set(&other, &other.table("t").await.unwrap(), &[("r", "2")]).await;
        let table = held.table.clone();
        held.go_on().await;
        assert_eq!(get_column(&one, &table, "r", &COUNT).await.as_deref(), Some("1"));
        assert_eq!((one.stats().observer_runs, one.stats().observer_runs_hinted), (2, 1));
        assert_eq!(world.notified(&table, "r", &BAL).await, 0);
        assert!(acknowledged(&world, &table).await > newer);
    });
}

/// The start timestamp in the newest acknowledgement of the row.
async fn acknowledged(world: &World, table: &Table) -> Timestamp {
    let select = Selection::default().family(WRITE, TimeRange::ALL, 1);
    let row = world.raw_table(table).await.read_row(&"r".into(), &select).await.unwrap();
    let ack = row.newest(&WRITE, b"ack:o/bal").unwrap();
    Timestamp::new(u64::from_be_bytes(ack.value[..8].try_into().unwrap())).unwrap()
}

#[test]
fn h56_a_failing_hinted_run_counts_unless_its_change_was_handled() {
    run(async |world, path| {
        let options = WorkerOptions { failures_max: 1, ..by_hints() };
        let client = client(&world, path).await;
        let held = Held::begin(&client, Does::Fails, options).await;
        set(&client, &held.table, &[("r", "1")]).await;
        others_handle(&world, path, &held.table, "1").await;
        set(&client, &held.table, &[("s", "1")]).await;
        assert_eq!(held.count().await, "1");
        let table = held.table.clone();
        held.go_on().await;
        let stats = client.stats();
        assert_eq!((stats.observer_runs_hinted, stats.observer_failures), (3, 1));
        let aside = client.set_aside().await.unwrap();
        assert_eq!(aside.iter().map(|of| of.row.as_bytes()).collect::<Vec<_>>(), [b"s"]);
        assert_eq!(world.cells(&table, NOTIFY).await, 0);
    });
}
