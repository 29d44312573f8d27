//! Tests a commit that takes longer than the lifetime of its locks, and is kept alive by its
//! heartbeat.
//!
//! The store beneath is slowed down: it changes many rows in parts, with a pause after each. A
//! slow server behind a network would do the same.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{ConditionalMutation, Store};
use bigtable_fjall::FjallStore;
use percolator::{Client, Error, Options, Percolator, Table};
use percolator_cli::store::Commit;

use super::super::bed::{self, COLUMN, key};
use crate::report::Condition;

/// The lifetime of the transaction's locks.
const LIFETIME: Duration = Duration::from_millis(600);
/// Each phase has this many parts with a pause after each; together longer than the locks'
/// lifetime.
const PARTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(150);

/// Commits a large transaction slowly while a reader finds its locks.
pub(super) async fn run(dir: &Path, cells: usize) -> anyhow::Result<Condition> {
    let store = bed::store(dir, None)?;
    let db = Percolator::over(store.clone(), Options::default()).await?;
    let slowed =
        percolator::runtime::Services { store: Arc::new(Slowed(store)), ..db.services().clone() };
    let options = Options { lock_lifetime: LIFETIME, ..Commit::TwoPhases.options() };
    let owner = Client::open(slowed, options).await?;
    let (table, slow) = (db.table("cells").await?, owner.table("cells").await?);
    let mut tx = owner.begin().await?;
    for cell in 0..cells {
        tx.set(&slow, key(cell), &COLUMN, "v")?;
    }
    let over = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(meet(db.clone(), table, cells, over.clone()));
    let since = Instant::now();
    let committed = tx.commit().await;
    let took = since.elapsed();
    over.store(true, Ordering::Relaxed);
    reader.await??;
    let told = match &committed {
        Ok(_) => "committed".to_owned(),
        Err(error) => error.to_string(),
    };
    let (heartbeats, robbed) = (owner.stats().heartbeats, db.stats().rolled_back);
    let found = format!(
        "{cells} cells in {} ms, locks that expire after {} ms, {} of them found, {heartbeats} \
         heartbeats, {robbed} transactions rolled back: {told}",
        took.as_millis(),
        LIFETIME.as_millis(),
        db.stats().locks_met,
    );
    let ok = committed.is_ok() && robbed == 0 && heartbeats > 0 && took > LIFETIME;
    Ok(Condition::new("a slow commit is kept alive by its heartbeat", ok, found))
}

/// Reads cells of the transaction, and so waits for its locks.
async fn meet(
    db: Percolator,
    table: Table,
    cells: usize,
    over: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let mut at = 0;
    while !over.load(Ordering::Relaxed) {
        at = (at + 7919) % cells;
        match db.snapshot().await?.get(&table, key(at), &COLUMN).await {
            Ok(_) | Err(Error::Locked { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

#[derive(Debug)]
struct Slowed(Arc<FjallStore>);

impl StoreLayer for Slowed {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn table(&self, table: Arc<dyn bigtable::Table>) -> Arc<dyn bigtable::Table> {
        Arc::new(SlowedTable(table))
    }
}

#[derive(Debug)]
struct SlowedTable(Arc<dyn bigtable::Table>);

impl TableLayer for SlowedTable {
    fn inner(&self) -> &dyn bigtable::Table {
        &*self.0
    }

    async fn check_and_mutate_rows(
        &self,
        requests: Vec<ConditionalMutation>,
    ) -> Vec<bigtable::Result<bool>> {
        let mut results = Vec::with_capacity(requests.len());
        for part in requests.chunks(requests.len().div_ceil(PARTS).max(1)) {
            results.extend(self.0.check_and_mutate_rows(part.to_vec()).await);
            tokio::time::sleep(PAUSE).await;
        }
        results
    }
}
