//! Closing a database: its directory can be opened again at once, and handles that are left
//! keep nothing open.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use percolator::{
    Change, Column, Durability, Error, Observer, OpenOptions, Percolator, Registration, Result,
    Transaction, WorkerOptions,
};

const BAL: Column = Column::literal("bal");
const COUNT: Column = Column::literal("f:count");

/// Copies the changed value, and counts its runs.
struct Copies(Arc<AtomicUsize>);

impl Observer for Copies {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        self.0.fetch_add(1, SeqCst);
        let value = tx.get(&change.table, &change.row, &BAL).await?.unwrap_or_default();
        tx.set(&change.table, &change.row, &COUNT, value)
    }
}

fn is_closed<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Closed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_database_is_opened_again_at_once_while_handles_of_it_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("db");
    let options = OpenOptions { durability: Durability::Buffered, ..OpenOptions::default() };
    let mut left = Vec::new();
    for round in 0..10u32 {
        let db = Percolator::open_with(&dir, options.clone()).await.unwrap();
        let table = db.table("t").await.unwrap();
        if let Some(last) = round.checked_sub(1) {
            let row = last.to_string();
            let found = db.snapshot().await.unwrap().get(&table, row, &BAL).await.unwrap();
            assert_eq!(found.as_deref(), Some(&b"7"[..]), "round {round}");
        }
        let runs = Arc::new(AtomicUsize::new(0));
        let copies = Registration::strong("copies", "t", &BAL, Copies(runs.clone()));
        let workers = db.observe(vec![copies], WorkerOptions::default()).await.unwrap();
        let other = db.another_client().await.unwrap();
        let open = other.begin().await.unwrap();
        for n in 0..50u32 {
            let (db, table) = (&db, &table);
            let row = format!("{round}-{n}");
            db.transact(async |mut tx| tx.set(table, row.as_str(), &BAL, "1")).await.unwrap();
        }
        db.transact(async |mut tx| tx.set(&table, round.to_string(), &BAL, "7")).await.unwrap();
        db.close().await.unwrap();
        assert!(is_closed(&db.begin().await) && is_closed(&other.begin().await));
        assert!(is_closed(&open.get(&table, "0", &BAL).await));
        assert!(is_closed(&other.table("another").await));
        db.close().await.unwrap();
        left.push((db, other, open, table, workers));
    }
}

/// A caller may still use a store that it handed over.
#[tokio::test]
async fn a_store_that_was_handed_over_stays_open() {
    let dir = tempfile::tempdir().unwrap();
    let open = || bigtable_fjall::FjallStore::open(dir.path().join("db"), Default::default());
    let store = Arc::new(open().unwrap());
    let db = Percolator::over(store.clone(), Default::default()).await.unwrap();
    db.close_within(Duration::from_secs(1)).await.unwrap();
    let again = Percolator::over(store.clone(), Default::default()).await.unwrap();
    let table = again.table("t").await.unwrap();
    again.transact(async |mut tx| tx.set(&table, "a", &BAL, "1")).await.unwrap();
    store.close().unwrap();
    let error = again.begin().await.unwrap().get(&table, "a", &BAL).await.unwrap_err();
    assert!(error.to_string().contains("the store was closed"), "{error}");
    open().unwrap();
}
