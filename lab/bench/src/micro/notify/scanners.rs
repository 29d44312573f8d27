//! Measures how far sixteen scanners with a slow observer spread. Without care they clump, as
//! buses do (paper section 2.4).
//!
//! No hints arrive, and all rows are dirty. If a scanner finds another at a row, it jumps to a
//! random place.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use percolator::{Change, Observer, Percolator, Registration, Table, Transaction, WorkerOptions};

use super::super::bed::{COLUMN, open, write};
use crate::report::Condition;
use crate::turns::{Block, Others, Start, nanos};

const TABLE: &str = "line";
const ROWS: u64 = 4_000;
const SCANNERS: usize = 16;
/// The length of an observer's run.
const SLOW: Duration = Duration::from_millis(2);
/// Longest wait for the first run.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Scanners {
    db: Percolator,
    /// Another client, whose writes send no hints.
    stranger: Percolator,
    table: Table,
}

/// The positions of the scanners.
#[derive(Debug, Default)]
struct Line {
    at: BTreeSet<u64>,
    /// Mean distance of each starting scanner from the others, as a share of the distance at an
    /// even spread. The sum, and the number of summands.
    spread: f64,
    spreads: u64,
    latencies: Vec<u64>,
}

/// A slow observer that records its position.
struct Slow(Arc<Mutex<Line>>);

impl Observer for Slow {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        let since = std::time::Instant::now();
        let key = std::str::from_utf8(change.row.as_bytes()).ok();
        let row = key.and_then(|key| key.parse().ok()).unwrap_or_default();
        locked(&self.0).enter(row);
        change.value(tx).await?;
        tokio::time::sleep(SLOW).await;
        let mut line = locked(&self.0);
        line.at.remove(&row);
        line.latencies.push(nanos(since.elapsed()));
        Ok(())
    }
}

impl Line {
    fn enter(&mut self, row: u64) {
        if !self.at.is_empty() {
            let distance = |other: &u64| {
                let apart = row.abs_diff(*other);
                apart.min(ROWS - apart) as f64
            };
            let mean = self.at.iter().map(distance).sum::<f64>() / self.at.len() as f64;
            self.spread += mean / (ROWS as f64 / 4.0);
            self.spreads += 1;
        }
        self.at.insert(row);
    }
}

impl Scanners {
    pub(super) async fn create(dir: &Path) -> anyhow::Result<Self> {
        let db = open(dir).await?;
        let (stranger, table) = (db.another_client().await?, db.table(TABLE).await?);
        Ok(Scanners { db, stranger, table })
    }

    /// Runs a turn. Its own number is the scanners' spread: 1 if they are spread evenly.
    pub(super) async fn block(&mut self, length: Duration) -> anyhow::Result<Block> {
        let line = Arc::new(Mutex::new(Line::default()));
        let observer = || Registration::strong("slow", TABLE, &COLUMN, Slow(line.clone()));
        let options = WorkerOptions {
            threads: SCANNERS,
            // Every scanner begins its next scan as soon as the last has ended.
            scan_period: Duration::from_micros(100),
            idle_max: Duration::from_millis(1),
            ..WorkerOptions::default()
        };
        // Registers the observer in the schema before the rows are written.
        self.db.observe(vec![observer()], options.clone()).await?.stop().await;
        *locked(&line) = Line::default();
        let rows = (0..ROWS).map(|row| (format!("{row:08}").into(), "dirty"));
        write(&self.stranger, &self.table, &COLUMN, rows).await?;
        let start = Start::beside(Others::Nobody);
        let workers = self.db.observe(vec![observer()], options).await?;
        tokio::time::sleep(length).await;
        // On a busy machine even the first run may not have ended yet.
        while locked(&line).latencies.is_empty() && start.at.elapsed() < PATIENCE {
            tokio::time::sleep(SLOW).await;
        }
        let spent = start.spent();
        let ended = std::mem::take(&mut *locked(&line));
        workers.stop().await;
        let mut block = Block::new(ended.latencies.len() as u64, spent);
        ended.latencies.iter().for_each(|nanos| block.latencies.saturating_record(*nanos));
        let spread = ended.spread / ended.spreads.max(1) as f64;
        Ok(block.with("spread", spread))
    }

    /// Runs the scanners until no dirty row is left.
    pub(super) async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let observer = Registration::strong("slow", TABLE, &COLUMN, Slow(Arc::default()));
        let options = WorkerOptions { threads: SCANNERS, ..WorkerOptions::default() };
        let workers = self.db.observe(vec![observer], options).await?;
        let report = self.db.wait_idle(Some(PATIENCE)).await?;
        workers.stop().await;
        let left: usize = self.db.backlog().await?.iter().map(|column| column.cells).sum();
        let stats = self.db.stats();
        let found = format!(
            "{} runs, {} failed, {left} rows left",
            stats.observer_runs, stats.observer_failures
        );
        let ok = report.idle && left == 0 && stats.observer_failures == 0;
        Ok(vec![Condition::new("scanners: every dirty row is found in the end", ok, found)])
    }
}
