//! Measures the notifications a second that an observer processes if it does nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use percolator::{
    Bytes, Change, Column, Durability, Observer, Percolator, Registration, Table, Transaction,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, watch};

use super::super::bed::{VALUE_BYTES, key, open_with, write};
use super::workers::{WORKERS, idle_workers};
use crate::callers::{AsyncCaller, call, committed};
use crate::report::Condition;
use crate::turns::{Block, Others, Start, nanos};

const TABLE: &str = "cells";
/// The observed column, and the one that the transactions write.
const OBSERVED: Column = Column::literal("observed");
const PLAIN: Column = Column::literal("plain");
/// Dirty cells of the first turn, and the most of any turn.
const CELLS: usize = 500;
const CELLS_MAX: usize = 100_000;
/// Longest wait for the last observer.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Throughput {
    db: Percolator,
    table: Table,
    random: SmallRng,
    /// Number of dirty cells at the beginning of the next turn.
    cells: usize,
    changes: u64,
    commits: u64,
}

/// An observer that reads its cell once the gate is open.
struct NoOp {
    gate: watch::Receiver<bool>,
    ended: Arc<Ended>,
}

/// The number of finished runs, and the signal for the last one.
#[derive(Debug, Default)]
struct Ended {
    runs: AtomicU64,
    wanted: AtomicU64,
    all: Notify,
}

impl Observer for NoOp {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        if !*self.gate.borrow() {
            // The sender lives until the workers have stopped.
            let _ = self.gate.clone().wait_for(|open| *open).await;
        }
        change.value(tx).await?;
        if self.ended.runs.fetch_add(1, Ordering::Relaxed) + 1
            == self.ended.wanted.load(Ordering::Relaxed)
        {
            self.ended.all.notify_one();
        }
        Ok(())
    }
}

struct Writer {
    db: Percolator,
    table: Table,
    random: SmallRng,
    cells: usize,
}

impl AsyncCaller for Writer {
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        let mut tx = self.db.begin().await?;
        let row = key(self.random.random_range(0..self.cells));
        tx.set(&self.table, row, &PLAIN, Bytes::from_static(&[7; VALUE_BYTES]))?;
        committed(tx.commit().await)
    }
}

impl Throughput {
    pub(super) async fn create(
        dir: &Path,
        seed: u64,
        durability: Durability,
    ) -> anyhow::Result<Self> {
        let db = open_with(dir, durability).await?;
        let table = db.table(TABLE).await?;
        let random = SmallRng::seed_from_u64(seed);
        Ok(Throughput { db, table, random, cells: CELLS, changes: 0, commits: 0 })
    }

    pub(super) async fn transactions(&mut self, length: Duration) -> anyhow::Result<Block> {
        let (db, table, cells) = (&self.db, &self.table, self.cells);
        let seed = self.random.random::<u64>();
        let caller = |number: usize| Writer {
            db: db.clone(),
            table: table.clone(),
            random: SmallRng::seed_from_u64(seed.wrapping_add(number as u64)),
            cells,
        };
        Ok(call(Others::Nobody, (0..WORKERS).map(caller), length).await?.block)
    }

    /// Makes cells dirty while the gate holds the workers back, then opens the gate.
    pub(super) async fn notifications(&mut self, length: Duration) -> anyhow::Result<Block> {
        let cells = self.cells;
        let (open, gate) = watch::channel(false);
        let ended = Arc::new(Ended::default());
        ended.wanted.store(cells as u64, Ordering::Relaxed);
        let observer = NoOp { gate, ended: ended.clone() };
        let observer = Registration::strong("no-op", TABLE, &OBSERVED, observer);
        let workers = idle_workers(&self.db, vec![observer]).await?;
        let value = Bytes::from_static(&[7; VALUE_BYTES]);
        let dirty = (0..cells).map(|cell| (key(cell), value.clone()));
        write(&self.db, &self.table, &OBSERVED, dirty).await?;
        let before = self.db.stats();
        let start = Start::beside(Others::Nobody);
        open.send_replace(true);
        if tokio::time::timeout(PATIENCE, ended.all.notified()).await.is_err() {
            let runs = ended.runs.load(Ordering::Relaxed);
            anyhow::bail!("{runs} of {cells} changes were observed in {PATIENCE:?}");
        }
        let spent = start.spent();
        self.db.wait_idle(None).await?;
        workers.stop().await;
        let after = self.db.stats();
        let commits = after.committed - before.committed;
        self.changes += cells as u64;
        self.commits += commits;
        let mut block = Block::new(cells as u64, spent);
        // The average time of a worker per cell.
        let each = spent.elapsed.mul_f64(WORKERS as f64 / cells as f64);
        block.latencies.saturating_record_n(nanos(each), cells as u64);
        let rate = cells as f64 / spent.elapsed.as_secs_f64();
        self.cells = ((rate * length.as_secs_f64()) as usize).clamp(CELLS, CELLS_MAX);
        // Runs that waited at the gate were counted as started before it opened.
        let runs = ended.runs.load(Ordering::Relaxed);
        let starts = runs + after.notifications_stale - before.notifications_stale;
        let wasted = starts.saturating_sub(commits) as f64 / starts as f64;
        Ok(block.with("in vain", wasted))
    }

    pub(super) fn conditions(&self) -> Vec<Condition> {
        let (changes, commits) = (self.changes, self.commits);
        let found = format!("{changes} changes, {commits} commits");
        vec![Condition::new(
            "an observer committed once for each change",
            changes == commits,
            found,
        )]
    }
}
