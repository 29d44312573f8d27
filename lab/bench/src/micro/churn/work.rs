//! Updates the cells of one program's store, in a process that does nothing else.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use percolator::admin::GcOptions;
use percolator::{Column, Durability, OpenOptions, Percolator, Snapshot, Table};
use percolator_cli::context::Context;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::super::bed::{self, key};
use super::super::grow::engine::Engine;
use crate::processes::{requests, say};
use crate::system::resident_bytes;
use crate::turns::{Watch, go_on, nanos};

const COLUMN: Column = Column::literal("v");
pub(super) const VALUE_BYTES: usize = 300;
/// A value begins with the number of its update.
const NUMBER_BYTES: usize = 8;
/// Rows of one batch while the bare engine is loaded.
const AT_ONCE: usize = 1_000;
pub(super) const SLOW: Duration = Duration::from_millis(20);
/// Most rows that are read at an old snapshot after a minute.
const OLD_ROWS: usize = 1_000;

/// Update the cells of one program's store, in a process that does nothing else.
#[derive(Debug, Args)]
pub(crate) struct ChurnWork {
    pub(super) program: String,
    pub(super) data: PathBuf,
    pub(super) rows: usize,
    pub(super) rate: u32,
    pub(super) minute: f64,
    /// Seconds for which older versions are retained.
    pub(super) retention: u64,
    pub(super) seed: u64,
}

/// A store whose cells are overwritten.
trait Program: Sized {
    async fn load(work: &ChurnWork, random: &mut SmallRng) -> anyhow::Result<Self>;
    /// Gets and sets a row's value in one transaction. Returns the number in the value before.
    async fn update(&mut self, row: usize, new: Vec<u8>) -> anyhow::Result<Option<u64>>;
    /// A view of this moment. A program that keeps no older versions has none.
    async fn snapshot(&self) -> anyhow::Result<Option<Snapshot>> {
        Ok(None)
    }
    /// The numbers in the values of rows, as of a snapshot.
    async fn read_at(&self, _: &Snapshot, _: &[usize]) -> anyhow::Result<Vec<Option<u64>>> {
        anyhow::bail!("the program keeps no older versions")
    }
    async fn close(self) -> anyhow::Result<()>;
}

struct Ours {
    db: Percolator,
    table: Table,
}

impl Program for Ours {
    async fn load(work: &ChurnWork, random: &mut SmallRng) -> anyhow::Result<Self> {
        let retention = Duration::from_secs(work.retention);
        let mut gc = GcOptions { retention, ..GcOptions::default() };
        gc.interval = gc.interval.min(retention / 6);
        let options = OpenOptions {
            durability: Durability::Buffered,
            gc: Some(gc),
            ..OpenOptions::default()
        };
        let db = Percolator::open_with(&work.data, options).await?;
        let table = db.table("rows").await?;
        let cells = (0..work.rows).map(|row| (key(row), value(0, random)));
        bed::write(&db, &table, &COLUMN, cells).await?;
        Ok(Ours { db, table })
    }

    async fn update(&mut self, row: usize, new: Vec<u8>) -> anyhow::Result<Option<u64>> {
        let mut tx = self.db.begin().await?;
        let old = tx.get(&self.table, key(row), &COLUMN).await?;
        tx.set(&self.table, key(row), &COLUMN, new)?;
        tx.commit().await?;
        Ok(old.and_then(|old| number(&old)))
    }

    async fn snapshot(&self) -> anyhow::Result<Option<Snapshot>> {
        Ok(Some(self.db.snapshot().await?))
    }

    async fn read_at(&self, old: &Snapshot, rows: &[usize]) -> anyhow::Result<Vec<Option<u64>>> {
        let mut numbers = Vec::with_capacity(rows.len());
        for row in rows {
            let value = old.get(&self.table, key(*row), &COLUMN).await?;
            numbers.push(value.and_then(|value| number(&value)));
        }
        Ok(numbers)
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(self.db.close().await?)
    }
}

impl Program for Engine {
    async fn load(work: &ChurnWork, random: &mut SmallRng) -> anyhow::Result<Self> {
        let mut engine = Engine::at(&work.data, OpenOptions::default().cache_bytes)?;
        for first in (0..work.rows).step_by(AT_ONCE) {
            let rows = first..(first + AT_ONCE).min(work.rows);
            engine.write(rows.map(|row| (key(row), value(0, random))))?;
        }
        Ok(engine)
    }

    async fn update(&mut self, row: usize, new: Vec<u8>) -> anyhow::Result<Option<u64>> {
        let old = self.value(key(row))?;
        self.write([(key(row), new)])?;
        Ok(old.and_then(|old| number(&old)))
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(self.sync()?)
    }
}

/// The first rows that a minute updates, with the numbers that they had before. Collection keeps
/// what an open snapshot shows. This one lives for a minute, no longer than the retention.
struct Old {
    snapshot: Option<Snapshot>,
    rows: HashMap<usize, u64>,
}

impl Old {
    /// Takes note of a row before its update.
    fn note(&mut self, row: usize, number: u64) {
        if self.rows.len() < OLD_ROWS {
            self.rows.entry(row).or_insert(number);
        }
    }

    /// Reads the rows as they were. Returns the time of a read in microseconds, and how many values
    /// were wrong.
    async fn read(self, program: &impl Program) -> anyhow::Result<(Option<f64>, u64)> {
        let Some(snapshot) = self.snapshot else { return Ok((None, 0)) };
        let (rows, numbers): (Vec<_>, Vec<_>) = self.rows.into_iter().unzip();
        let begun = Instant::now();
        let read = program.read_at(&snapshot, &rows).await?;
        let each = begun.elapsed().as_secs_f64() * 1e6 / rows.len() as f64;
        let wrong = read.iter().zip(&numbers).filter(|(read, number)| **read != Some(**number));
        Ok((Some(each), wrong.count() as u64))
    }
}

impl ChurnWork {
    /// The arguments of the process, without the program.
    pub(super) fn arguments(&self) -> Vec<std::ffi::OsString> {
        let ChurnWork { data, rows, rate, minute, retention, seed, .. } = self;
        let numbers = [rows.to_string(), rate.to_string(), minute.to_string()].into_iter();
        let numbers = numbers.chain([retention.to_string(), seed.to_string()]);
        std::iter::once(data.into()).chain(numbers.map(Into::into)).collect()
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<()> {
        match &*self.program {
            "percolator" => self.churn::<Ours>(context).await,
            "engine" => self.churn::<Engine>(context).await,
            other => anyhow::bail!("there is no program {other}"),
        }
    }

    /// Updates for a minute at each request, until the requests end.
    async fn churn<P: Program>(&self, context: &Context) -> anyhow::Result<()> {
        let mut random = SmallRng::seed_from_u64(self.seed);
        let mut program = P::load(self, &mut random).await?;
        let mut updated = vec![0; self.rows];
        let mut requests = requests();
        while requests.recv().await.is_some() {
            say(&self.minute(context, &mut program, &mut updated, &mut random).await?)?;
        }
        program.close().await
    }

    /// Updates at a rate for a minute. Calls that are late follow each other without a pause.
    async fn minute<P: Program>(
        &self,
        context: &Context,
        program: &mut P,
        updated: &mut [u64],
        random: &mut SmallRng,
    ) -> anyhow::Result<Value> {
        let length = Duration::from_secs_f64(self.minute);
        let (mut slow, mut slowest, mut wrong) = (0_u64, Duration::ZERO, 0_u64);
        let mut old = Old { snapshot: program.snapshot().await?, rows: HashMap::new() };
        let mut watch = Watch::start();
        let mut done = 0;
        loop {
            let elapsed = watch.since().elapsed();
            if elapsed >= length {
                break;
            }
            let due = (elapsed.as_secs_f64() * f64::from(self.rate)) as u64;
            if done >= due {
                go_on(context)?;
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            let row = random.random_range(0..updated.len());
            old.note(row, updated[row]);
            let new = value(updated[row] + 1, random);
            let begun = Instant::now();
            let before = program.update(row, new).await?;
            let took = begun.elapsed();
            wrong += u64::from(before != Some(updated[row]));
            updated[row] += 1;
            watch.note(nanos(took));
            slow += u64::from(took > SLOW);
            slowest = slowest.max(took);
            done += 1;
        }
        let block = watch.stop();
        let (old_get, wrong_then) = old.read(program).await?;
        let micros = |quantile| block.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        let megabytes = |bytes: u64| (bytes as f64 / 1e6).round();
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / block.operations as f64;
        Ok(json!({
            "cpu_us": block.spent.cpu().map(each),
            "updates": block.operations,
            "p50_us": micros(0.5),
            "p99_us": micros(0.99),
            "old_get_us": old_get,
            "slowest_ms": slowest.as_secs_f64() * 1000.0,
            "slow": slow,
            "written_mb": block.spent.io.map(|io| megabytes(io.written_bytes)),
            "memory_mb": resident_bytes().map(megabytes),
            "wrong": wrong + wrong_then,
        }))
    }
}

/// A value of bytes that compress by half, as text does.
fn value(number: u64, random: &mut SmallRng) -> Vec<u8> {
    let mut value = vec![7; VALUE_BYTES];
    value[..NUMBER_BYTES].copy_from_slice(&number.to_be_bytes());
    random.fill(&mut value[NUMBER_BYTES..VALUE_BYTES / 2]);
    value
}

fn number(value: &[u8]) -> Option<u64> {
    value.first_chunk::<NUMBER_BYTES>().map(|first| u64::from_be_bytes(*first))
}
