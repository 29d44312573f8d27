//! Tests slow clients that are alive: nobody may roll them back before the lifetime of their
//! locks is over.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use percolator::{Client, Error, Options, Percolator, RowKey, Table};

use super::super::bed::{COLUMN, cell, number, open};
use super::LIFETIME;
use crate::callers::{AsyncCaller, call};
use crate::report::Condition;
use crate::turns::{Block, Others};

const OWNERS: u64 = 8;
const READERS: u64 = 4;
/// Longest pause between the phases, as a share of the lifetime.
const PAUSE: f64 = 0.4;

/// Slow owners, each with a cell of its own.
#[derive(Debug)]
pub(super) struct Live {
    db: Percolator,
    /// The client whose locks have that lifetime.
    owner: Client,
    table: Table,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    /// Commits rolled back although their locks were younger than their lifetime.
    robbed: AtomicU64,
    /// Commits rolled back after that. This is allowed: the machine was too busy.
    late: AtomicU64,
    reads: AtomicU64,
}

fn row(owner: u64) -> RowKey {
    RowKey::from(format!("owner-{owner}"))
}

impl Live {
    pub(super) async fn create(dir: &Path) -> anyhow::Result<Self> {
        let db = open(dir).await?;
        let options = Options { lock_lifetime: LIFETIME, ..Options::default() };
        let owner = Client::open(db.services().clone(), options).await?;
        let table = db.table("cells").await?;
        Ok(Live { db, owner, table, counts: Arc::default() })
    }

    pub(super) async fn block(&mut self, length: Duration) -> anyhow::Result<Block> {
        let over = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let (db, table) = (self.db.clone(), self.table.clone());
                let (over, counts) = (over.clone(), self.counts.clone());
                tokio::spawn(read(db, table, reader, over, counts))
            })
            .collect();
        let owner = |number: u64| Owner {
            client: self.owner.clone(),
            table: self.table.clone(),
            number,
            step: number,
            counts: self.counts.clone(),
        };
        let called = call(Others::Nobody, (0..OWNERS).map(owner), length).await?;
        over.store(true, Ordering::Relaxed);
        for reader in futures::future::try_join_all(readers).await? {
            reader?;
        }
        Ok(called.block)
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

/// Reads all cells in turns, and waits for their locks, until the end.
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
        // A pause, so that readers without locks to wait for leave processor time to the
        // owners.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// A caller that commits slow transactions on its own cell.
struct Owner {
    client: Client,
    table: Table,
    number: u64,
    step: u64,
    counts: Arc<Counts>,
}

impl AsyncCaller for Owner {
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        // Pauses of all lengths, from none to the longest.
        self.step = (self.step + 3) % OWNERS;
        let pause = LIFETIME.mul_f64(PAUSE * self.step as f64 / (OWNERS - 1) as f64);
        let begun = Instant::now();
        let counts = &self.counts;
        let (count, committed) = match self.slow(pause).await {
            Ok(()) => (&counts.committed, true),
            // No other client writes this cell, so only a reader can have rolled it back.
            Err(Error::Aborted { .. }) if begun.elapsed() < LIFETIME => (&counts.robbed, false),
            Err(Error::Aborted { .. }) => (&counts.late, false),
            Err(error) => return Err(error.into()),
        };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(committed)
    }
}

impl Owner {
    async fn slow(&self, pause: Duration) -> percolator::Result<()> {
        let Owner { client, table, number: owner, .. } = self;
        let mut tx = client.begin().await?;
        let count = number(tx.get(table, row(*owner), &COLUMN).await?.as_deref()) + 1;
        tx.set(table, row(*owner), &COLUMN, cell(count))?;
        let prewritten = tx.prewrite().await?;
        tokio::time::sleep(pause).await;
        prewritten.commit_primary().await?.commit_secondaries().await;
        Ok(())
    }
}
