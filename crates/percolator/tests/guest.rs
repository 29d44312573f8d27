//! A database in somebody's runtime: it keeps no thread from the other tasks.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
#![allow(clippy::print_stdout, reason = "the tests tell how long the pauses were")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bigtable_fjall::{FjallStore, counted};
use bigtable_grpc::{ClientOptions, GrpcStore, Server};
use percolator::{
    Attempt, Column, CommitPath, Durability, GcOptions, OpenOptions, Options, Percolator, Result,
    RowKey, Runtime as _, Table, TokioRuntime,
};
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

/// Clients that commit beside one another, each in rows of its own, and read what they wrote.
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

/// The places that this thread has come to while it polled: it opens, commits, takes timestamps, collects.
fn places(durability: Durability) -> Vec<&'static str> {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, mut kept) = (one_thread(), None);
    let places = counted::places(|| {
        kept = Some(runtime.block_on(async {
            let db = open(dir.path(), durability).await;
            let table = db.table("t").await.unwrap();
            commit(&db, &table, 10, b"short").await;
            // Several write buffers, each of which is sealed and written out.
            commit(&db, &table, 16, &vec![7; 60_000]).await;
            // More than one reservation of the oracle.
            for _ in 0..1_100_000 {
                db.oracle().timestamp().await.unwrap();
            }
            let remove = async |mut tx: Attempt| {
                (0..CLIENTS * 10).try_for_each(|n| tx.delete(&table, row(n), &TEXT))
            };
            db.transact(remove).await.unwrap();
            // It raises the floor, and gives space back.
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

/// A task that reads without end is never pending for want of an answer.
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

/// Ticks while something else runs; returns how often, and the longest pause between two ticks.
async fn ticks(work: impl Future<Output = ()>) -> (u32, Duration, Duration) {
    let ended = Arc::new(AtomicBool::new(false));
    let ticker = tokio::spawn({
        let ended = ended.clone();
        async move {
            let (mut ticks, mut longest, mut last) = (0, Duration::ZERO, Instant::now());
            while !ended.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(1)).await;
                longest = longest.max(last.elapsed());
                last = Instant::now();
                ticks += 1;
            }
            (ticks, longest)
        }
    });
    let began = Instant::now();
    work.await;
    let took = began.elapsed();
    ended.store(true, Ordering::Relaxed);
    let (ticks, longest) = ticker.await.unwrap();
    (ticks, longest, took)
}

/// The caller's runtime may have stopped, or ended, when a commit that it has let go of waits for
/// its turn.
#[test]
fn a_sleep_that_began_in_another_runtime_ends() {
    let own = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let runtime = own.block_on(async { TokioRuntime::current() });
    for ends in [false, true] {
        let caller = one_thread();
        let inside = caller.enter();
        let mut asleep = runtime.sleep(Duration::from_millis(50));
        drop(inside);
        caller.block_on(async {
            let polled = timeout(Duration::ZERO, &mut asleep).await;
            assert!(polled.is_err(), "it has only begun");
        });
        let kept = (!ends).then_some(caller);
        let ended = own.block_on(async {
            tokio::spawn(async { timeout(Duration::from_secs(30), asleep).await }).await
        });
        assert!(matches!(ended, Ok(Ok(()))), "ends: {ends}: {ended:?}");
        drop(kept);
    }
}

/// A ticker ticks every few milliseconds, however busy the machine is with other tests.
fn assert_ticks((ticks, longest, took): (u32, Duration, Duration), beside: &str) {
    println!("beside {beside}: {ticks} ticks in {took:?}, the longest pause {longest:?}");
    let few = took.as_millis() as u32 / 20;
    assert!(ticks >= few, "beside {beside}: {ticks} ticks in {took:?}");
}

#[test]
fn a_ticker_ticks_beside_clients_that_commit() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let dir = tempfile::tempdir().unwrap();
        one_thread().block_on(async {
            let db = open(dir.path(), durability).await;
            let table = db.table("t").await.unwrap();
            let seen = ticks(commit(&db, &table, 50, b"value")).await;
            assert_ticks(seen, &format!("{CLIENTS} clients, {durability:?}"));
        });
    }
}

/// `GUEST_ROWS` says how many; a million take a while to write.
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
        let snapshot = db.snapshot().await.unwrap();
        let seen = ticks(async {
            let mut scan = snapshot.scan(&table);
            let mut found = 0;
            while scan.next().await.unwrap().is_some() {
                found += 1;
            }
            assert_eq!(found, rows);
        })
        .await;
        assert_ticks(seen, &format!("a scan of {rows} rows"));
    });
}

const ACCOUNTS: usize = 16;
const HANG_UPS: usize = 1000;

/// Moves money between two accounts.
async fn transfer(db: &Percolator, table: &Table, from: usize, to: usize) -> Result<()> {
    db.transact(async |mut tx| {
        let amount = |value: Option<percolator::Bytes>| {
            value.map_or(100, |value| i64::from_be_bytes(value[..].try_into().unwrap()))
        };
        let (a, b) = (row(from), row(to));
        let rich = amount(tx.get(table, a.clone(), &BAL).await?);
        let poor = amount(tx.get(table, b.clone(), &BAL).await?);
        tx.set(table, a, &BAL, (rich - 1).to_be_bytes().to_vec())?;
        tx.set(table, b, &BAL, (poor + 1).to_be_bytes().to_vec())
    })
    .await
}

/// All money there is, and how long it took to read that.
async fn sum(db: &Percolator, table: &Table) -> Result<(i64, Duration)> {
    let began = Instant::now();
    let rows = db.snapshot().await?.scan(table).columns([BAL]).collect().await?;
    let of = |row: &percolator::ScannedRow| {
        i64::from_be_bytes(row.cells[0].1[..].try_into().unwrap()) - 100
    };
    Ok((rows.iter().map(of).sum(), began.elapsed()))
}

/// Callers that let go of their transactions at any moment, as clients of a service do that hang up. Returns
/// the longest wait of somebody who reads.
async fn hang_up(db: &Percolator, reader: &Percolator, longest_ms: u64) -> Duration {
    let table = db.table("accounts").await.unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let reading = tokio::spawn({
        let (reader, table, ended) =
            (reader.clone(), reader.table("accounts").await.unwrap(), ended.clone());
        async move {
            let mut longest = Duration::ZERO;
            while !ended.load(Ordering::Relaxed) {
                let (sum, took) = sum(&reader, &table).await.unwrap();
                assert_eq!(sum, 0, "money comes and goes");
                longest = longest.max(took);
                sleep(Duration::from_millis(1)).await;
            }
            longest
        }
    });
    let mut callers = JoinSet::new();
    for n in 0..HANG_UPS {
        while callers.len() >= 32 {
            callers.join_next().await.unwrap().unwrap();
        }
        let (db, table) = (db.clone(), table.clone());
        callers.spawn(async move {
            let (from, to) = (n % ACCOUNTS, (n * 7 + 1 + n / ACCOUNTS) % ACCOUNTS);
            let patience = Duration::from_micros(rand::random_range(0..longest_ms * 1000));
            if from != to {
                // Whether it ended in time is nothing to the test, nor whether it was in the way of others.
                let _ = timeout(patience, transfer(&db, &table, from, to)).await;
            }
        });
    }
    callers.join_all().await;
    ended.store(true, Ordering::Relaxed);
    let longest = reading.await.unwrap();
    let (sum, last) = sum(reader, &reader.table("accounts").await.unwrap()).await.unwrap();
    assert_eq!(sum, 0);
    let stats = db.stats();
    println!(
        "{HANG_UPS} callers, {} commits, {} aborts: the longest read took {:?}",
        stats.committed,
        stats.aborted,
        longest.max(last)
    );
    longest.max(last)
}

/// A lock lasts ten seconds: nobody waits for one of a caller that has gone.
const READ_MAX: Duration = Duration::from_secs(3);

#[test]
fn clients_that_hang_up_leave_nothing_that_others_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // In one step, and in the two phases that clusters take.
        for commit_path in [CommitPath::OneStep, CommitPath::TwoPhases] {
            let dir = dir.path().join(format!("{commit_path:?}"));
            let client = Options { commit_path, ..Options::default() };
            let options = OpenOptions { client, ..OpenOptions::default() };
            let db = Percolator::open_with(dir, options).await.unwrap();
            assert!(hang_up(&db, &db, 2).await < READ_MAX);
        }
    });
}

#[test]
fn clients_of_a_served_store_that_hang_up_leave_nothing_that_others_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = FjallStore::open(dir.path(), Default::default()).unwrap();
        let server = Server::over(store).await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("bigtable://{}/p/i", listener.local_addr().unwrap());
        let serving = tokio::spawn(server.serve(listener, std::future::pending()));
        let open = async || {
            let address = address.parse().unwrap();
            Arc::new(GrpcStore::open(&address, ClientOptions::default()).await.unwrap())
        };
        let db = Percolator::over(open().await, Options::default()).await.unwrap();
        // Another client of the same oracle.
        let reader = db.another_client().await.unwrap();
        assert!(hang_up(&db, &reader, 100).await < READ_MAX);
        serving.abort();
    });
}
