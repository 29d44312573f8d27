//! Lets workers without hints find dirty cells among clean ones.
//!
//! Clean cells lie in a column that nobody observes, so they never were dirty. Dirty cells are
//! spread evenly among them. The workers belong to another client than the writer, as in
//! another process, so they get no hints.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use percolator::{
    Change, Client, Column, Observer, Options, Percolator, Registration, Result, Table,
    Transaction, WorkerOptions,
};
use percolator_cli::context::Context;
use tokio::sync::Notify;

use super::super::bed::{self, AT_ONCE, COLUMN, is_value, key, value};
use super::{CACHE_BYTES, Check};
use crate::spy::{Seen, Spy};
use crate::turns::{Block, Spent, go_on};

const TABLE: &str = "cells";
const OBSERVED: Column = Column::literal("observed");
const OBSERVER: &str = "count";
/// Longest time for workers to find all dirty cells.
const FOUND_MAX: Duration = Duration::from_secs(120);
/// Number of workers that process many notifications.
const WORKERS: usize = 4;

/// A store with clean cells.
pub(super) struct World {
    dir: PathBuf,
    clean: usize,
    db: Percolator,
    table: Table,
    seen_by_store: Arc<Seen>,
    runs: Arc<Runs>,
    /// Number of cells made dirty.
    notified: u64,
}

#[derive(Debug, Default)]
struct Runs {
    count: AtomicU64,
    /// The count at which `reached` is signalled.
    awaited: AtomicU64,
    reached: Notify,
}

struct Count(Arc<Runs>);

impl Observer for Count {
    async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> {
        let count = self.0.count.fetch_add(1, Ordering::SeqCst) + 1;
        if count == self.0.awaited.load(Ordering::SeqCst) {
            self.0.reached.notify_one();
        }
        Ok(())
    }
}

impl Runs {
    fn registration(runs: &Arc<Runs>) -> Registration {
        Registration::strong(OBSERVER, TABLE, &OBSERVED, Count(runs.clone()))
    }
}

impl World {
    /// Creates a store with this many clean cells.
    pub(super) async fn create(
        context: &Context,
        dir: &Path,
        clean: usize,
    ) -> anyhow::Result<World> {
        let runs = Arc::new(Runs::default());
        let world = World::open(dir, clean, runs).await?;
        // Declared before anything is written, so that no earlier write has to be found.
        world.db.declare(&[Runs::registration(&world.runs).observed().clone()]).await?;
        for first in (0..clean).step_by(AT_ONCE) {
            go_on(context)?;
            let mut tx = world.db.begin().await?;
            for row in first..(first + AT_ONCE).min(clean) {
                tx.set(&world.table, key(row), &COLUMN, value(row, 1))?;
            }
            tx.commit().await?;
        }
        Ok(world)
    }

    async fn open(dir: &Path, clean: usize, runs: Arc<Runs>) -> anyhow::Result<World> {
        let (spy, seen_by_store) = Spy::on(bed::store(dir, Some(CACHE_BYTES))?);
        let db = Percolator::over(spy, Options::default()).await?;
        let table = db.table(TABLE).await?;
        Ok(World { dir: dir.to_owned(), clean, db, table, seen_by_store, runs, notified: 0 })
    }

    pub(super) async fn reopen(self) -> anyhow::Result<World> {
        let World { dir, clean, db, table, seen_by_store, runs, notified } = self;
        drop((db, table, seen_by_store));
        let world = World::open(&dir, clean, runs).await?;
        Ok(World { notified, ..world })
    }

    fn observed(&self) -> u64 {
        self.runs.count.load(Ordering::SeqCst)
    }

    /// Makes this many cells dirty, spread evenly, in several transactions.
    async fn make_dirty(&mut self, count: usize) -> anyhow::Result<()> {
        let count = count.min(self.clean);
        let rows = (0..count).map(|i| (key(i * self.clean / count), "dirty"));
        bed::write(&self.db, &self.table, &OBSERVED, rows).await?;
        self.notified += count as u64;
        Ok(())
    }

    async fn work(&self, threads: usize) -> anyhow::Result<()> {
        // Another client, which gets no hints from the writer.
        let services = self.db.services().clone();
        let client = Client::open(services, Options::default()).await?;
        self.runs.awaited.store(self.notified, Ordering::SeqCst);
        let options = WorkerOptions { threads, ..WorkerOptions::default() };
        let workers = client.observe(vec![Runs::registration(&self.runs)], options).await?;
        let found = tokio::time::timeout(FOUND_MAX, self.runs.reached.notified()).await;
        workers.stop().await;
        let observed = self.observed();
        anyhow::ensure!(
            found.is_ok() && observed == self.notified,
            "{} cells were dirty, and the observer ran for {observed}",
            self.notified
        );
        Ok(())
    }

    /// Runs one turn: it makes cells dirty and processes them, again and again. A latency is
    /// the time of the scans.
    pub(super) async fn turn(&mut self, dirty: usize, length: Duration) -> anyhow::Result<Block> {
        let mut block = Block::new(0, Spent::default());
        let (since, mut elapsed) = (Instant::now(), Duration::ZERO);
        while block.operations == 0 || since.elapsed() < length {
            self.make_dirty(dirty).await?;
            let (before, began) = (self.seen_by_store.operations(), Instant::now());
            self.work(1).await?;
            elapsed += began.elapsed();
            let scanned = self.seen_by_store.operations().since(before);
            block.latencies.saturating_record(scanned.scan_nanos);
            block.operations += 1;
        }
        // The writer's work in between does not count, and its processor time cannot be
        // separated.
        Ok(Block { spent: Spent { elapsed, ..Spent::default() }, ..block })
    }

    pub(super) async fn process(&mut self, count: usize) -> anyhow::Result<()> {
        let mut left = count;
        while left > 0 {
            let some = left.min(self.clean);
            self.make_dirty(some).await?;
            self.work(WORKERS).await?;
            left -= some;
        }
        Ok(())
    }

    /// Reads every clean cell, and looks for remaining notifications.
    pub(super) async fn check_all(&mut self, check: &mut Check) -> anyhow::Result<()> {
        let snapshot = self.db.snapshot().await?;
        let mut scan = snapshot.scan(&self.table).columns([&COLUMN]);
        let (mut seen, mut right) = (0, 0);
        while let Some(row) = scan.next().await? {
            let cell = matches!(&row.cells[..], [(_, v)] if is_value(v, seen, 1));
            right += usize::from(cell && row.row == key(seen));
            seen += 1;
        }
        let left: usize = self.db.backlog().await?.iter().map(|backlog| backlog.cells).sum();
        check.rows += seen as u64;
        check.wrong += (seen.max(self.clean) - right + left) as u64;
        check.observed += self.observed();
        check.notified += self.notified;
        Ok(())
    }
}
