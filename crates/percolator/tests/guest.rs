//! A database in an application's runtime does not block the other tasks of a thread.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
#![allow(clippy::print_stdout, reason = "the tests tell how long the pauses were")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bigtable_fjall::{FjallStore, counted};
use percolator::admin::GcOptions;
use percolator::runtime::{Runtime as _, TokioRuntime};
use percolator::{Attempt, Column, Durability, OpenOptions, Percolator, Result, RowKey, Table};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const BAL: Column = Column::literal("bal");
const TEXT: Column = Column::literal("text");
const CLIENTS: usize = 64;

fn row(n: usize) -> RowKey {
    RowKey::from(format!("row-{n:07}"))
}

/// A runtime whose only thread is this one.
fn one_thread() -> tokio::runtime::Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn open(dir: &std::path::Path, durability: Durability) -> Percolator {
    let gc = Some(GcOptions { retention: Duration::ZERO, ..GcOptions::default() });
    let options = OpenOptions { durability, gc, ..OpenOptions::default() };
    Percolator::open_with(dir, options).await.unwrap()
}

/// Runs clients that commit concurrently, each in its own rows, and read what they wrote.
async fn commit(db: &Percolator, table: &Table, rounds: usize, value: &[u8]) {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (db, table, value) = (db.clone(), table.clone(), value.to_vec());
        clients.spawn(async move {
            for round in 0..rounds {
                let row = row(client * rounds + round);
                let set = async |mut tx: Attempt| {
                    tx.set(&table, row.clone(), &TEXT, value.clone())?;
                    tx.set(&table, "all", &BAL, "1")
                };
                db.transact(set).await?;
                let found = db.snapshot().await?.get(&table, row, &TEXT).await?;
                assert_eq!(found.as_deref(), Some(&value[..]));
            }
            Result::<()>::Ok(())
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap().unwrap();
    }
}

/// The places in which this thread blocked while it polled a database that opens, commits,
/// takes timestamps and collects.
fn places(durability: Durability) -> Vec<&'static str> {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, mut kept) = (one_thread(), None);
    let places = counted::places(|| {
        kept = Some(runtime.block_on(async {
            let db = open(dir.path(), durability).await;
            let table = db.table("t").await.unwrap();
            commit(&db, &table, 10, b"short").await;
            // Fills several write buffers, each of which is sealed and written out.
            commit(&db, &table, 16, &vec![7; 60_000]).await;
            // Exceeds one reservation of the oracle.
            for _ in 0..1_100_000 {
                db.oracle().timestamp().await.unwrap();
            }
            let remove = async |mut tx: Attempt| {
                (0..CLIENTS * 10).try_for_each(|n| tx.delete(&table, row(n), &TEXT))
            };
            db.transact(remove).await.unwrap();
            // Collecting raises the floor and gives space back.
            db.gc(Duration::ZERO).await.unwrap();
            db
        }));
    });
    drop(kept);
    places
}

#[test]
fn no_future_waits_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let seen = counted::places(|| drop(FjallStore::open(dir.path(), Default::default())));
    let both = ["opening the store", "closing the store"];
    assert!(both.iter().all(|place| seen.contains(place)), "waits are counted: {seen:?}");
    for durability in [Durability::Sync, Durability::Buffered] {
        assert_eq!(places(durability), [""; 0], "{durability:?}");
    }
}

/// Tokio can time a task out only when the task is pending, and these reads always have an
/// answer.
#[test]
fn a_timeout_ends_reads_that_never_wait() {
    let dir = tempfile::tempdir().unwrap();
    one_thread().block_on(async {
        for db in [open(dir.path(), Durability::Sync).await, Percolator::in_memory().await.unwrap()]
        {
            let table = db.table("t").await.unwrap();
            let rows: Vec<RowKey> = (0..100).map(row).collect();
            let all = async |mut tx: Attempt| {
                rows.iter().try_for_each(|row| tx.set(&table, row.clone(), &BAL, "1"))
            };
            db.transact(all).await.unwrap();
            let snapshot = db.snapshot().await.unwrap();
            for kind in 0..5 {
                let endless = async {
                    loop {
                        match kind {
                            0 => drop(snapshot.get(&table, "row-0000001", &BAL).await.unwrap()),
                            1 => drop(snapshot.get_many(&table, &rows, &[BAL]).await.unwrap()),
                            2 => drop(snapshot.scan(&table).collect().await.unwrap()),
                            3 => drop(db.begin().await.unwrap()),
                            _ => {
                                let set = async |mut tx: Attempt| tx.set(&table, "one", &BAL, "1");
                                db.transact(set).await.unwrap();
                            }
                        }
                    }
                };
                let ended: std::result::Result<(), _> =
                    timeout(Duration::from_millis(100), endless).await;
                assert!(ended.is_err());
            }
        }
    });
}

/// The pauses of a ticker on the only thread of its runtime, in processor time of that thread.
/// Time in which the machine runs other programs does not count. Time in which a task keeps
/// the thread busy does.
#[derive(Debug)]
struct Ticked {
    ticks: u32,
    longest: Duration,
    all: Duration,
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Ticks while `work` runs.
async fn ticks(work: impl Future<Output = ()>) -> Ticked {
    let ended = Arc::new(AtomicBool::new(false));
    let ticker = tokio::spawn({
        let ended = ended.clone();
        async move {
            let (mut ticks, mut longest, mut last) = (0, Duration::ZERO, thread_time());
            while !ended.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(1)).await;
                let now = thread_time();
                (longest, last) = (longest.max(now - last), now);
                ticks += 1;
            }
            (ticks, longest)
        }
    });
    // Let the ticker begin before the work begins.
    tokio::task::yield_now().await;
    let began = thread_time();
    work.await;
    let all = thread_time() - began;
    ended.store(true, Ordering::Relaxed);
    let (ticks, longest) = ticker.await.unwrap();
    Ticked { ticks, longest, all }
}

/// A commit that its caller has dropped may wait for its turn when the caller's runtime has
/// stopped or ended.
#[test]
fn a_sleep_that_began_in_another_runtime_ends() {
    let own = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let runtime = own.block_on(async { TokioRuntime::current() });
    for ends in [false, true] {
        let caller = one_thread();
        let asleep = loop {
            let inside = caller.enter();
            let mut asleep = runtime.sleep(Duration::from_millis(50));
            drop(inside);
            // On a busy machine the sleep may end before its first poll; then try again.
            if caller.block_on(async { timeout(Duration::ZERO, &mut asleep).await }).is_err() {
                break asleep;
            }
        };
        let kept = (!ends).then_some(caller);
        let ended = own.block_on(async {
            tokio::spawn(async { timeout(Duration::from_secs(30), asleep).await }).await
        });
        assert!(matches!(ended, Ok(Ok(()))), "ends: {ends}: {ended:?}");
        drop(kept);
    }
}

/// Asserts that between two ticks the thread does at most a third of the whole work, however
/// busy the machine is. Waits for the disk take no processor time;
/// `no_future_waits_for_the_disk` counts those.
fn assert_ticks(ticked: &Ticked, beside: &str) {
    let Ticked { ticks, longest, all } = ticked;
    println!("beside {beside}: {ticks} ticks in {all:?}, the longest pause {longest:?}");
    assert!(*longest * 3 <= *all, "beside {beside}: {ticked:?}");
}

#[test]
fn a_ticker_ticks_beside_clients_that_commit() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let dir = tempfile::tempdir().unwrap();
        one_thread().block_on(async {
            let db = open(dir.path(), durability).await;
            let table = db.table("t").await.unwrap();
            let seen = ticks(commit(&db, &table, 50, b"value")).await;
            assert_ticks(&seen, &format!("{CLIENTS} clients, {durability:?}"));
        });
    }
}

/// `GUEST_ROWS` sets the number of rows; writing a million takes a while.
#[test]
fn a_long_scan_lets_others_run() {
    let rows = std::env::var("GUEST_ROWS").map_or(50_000, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    one_thread().block_on(async {
        let db = open(dir.path(), Durability::Buffered).await;
        let table = db.table("t").await.unwrap();
        for first in (0..rows).step_by(1000) {
            let some = async |mut tx: Attempt| {
                (first..first + 1000).try_for_each(|n| tx.set(&table, row(n), &BAL, "1"))
            };
            db.transact(some).await.unwrap();
        }
        let scan = async move || {
            let snapshot = db.snapshot().await.unwrap();
            let mut scan = snapshot.scan(&table);
            let mut found = 0;
            while scan.next().await.unwrap().is_some() {
                found += 1;
            }
            assert_eq!(found, rows);
        };
        let seen = ticks(scan()).await;
        assert_ticks(&seen, &format!("a scan of {rows} rows"));
        let seen = ticks(async { tokio::spawn(async move { scan().await }).await.unwrap() }).await;
        assert_ticks(&seen, &format!("a scan of {rows} rows in a task"));
    });
}
