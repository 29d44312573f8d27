//! Clients that live, and are slow: nobody may roll them back before the lifetime of their locks is
//! over.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use percolator::{
    Client, Column, Durability, Error, OpenOptions, Options, Percolator, RowKey, Table,
};

use super::LIFETIME;
use crate::findings::Condition;
use crate::turns::{Block, Start, histogram, nanos};

const COLUMN: Column = Column::literal("v");
const OWNERS: u64 = 8;
const READERS: u64 = 4;
/// The longest pause between the phases, as a share of the lifetime.
const PAUSE: f64 = 0.4;

/// Owners, each of a cell of its own.
#[derive(Debug)]
pub(super) struct Live {
    db: Percolator,
    /// Whose locks have that lifetime.
    owner: Client,
    table: Table,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    /// Rolled back although their locks were younger than their lifetime.
    robbed: AtomicU64,
    /// Rolled back after it, which is allowed: the machine was too busy.
    late: AtomicU64,
    reads: AtomicU64,
}

fn row(owner: u64) -> RowKey {
    RowKey::from(format!("owner-{owner}"))
}

impl Live {
    pub(super) async fn create(dir: &Path) -> anyhow::Result<Self> {
        let durability = Durability::Buffered;
        let options = OpenOptions { durability, gc: None, ..OpenOptions::default() };
        let db = Percolator::open_with(dir, options).await?;
        let options = Options { lock_lifetime: LIFETIME, ..Options::default() };
        let owner = Client::open(db.services().clone(), options).await?;
        let table = db.table("cells").await?;
        Ok(Live { db, owner, table, counts: Arc::default() })
    }

    pub(super) async fn block(&mut self, length: Duration) -> anyhow::Result<Block> {
        let over = Arc::new(AtomicBool::new(false));
        let start = Start::now(None);
        let since = start.at();
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let (db, table) = (self.db.clone(), self.table.clone());
                let (over, counts) = (over.clone(), self.counts.clone());
                tokio::spawn(read(db, table, reader, over, counts))
            })
            .collect();
        let owners = (0..OWNERS).map(|number| {
            let (client, table) = (self.owner.clone(), self.table.clone());
            tokio::spawn(own(client, table, number, self.counts.clone(), (since, length)))
        });
        let done = futures::future::try_join_all(owners).await?;
        let spent = start.spent();
        over.store(true, Ordering::Relaxed);
        for reader in futures::future::try_join_all(readers).await? {
            reader?;
        }
        let mut block = Block { operations: 0, spent, latencies: histogram() };
        for latencies in done {
            for nanos in latencies? {
                block.latencies.saturating_record(nanos);
                block.operations += 1;
            }
        }
        Ok(block)
    }

    pub(super) async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { committed, robbed, late, reads } = &*self.counts;
        let (committed, robbed) = (count(committed), count(robbed));
        let snapshot = self.db.snapshot().await?;
        let mut held = 0;
        for owner in 0..OWNERS {
            let value = snapshot.get(&self.table, row(owner), &COLUMN).await?;
            held += number(value.as_deref());
        }
        let found = format!(
            "{committed} commits among {} reads, {robbed} rolled back too early, {} after the lifetime",
            count(reads),
            count(late),
        );
        let told = format!("{committed} commits, {held} counted");
        Ok(vec![
            Condition::new("no client that lives was rolled back", robbed == 0, found),
            Condition::new("every commit of those is there", committed == held, told),
        ])
    }
}

fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// Reads all cells in turns, and waits for their locks, until it is over.
async fn read(
    db: Percolator,
    table: Table,
    from: u64,
    over: Arc<AtomicBool>,
    counts: Arc<Counts>,
) -> anyhow::Result<()> {
    let mut at = from;
    while !over.load(Ordering::Relaxed) {
        db.snapshot().await?.get(&table, row(at % OWNERS), &COLUMN).await?;
        counts.reads.fetch_add(1, Ordering::Relaxed);
        at += 1;
        // Readers that meet no lock leave room for the owners.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// One slow transaction after the other.
async fn own(
    client: Client,
    table: Table,
    number: u64,
    counts: Arc<Counts>,
    (since, length): (Instant, Duration),
) -> anyhow::Result<Vec<u64>> {
    let mut latencies = Vec::new();
    let mut step = number;
    while since.elapsed() < length {
        // Longer and shorter ones, from none to the longest.
        step = (step + 3) % OWNERS;
        let pause = LIFETIME.mul_f64(PAUSE * step as f64 / (OWNERS - 1) as f64);
        let begun = Instant::now();
        match slow(&client, &table, number, pause).await {
            Ok(()) => {
                counts.committed.fetch_add(1, Ordering::Relaxed);
                latencies.push(nanos(begun.elapsed()));
            }
            // Nobody else writes this cell.
            Err(Error::Aborted { .. }) if begun.elapsed() < LIFETIME => {
                counts.robbed.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::Aborted { .. }) => {
                counts.late.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(latencies)
}

async fn slow(
    client: &Client,
    table: &Table,
    owner: u64,
    pause: Duration,
) -> percolator::Result<()> {
    let mut tx = client.begin().await?;
    let count = number(tx.get(table, row(owner), &COLUMN).await?.as_deref()) + 1;
    tx.set(table, row(owner), &COLUMN, count.to_be_bytes().to_vec())?;
    let prewritten = tx.prewrite().await?;
    tokio::time::sleep(pause).await;
    prewritten.commit_primary().await?.commit_secondaries().await;
    Ok(())
}
