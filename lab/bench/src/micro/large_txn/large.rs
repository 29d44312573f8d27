//! Writes tables by large transactions, and by raw requests of the same size.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bigtable::{Selection, TimeRange};
use percolator::{Options, Percolator, RowKey, Table};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::bed::{self, AT_ONCE, COLUMN, NEWEST, QUALIFIER, is_value, key, set, value};
use crate::report::Condition;
use crate::system;
use crate::turns::{Block, Watch};

/// The tables, and the expected content of their cells.
pub(super) struct Large {
    db: Percolator,
    table: Table,
    raw: Arc<dyn bigtable::Table>,
    random: SmallRng,
    keys: Vec<RowKey>,
    /// The number of each cell's last write: in transactions, and raw.
    written: [Vec<u64>; 2],
    writes: u64,
}

impl Large {
    pub(super) async fn create(dir: &Path, cells: usize, seed: u64) -> anyhow::Result<Self> {
        let store = bed::store(dir, None)?;
        let raw = bed::raw(&*store).await?;
        let db = Percolator::over(store, Options::default()).await?;
        let table = db.table("cells").await?;
        let keys = (0..cells).map(key).collect();
        let (random, written) = (SmallRng::seed_from_u64(seed), [vec![0; cells], vec![0; cells]]);
        Ok(Large { db, table, raw, random, keys, written, writes: 0 })
    }

    /// Memory per cell of the largest transaction: before its commit, and at most until its
    /// end.
    pub(super) async fn memory(&mut self) -> anyhow::Result<(Option<f64>, Option<f64>)> {
        let cells = self.keys.len();
        // A first transaction allocates the memory that every transaction needs.
        self.write(0, 1.min(cells)).await?;
        let before = system::resident_bytes();
        self.writes += 1;
        let mut tx = self.db.begin().await?;
        for cell in 0..cells {
            tx.set(&self.table, &self.keys[cell], &COLUMN, value(cell, self.writes))?;
        }
        let buffered = system::resident_bytes();
        let (most, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (noted, ended) = (most.clone(), over.clone());
        let watch = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                noted.fetch_max(system::resident_bytes().unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let committed = tx.commit().await;
        over.store(true, Ordering::Relaxed);
        // The thread cannot panic, and nothing depends on its end.
        let _ = watch.join();
        committed?;
        self.written[0].fill(self.writes);
        let each = |then: Option<u64>| {
            let more = then?.saturating_sub(before?);
            // With few cells the growth may not be visible.
            Some(more as f64 / cells as f64).filter(|bytes| *bytes > 0.0)
        };
        Ok((each(buffered), each(Some(most.load(Ordering::Relaxed)).filter(|most| *most > 0))))
    }

    /// Runs large transactions, one after another. An operation is a cell.
    pub(super) async fn tx(&mut self, cells: usize, length: Duration) -> anyhow::Result<Block> {
        let mut watch = Watch::start();
        while watch.goes_on(length) {
            let first = self.random.random_range(0..=self.keys.len() - cells);
            self.write(first, cells).await?;
            watch.lap(cells);
        }
        Ok(watch.stop())
    }

    async fn write(&mut self, first: usize, cells: usize) -> anyhow::Result<()> {
        self.writes += 1;
        let mut tx = self.db.begin().await?;
        for cell in first..first + cells {
            tx.set(&self.table, &self.keys[cell], &COLUMN, value(cell, self.writes))?;
        }
        tx.commit().await?;
        self.written[0][first..first + cells].fill(self.writes);
        Ok(())
    }

    /// Writes the same in requests to the table beneath.
    pub(super) async fn raw(&mut self, cells: usize, length: Duration) -> anyhow::Result<Block> {
        let mut watch = Watch::start();
        while watch.goes_on(length) {
            let from = self.random.random_range(0..=self.keys.len() - cells);
            self.writes += 1;
            let write = self.writes;
            for first in (from..from + cells).step_by(AT_ONCE) {
                let some = first..(first + AT_ONCE).min(from + cells);
                let requests = some.map(|cell| set(&self.keys[cell], write, value(cell, write)));
                bed::all(self.raw.check_and_mutate_rows(requests.collect()).await)?;
            }
            self.written[1][from..from + cells].fill(write);
            watch.lap(cells);
        }
        Ok(watch.stop())
    }

    pub(super) async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let snapshot = self.db.snapshot().await?;
        let newest = Selection::default().column(NEWEST, QUALIFIER, TimeRange::ALL, 1);
        let mut wrong = [0_u64; 2];
        for (cell, key) in self.keys.iter().enumerate() {
            let held = snapshot.get(&self.table, key, &COLUMN).await?;
            wrong[0] += u64::from(!self.is_right(0, cell, held.as_deref()));
            let row = self.raw.read_row(key, &newest).await?;
            let held = row.newest(&NEWEST, QUALIFIER).map(|found| found.value.clone());
            wrong[1] += u64::from(!self.is_right(1, cell, held.as_deref()));
        }
        let cells = self.keys.len();
        let condition = |name: &str, wrong: u64| {
            Condition::new(name, wrong == 0, format!("{cells} cells, {wrong} wrong"))
        };
        Ok(vec![
            condition("every cell holds what the last transaction wrote", wrong[0]),
            condition("every raw cell holds what was last written", wrong[1]),
        ])
    }

    fn is_right(&self, part: usize, cell: usize, held: Option<&[u8]>) -> bool {
        match self.written[part][cell] {
            0 => held.is_none(),
            write => held.is_some_and(|held| is_value(held, cell, write)),
        }
    }
}
