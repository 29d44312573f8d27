//! Measures the time from a commit until the observer of the written cell starts.
//!
//! The value contains the time at which the commit was requested. The observer reads the same
//! clock before anything else. So the time includes the commit itself, the way to the worker,
//! the row lock, the begin, and the reading of the acknowledgement.

use std::path::Path;
use std::time::{Duration, Instant};

use percolator::{
    Change, Column, Observer, Percolator, Registration, Table, Transaction, WorkerOptions,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::super::bed::{COLUMN, open};
use super::hand_off::REST_US;
use super::workers::idle_workers;
use crate::report::Condition;
use crate::turns::{Block, Watch, nanos};

const TABLE: &str = "written";
/// A column that nobody observes.
const ALONE: Column = Column::literal("alone");
const ROWS: u64 = 1000;
/// Writes per period of the scan.
const WRITES_A_SCAN: u32 = 20;
/// Longest wait for an observer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A part of the time between a write and the start of its observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Commit,
    Read,
}

/// The thread on which a writer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// In the workers' runtime.
    Task,
    /// On a thread outside of it.
    Outside,
}

/// The measured interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A start after a hint.
    Hinted(Writer),
    /// A single part of a start.
    Part(Part),
    /// A start without hints, with a scan every this many milliseconds.
    Scanned(u64),
}

/// An observer's start: the number of the write, and the nanoseconds since its commit was
/// requested.
type Started = (u64, u64);

#[derive(Debug)]
pub(super) struct Starts {
    db: Percolator,
    /// Another client, whose writes send no hints to the first client's workers.
    stranger: Percolator,
    table: Table,
    random: SmallRng,
    clock: Instant,
    writes: u64,
    /// Starts for a write that was not, or no longer, waited for.
    unexpected: u64,
}

/// An observer that reports its start.
struct Clocked {
    clock: Instant,
    started: UnboundedSender<Started>,
}

impl Observer for Clocked {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        let now = since(self.clock);
        let value = change.value(tx).await?.unwrap_or_default();
        let at = |from: usize| value.get(from..from + 8)?.try_into().ok().map(u64::from_be_bytes);
        if let (Some(number), Some(asked)) = (at(0), at(8)) {
            // After the end of a turn, nobody receives.
            let _ = self.started.send((number, now.saturating_sub(asked)));
        }
        Ok(())
    }
}

/// The time since the clock's origin, in nanoseconds.
fn since(clock: Instant) -> u64 {
    nanos(clock.elapsed())
}

impl Starts {
    pub(super) async fn create(dir: &Path, seed: u64) -> anyhow::Result<Self> {
        let db = open(dir).await?;
        let (stranger, table) = (db.another_client().await?, db.table(TABLE).await?);
        let (random, clock) = (SmallRng::seed_from_u64(seed), Instant::now());
        Ok(Starts { db, stranger, table, random, clock, writes: 0, unexpected: 0 })
    }

    fn observer(&self) -> (Registration, UnboundedReceiver<Started>) {
        let (started, starts) = unbounded_channel();
        let observer = Clocked { clock: self.clock, started };
        (Registration::strong("clocked", TABLE, &COLUMN, observer), starts)
    }

    async fn write(&mut self, row: u64, hinted: bool) -> anyhow::Result<u64> {
        let writer = if hinted { &self.db } else { &self.stranger };
        self.writes += 1;
        let mut tx = writer.begin().await?;
        let mut value = Vec::with_capacity(16);
        value.extend_from_slice(&self.writes.to_be_bytes());
        value.extend_from_slice(&since(self.clock).to_be_bytes());
        tx.set(&self.table, format!("row-{row:04}"), &COLUMN, value)?;
        tx.commit().await?;
        Ok(self.writes)
    }

    pub(super) async fn block(&mut self, way: Way, length: Duration) -> anyhow::Result<Block> {
        match way {
            Way::Hinted(Writer::Task) => self.hinted(length).await,
            // The thread hands its runtime tasks to another thread meanwhile.
            Way::Hinted(Writer::Outside) => tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(self.hinted(length))
            }),
            Way::Part(part) => self.part(part, length).await,
            Way::Scanned(ms) => self.scanned(length, ms).await,
        }
    }

    /// Writes one row after another. Each write follows the start of the observer of the one
    /// before, after a rest in which all threads go to sleep.
    async fn hinted(&mut self, length: Duration) -> anyhow::Result<Block> {
        let (observer, mut starts) = self.observer();
        let workers = idle_workers(&self.db, vec![observer]).await?;
        let mut watch = Watch::start();
        while watch.goes_on(length) {
            let rest = self.random.random_range(REST_US);
            tokio::time::sleep(Duration::from_micros(rest)).await;
            let row = self.random.random_range(0..ROWS);
            let number = self.write(row, true).await?;
            self.await_starts(&mut starts, number..=number, &mut watch).await?;
        }
        let block = watch.stop();
        workers.stop().await;
        self.unexpected += drain(&mut starts);
        Ok(block)
    }

    /// Measures one part of a start after the same rest: the commit, or the begin and the read
    /// of an observer's transaction.
    async fn part(&mut self, part: Part, length: Duration) -> anyhow::Result<Block> {
        let mut watch = Watch::start();
        while watch.goes_on(length) {
            let rest = self.random.random_range(REST_US);
            tokio::time::sleep(Duration::from_micros(rest)).await;
            let row = format!("row-{:04}", self.random.random_range(0..ROWS));
            let asked = match part {
                Part::Commit => {
                    let mut tx = self.db.begin().await?;
                    let asked = Instant::now();
                    tx.set(&self.table, row, &ALONE, vec![0; 16])?;
                    tx.commit().await?;
                    asked
                }
                Part::Read => {
                    let asked = Instant::now();
                    self.db.begin().await?.get(&self.table, row, &ALONE).await?;
                    asked
                }
            };
            watch.note(nanos(asked.elapsed()));
        }
        Ok(watch.stop())
    }

    /// Writes at random moments over whole periods of the scan, so that all parts of a period
    /// are equally likely.
    async fn scanned(&mut self, length: Duration, ms: u64) -> anyhow::Result<Block> {
        let (observer, mut starts) = self.observer();
        let period = Duration::from_millis(ms);
        let options = WorkerOptions {
            threads: 1,
            scan_period: period,
            idle_max: period,
            ..WorkerOptions::default()
        };
        let workers = self.db.observe(vec![observer], options).await?;
        self.db.wait_idle(None).await?;
        let mut watch = Watch::start();
        let end = period * length.div_duration_f64(period).ceil() as u32;
        // Each row is written once: two writes of a row would need only one run.
        let writes = ROWS.min((end.div_duration_f64(period) * f64::from(WRITES_A_SCAN)) as u64);
        let mut moments: Vec<Duration> =
            (0..writes).map(|_| end.mul_f64(self.random.random_range(0.0..1.0))).collect();
        moments.sort();
        let first = self.writes + 1;
        for (row, moment) in (0..).zip(moments) {
            tokio::time::sleep(moment.saturating_sub(watch.since().elapsed())).await;
            self.write(row, false).await?;
        }
        self.await_starts(&mut starts, first..=self.writes, &mut watch).await?;
        let block = watch.stop();
        workers.stop().await;
        self.unexpected += drain(&mut starts);
        Ok(block)
    }

    async fn await_starts(
        &mut self,
        starts: &mut UnboundedReceiver<Started>,
        numbers: std::ops::RangeInclusive<u64>,
        watch: &mut Watch<'_>,
    ) -> anyhow::Result<()> {
        let mut missing: std::collections::BTreeSet<u64> = numbers.collect();
        while !missing.is_empty() {
            let next = tokio::time::timeout(PATIENCE, starts.recv()).await.ok().flatten();
            let Some((number, nanos)) = next else {
                anyhow::bail!("{} writes were not observed in {PATIENCE:?}", missing.len());
            };
            if missing.remove(&number) {
                watch.note(nanos);
            } else {
                self.unexpected += 1;
            }
        }
        Ok(())
    }

    pub(super) fn conditions(&self) -> Vec<Condition> {
        let name = "the observer started once for each write";
        let found = format!("{} writes, {} starts too many", self.writes, self.unexpected);
        vec![Condition::new(name, self.unexpected == 0, found)]
    }
}

/// Counts the starts that were not waited for.
fn drain(starts: &mut UnboundedReceiver<Started>) -> u64 {
    let mut left = 0;
    while starts.try_recv().is_ok() {
        left += 1;
    }
    left
}
