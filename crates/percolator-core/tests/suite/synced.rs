//! Tests workers over a store in which each commit waits for a disk, and one wait serves all
//! commits that come meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bigtable::layer::StoreLayer;
use bigtable::{CommitRows, MemoryStore, RowsOutcome, Store};
use percolator_core::testing::VirtualRuntime;
use percolator_core::{
    Client, Column, Observer, Options, Registration, Runtime, Services, Table, WorkerOptions,
    Workers,
};

use crate::world::{BAL, World, add, get_column, observer, run, set};

const SUM: Column = Column::literal("sum");
const THREADS: usize = 2;
const ROWS: usize = 64;
/// The time that an observer and a disk take.
const RUN: Duration = Duration::from_millis(1);
const SYNC: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Synced {
    inner: MemoryStore,
    runtime: VirtualRuntime,
    shares_syncs: bool,
}

impl StoreLayer for Synced {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn shares_syncs(&self) -> bool {
        self.shares_syncs
    }

    async fn commit_rows(&self, request: CommitRows) -> bigtable::Result<RowsOutcome> {
        self.runtime.sleep(SYNC).await;
        self.inner.commit_rows(request).await
    }

    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> Result<bigtable::Result<RowsOutcome>, CommitRows> {
        Err(request)
    }
}

fn services(world: &World, shares_syncs: bool) -> Services {
    let (inner, runtime) = (MemoryStore::new(), world.runtime.clone());
    Services {
        store: Arc::new(Synced { inner, runtime, shares_syncs }),
        oracle: world.oracle.clone(),
        locks: world.locks.clone(),
        runtime: Arc::new(world.runtime.clone()),
    }
}

async fn client(services: &Services) -> Client {
    Client::open(services.clone(), Options::default()).await.unwrap()
}

/// The counts of all observers of a test.
#[derive(Debug, Default)]
struct Counts {
    now: AtomicUsize,
    /// The most runs at a time, without their commits, and all of them.
    most: AtomicUsize,
    runs: AtomicUsize,
}

/// An observer that adds 1 to the changed row's sum, or to one row's.
fn sums(world: &World, counts: &Arc<Counts>, into: Option<&'static str>) -> impl Observer + use<> {
    let (runtime, counts) = (world.runtime.clone(), counts.clone());
    observer(move |tx, change| {
        let (counts, sleep) = (counts.clone(), runtime.sleep(RUN));
        let row = into.map_or(change.row.clone(), Into::into);
        Box::pin(async move {
            counts.runs.fetch_add(1, SeqCst);
            counts.most.fetch_max(counts.now.fetch_add(1, SeqCst) + 1, SeqCst);
            sleep.await;
            counts.now.fetch_sub(1, SeqCst);
            add(tx, &change.table, row, &SUM, 1).await
        })
    })
}

async fn observe(client: &Client, observers: Vec<Registration>) -> Workers {
    let options = WorkerOptions { threads: THREADS, ..WorkerOptions::default() };
    client.observe(observers, options).await.unwrap()
}

/// Changes a cell in each row.
async fn change_all(client: &Client) -> Table {
    let table = client.table("t").await.unwrap();
    let rows: Vec<String> = rows().collect();
    let cells: Vec<(&str, &str)> = rows.iter().map(|row| (row.as_str(), "1")).collect();
    set(client, &table, &cells).await;
    table
}

fn rows() -> impl Iterator<Item = String> {
    (0..ROWS).map(|n| format!("{n:02}"))
}

async fn sum(client: &Client, table: &Table, row: &str) -> usize {
    let sum = get_column(client, table, row, &SUM).await;
    sum.map_or(0, |sum| sum.parse().unwrap())
}

/// How long all runs took, the most runs at a time, and how many there were.
async fn go(
    world: &World,
    shares_syncs: bool,
    into: Option<&'static str>,
) -> (Duration, [usize; 2]) {
    let client = client(&services(world, shares_syncs)).await;
    let counts = Arc::default();
    let strong = Registration::strong("sums", "t", &BAL, sums(world, &counts, into));
    let workers = observe(&client, vec![strong]).await;
    let table = change_all(&client).await;
    let since = world.runtime.now();
    assert!(client.wait_idle(Some(LONG)).await.unwrap().idle);
    let took = world.runtime.now() - since;
    workers.stop().await;
    match into {
        Some(row) => assert_eq!(sum(&client, &table, row).await, ROWS),
        None => {
            for row in rows() {
                assert_eq!(sum(&client, &table, &row).await, 1, "{row}");
            }
        }
    }
    (took, [&counts.most, &counts.runs].map(|count| count.load(SeqCst)))
}

#[test]
fn observers_run_while_the_commits_of_others_wait_for_the_disk() {
    let (alone, counts) = run(async |world| go(&world, false, None).await);
    assert!(alone > SYNC * (ROWS / THREADS) as u32, "each run waits: {alone:?}");
    assert_eq!(counts, [THREADS, ROWS]);
    let (together, counts) = run(async |world| go(&world, true, None).await);
    assert!(together < 6 * SYNC, "{together:?}");
    assert_eq!(counts, [THREADS, ROWS]);
}

#[test]
fn conflicts_narrow_the_window_of_a_hot_cell() {
    let (alone, [_, runs_alone]) = run(async |world| go(&world, false, Some("sum")).await);
    let (together, [_, runs]) = run(async |world| go(&world, true, Some("sum")).await);
    assert!(runs < 2 * runs_alone, "{runs} and {runs_alone} runs");
    assert!(together < alone * 3 / 2, "{together:?} and {alone:?}");
}

#[test]
fn changes_of_another_process_are_handled_together_too() {
    run(async |world| {
        let services = services(&world, true);
        let (worker, writer) = (client(&services).await, client(&services).await);
        let counts = Arc::default();
        let strong = Registration::strong("sums", "t", &BAL, sums(&world, &counts, None));
        let workers = observe(&worker, vec![strong]).await;
        world.sleep_ms(10_000).await;
        let table = change_all(&writer).await;
        let since = world.runtime.now();
        assert!(worker.wait_idle(Some(LONG)).await.unwrap().idle);
        let took = world.runtime.now() - since;
        assert!(took < Duration::from_secs(2) + 6 * SYNC, "a scan, and then its hints: {took:?}");
        for row in rows() {
            assert_eq!(sum(&worker, &table, &row).await, 1, "{row}");
        }
        assert_eq!(counts.most.load(SeqCst), THREADS);
        workers.stop().await;
    });
}

#[test]
fn two_observers_of_a_column_have_no_more_runs_at_a_time() {
    run(async |world| {
        let client = client(&services(&world, true)).await;
        let counts = Arc::default();
        let strong = |name| Registration::strong(name, "t", &BAL, sums(&world, &counts, None));
        let workers = observe(&client, vec![strong("one"), strong("other")]).await;
        let table = change_all(&client).await;
        assert!(client.wait_idle(Some(LONG)).await.unwrap().idle);
        workers.stop().await;
        for row in rows() {
            assert_eq!(sum(&client, &table, &row).await, 2, "{row}");
        }
        assert_eq!(counts.most.load(SeqCst), THREADS);
    });
}

#[test]
fn stopping_waits_for_the_commits_that_have_begun() {
    run(async |world| {
        let client = client(&services(&world, true)).await;
        let counts = Arc::default();
        let strong = Registration::strong("sums", "t", &BAL, sums(&world, &counts, None));
        let workers = observe(&client, vec![strong]).await;
        let table = change_all(&client).await;
        world.sleep_ms(10).await;
        let begun = counts.runs.load(SeqCst);
        assert!((3..ROWS).contains(&begun), "{begun} runs");
        assert_eq!(workers.stop_within(LONG).await, 0);
        let mut done = 0;
        for row in rows() {
            done += sum(&client, &table, &row).await;
        }
        assert_eq!(done, begun);
        assert_eq!(client.backlog().await.unwrap()[0].cells, ROWS - begun);
    });
}

#[test]
fn h73_a_change_whose_observer_hangs_is_handled_by_another_worker() {
    run(async |world| {
        let client = client(&services(&world, true)).await;
        let runs = Arc::new(AtomicUsize::new(0));
        let (counted, runtime) = (runs.clone(), world.runtime.clone());
        let hangs_once = observer(move |tx, change| {
            let first = counted.fetch_add(1, SeqCst) == 0;
            let sleep = runtime.sleep(if first { LONG } else { RUN });
            Box::pin(async move {
                sleep.await;
                add(tx, &change.table, change.row.clone(), &SUM, 1).await
            })
        });
        let second = Duration::from_secs(1);
        let options = WorkerOptions {
            threads: THREADS,
            row_lock_lifetime: second,
            run_max: 2 * second,
            ..WorkerOptions::default()
        };
        let strong = Registration::strong("sums", "t", &BAL, hangs_once);
        let workers = client.observe(vec![strong], options).await.unwrap();
        let table = client.table("t").await.unwrap();
        set(&client, &table, &[("a", "1")]).await;
        world.sleep_ms(10_000).await;
        assert_eq!(sum(&client, &table, "a").await, 1);
        assert_eq!(runs.load(SeqCst), 2);
        assert_eq!(workers.stop_within(second).await, 1);
    });
}

#[test]
fn scans_leave_a_failing_change_alone_and_find_the_others() {
    run(async |world| {
        let services = services(&world, true);
        let (worker, writer) = (client(&services).await, client(&services).await);
        let tried = Arc::new(AtomicUsize::new(0));
        let counted = tried.clone();
        let picky = observer(move |tx, change| {
            let counted = counted.clone();
            Box::pin(async move {
                if change.row == percolator_core::RowKey::from("00") {
                    counted.fetch_add(1, SeqCst);
                    return Err(percolator_core::Error::application("not this one"));
                }
                add(tx, &change.table, change.row.clone(), &SUM, 1).await
            })
        });
        let options = WorkerOptions {
            failure_delay: Duration::from_secs(5),
            failures_max: 3,
            ..WorkerOptions::default()
        };
        let strong = Registration::strong("sums", "t", &BAL, picky);
        let workers = worker.observe(vec![strong], options).await.unwrap();
        world.sleep_ms(5_000).await;
        let table = change_all(&writer).await;
        world.sleep_ms(4_000).await;
        for row in rows().skip(1) {
            assert_eq!(sum(&worker, &table, &row).await, 1, "{row}");
        }
        assert_eq!(tried.load(SeqCst), 1);
        world.sleep_ms(60_000).await;
        assert_eq!(tried.load(SeqCst), 3, "then it is set aside");
        workers.stop().await;
    });
}

#[test]
fn a_bound_of_runs_counts_those_that_commit() {
    run(async |world| {
        let client = client(&services(&world, true)).await;
        let counts = Arc::default();
        let sums = sums(&world, &counts, None);
        let strong = Registration::strong("sums", "t", &BAL, sums).runs_max(4);
        let workers = observe(&client, vec![strong]).await;
        change_all(&client).await;
        let since = world.runtime.now();
        assert!(client.wait_idle(Some(LONG)).await.unwrap().idle);
        let took = world.runtime.now() - since;
        assert!(took > SYNC * (ROWS / 4) as u32, "{took:?}");
        assert_eq!(counts.runs.load(SeqCst), ROWS);
        workers.stop().await;
    });
}
