//! Garbage collection gives space back, on disk and in memory. In the background it runs by
//! itself, and a close does not wait for it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::Path;
use std::time::{Duration, Instant};

use percolator::admin::GcOptions;
use percolator::{Bytes, Column, Durability, OpenOptions, Percolator, Result, RowKey, Table};

const BAL: Column = Column::literal("bal");
const TEXT: Column = Column::literal("doc:text");
const CELLS: u32 = 1000;
const ROUNDS: u32 = 100;
/// How many of the rows also have a long value.
const LONG: u32 = 12;
const VALUE: [u8; 100] = [b'v'; 100];

fn row(n: u32) -> RowKey {
    RowKey::from(format!("account-{n:06}"))
}

/// A value that does not compress.
fn noise(n: u32, len: usize) -> Bytes {
    let mut x = u64::from(n) + 1;
    let bytes = (0..len).map(|_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    });
    bytes.collect::<Vec<u8>>().into()
}

/// Overwrites every cell once, in one transaction.
async fn overwrite(db: &Percolator, table: &Table, round: u32) -> Result<()> {
    db.transact(async |mut tx| {
        for n in 0..CELLS {
            let mut value = noise(n * ROUNDS + round, VALUE.len()).to_vec();
            value[0] = round as u8;
            tx.set(table, row(n), &BAL, value)?;
        }
        // Some long values, which are stored separately from their keys.
        for n in 0..LONG {
            tx.set(table, row(n), &TEXT, noise(n * ROUNDS + round, 8 * 1024))?;
        }
        Ok(())
    })
    .await
}

/// The bytes of all files below a directory, except for the engine's journal: its files have a
/// fixed size and are used again.
fn bytes_below(dir: &Path) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        // A file may have been deleted since it was listed.
        let Ok(entry) = entry else { continue };
        let Ok(meta) = entry.metadata() else { continue };
        let journal = entry.file_name().to_string_lossy().ends_with(".jnl");
        sum += match meta.is_dir() {
            true => bytes_below(&entry.path()),
            false if journal => 0,
            false => meta.len(),
        };
    }
    sum
}

fn buffered(gc: Option<GcOptions>) -> OpenOptions {
    OpenOptions { durability: Durability::Buffered, gc, ..OpenOptions::default() }
}

/// The bytes of keys, columns and values that the application has stored.
fn live_bytes() -> u64 {
    let short = u64::from(CELLS) * (row(0).as_bytes().len() + 3 + VALUE.len()) as u64;
    short + u64::from(LONG) * (row(0).as_bytes().len() + 8 + 8 * 1024) as u64
}

async fn check(db: &Percolator, table: &Table) {
    let snapshot = db.snapshot().await.unwrap();
    let rows = snapshot.scan(table).collect().await.unwrap();
    assert_eq!(rows.len(), CELLS as usize);
    assert!(rows.iter().all(|row| row.cells[0].1[0] == (ROUNDS - 1) as u8));
    let text = snapshot.get(table, row(3), &TEXT).await.unwrap();
    assert_eq!(text, Some(noise(3 * ROUNDS + ROUNDS - 1, 8 * 1024)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_after_many_overwrites_returns_to_twice_the_live_data() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    let db = Percolator::open_with(&dir, buffered(None)).await.unwrap();
    let table = db.table("accounts").await.unwrap();
    for round in 0..ROUNDS {
        overwrite(&db, &table, round).await.unwrap();
    }
    let report = db.gc(Duration::ZERO).await.unwrap();
    assert_eq!(report.counts.writes, u64::from((ROUNDS - 1) * (CELLS + LONG)));
    let after = bytes_below(&dir);
    assert!(after <= 2 * live_bytes(), "{after} bytes on disk, {} live", live_bytes());
    check(&db, &table).await;
    drop((db, table));
    let db = Percolator::open_with(&dir, buffered(None)).await.unwrap();
    check(&db, &db.table("accounts").await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory_one_version_of_each_cell_is_left() {
    let db = Percolator::in_memory().await.unwrap();
    let table = db.table("accounts").await.unwrap();
    for round in ROUNDS - 20..ROUNDS {
        overwrite(&db, &table, round).await.unwrap();
    }
    let report = db.gc(Duration::ZERO).await.unwrap();
    assert_eq!(report.counts.values, u64::from(19 * LONG));
    for n in [0, CELLS - 1] {
        // The write record, and the data that it refers to.
        assert_eq!(db.cell_history(&table, row(n), &BAL).await.unwrap().len(), 2);
    }
    check(&db, &table).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_background_collects_by_itself_and_a_close_does_not_wait_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    let soon = Duration::from_millis(100);
    let gc = GcOptions { retention: soon, interval: soon, share: 0.5 };
    let db = Percolator::open_with(&dir, buffered(Some(gc.clone()))).await.unwrap();
    let table = db.table("accounts").await.unwrap();
    for round in 0..5 {
        overwrite(&db, &table, round).await.unwrap();
    }
    let since = Instant::now();
    while db.cell_history(&table, row(CELLS - 1), &BAL).await.unwrap().len() > 2 {
        assert!(since.elapsed() < Duration::from_secs(60), "nothing was collected");
        tokio::time::sleep(soon / 10).await;
    }
    drop(table);
    for _ in 0..5 {
        let table = db.table("accounts").await.unwrap();
        overwrite(&db, &table, 7).await.unwrap();
    }
    // Whether a round is running or not, the directory is free at once.
    drop(db);
    for _ in 0..3 {
        let db = Percolator::open_with(&dir, buffered(Some(gc.clone()))).await.unwrap();
        db.begin().await.unwrap();
        drop(db);
    }
}
