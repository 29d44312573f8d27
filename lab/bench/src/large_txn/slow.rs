//! A commit that takes longer than its locks live, and is kept alive by its heartbeat.
//!
//! The store beneath is slowed down: of many rows it changes some at a time, with a pause after
//! each, as a network with a slow server would.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bigtable::{ConditionalMutation, Page, PageLimit, Row, RowMutation, RowRange};
use bigtable::{Selection, Store, TableSchema, Timestamp};
use bigtable_fjall::FjallStore;
use percolator::store::async_trait;
use percolator::{Client, Column, Durability, Error, Options, Percolator, RowKey, Table};
use percolator_cli::store::Commit;

use crate::findings::Condition;

const COLUMN: Column = Column::literal("v");
/// How long the transaction's locks live.
const LIFETIME: Duration = Duration::from_millis(600);
/// Each phase comes in so many parts, and after each is a pause: longer together than the locks
/// live.
const PARTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(150);

fn row(cell: usize) -> RowKey {
    RowKey::from(format!("{cell:024}"))
}

/// Commits a large transaction slowly while somebody meets its locks.
pub(super) async fn run(dir: &Path, cells: usize) -> anyhow::Result<Condition> {
    let options = bigtable_fjall::Options {
        durability: Durability::Buffered,
        ..bigtable_fjall::Options::default()
    };
    let store = Arc::new(FjallStore::open(dir, options)?);
    let db = Percolator::over(store.clone(), Options::default()).await?;
    let slowed =
        percolator::runtime::Services { store: Arc::new(Slowed(store)), ..db.services().clone() };
    let options = Options { lock_lifetime: LIFETIME, ..Commit::TwoPhases.options() };
    let owner = Client::open(slowed, options).await?;
    let (table, slow) = (db.table("cells").await?, owner.table("cells").await?);
    let mut tx = owner.begin().await?;
    for cell in 0..cells {
        tx.set(&slow, row(cell), &COLUMN, "v")?;
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
        "{cells} cells in {} ms, locks that live {} ms, {} of them met, {heartbeats} heartbeats, {robbed} \
         transactions rolled back: {told}",
        took.as_millis(),
        LIFETIME.as_millis(),
        db.stats().locks_met,
    );
    let ok = committed.is_ok() && robbed == 0 && heartbeats > 0 && took > LIFETIME;
    Ok(Condition::new("a slow commit is kept alive by its heartbeat", ok, found))
}

/// Reads cells of the transaction, and waits for its locks.
async fn meet(
    db: Percolator,
    table: Table,
    cells: usize,
    over: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let mut at = 0;
    while !over.load(Ordering::Relaxed) {
        at = (at + 7919) % cells;
        match db.snapshot().await?.get(&table, row(at), &COLUMN).await {
            Ok(_) | Err(Error::Locked { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// A store with slow tables.
#[derive(Debug)]
struct Slowed(Arc<FjallStore>);

#[async_trait]
impl Store for Slowed {
    async fn open_table(
        &self,
        name: &str,
        schema: &TableSchema,
    ) -> bigtable::Result<Arc<dyn bigtable::Table>> {
        Ok(Arc::new(SlowedTable(self.0.open_table(name, schema).await?)))
    }

    async fn table_names(&self) -> bigtable::Result<Vec<String>> {
        self.0.table_names().await
    }

    fn floor(&self) -> Timestamp {
        self.0.floor()
    }

    async fn raise_floor(&self, floor: Timestamp) -> bigtable::Result<()> {
        self.0.raise_floor(floor).await
    }
}

#[derive(Debug)]
struct SlowedTable(Arc<dyn bigtable::Table>);

#[async_trait]
impl bigtable::Table for SlowedTable {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> bigtable::Result<Row> {
        self.0.read_row(row, select).await
    }

    async fn scan(
        &self,
        range: &RowRange,
        select: &Selection,
        limit: PageLimit,
    ) -> bigtable::Result<Page> {
        self.0.scan(range, select, limit).await
    }

    async fn mutate_row(&self, request: RowMutation) -> bigtable::Result<()> {
        self.0.mutate_row(request).await
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> bigtable::Result<bool> {
        self.0.check_and_mutate_row(request).await
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
