//! Overwrites the cells of a store at a fixed rate for a long time, while garbage is collected.
//! Shows how the cost of an update and the size of the store develop, minute by minute.
//!
//! An update is a transaction that gets a cell and sets it. One client updates random rows.
//!
//! A call counts as slow if it takes longer than [`SLOW`]. Callers notice such a call, and
//! percentiles do not show it. At 5,000 calls a second, 50 slow ones a minute are beyond the 99.9th
//! percentile.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use percolator::admin::GcOptions;
use percolator::{Column, Durability, OpenOptions, Percolator, Table};
use percolator_cli::context::Context;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::bed::{KEY_BYTES, key, write};
use crate::flags::{Common, Place, within};
use crate::plot::{Axis, Plot, Point, Role, Unit};
use crate::report::{Bar, Figure, Report};
use crate::turns::{Block, Watch, go_on, nanos};

const COLUMN: Column = Column::literal("v");
const VALUE_BYTES: usize = 300;
/// A value begins with the number of its update.
const NUMBER_BYTES: usize = 8;
const SLOW: Duration = Duration::from_millis(20);
/// Most CPU of an update in the last minute, compared with the first.
const CPU: f64 = 1.25;
/// Most bytes on disk, per byte of live and of retained versions.
const DISK: f64 = 1.5;
/// The retention of a quick run; a full run has the default.
const RETENTION_QUICK: Duration = Duration::from_secs(60);

/// Updates at a fixed rate for half an hour: CPU, slow calls, disk and memory by the minute.
///
/// The benchmark runs on the embedded store, with its garbage collection. A quick run takes five
/// minutes, and retains versions for one minute. The exit status is 3 if a value is not as it was
/// written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench micro churn --out results
  percolator-bench micro churn --quick --json")]
pub(crate) struct Churn {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The number of rows [default: 2000000, quick: 500000].
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// Updates a second.
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    rate: u32,
    /// Minutes to update for [default: 30, quick: 5].
    #[arg(long, value_name = "N")]
    minutes: Option<usize>,
    /// The length of a minute in the report, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60.0, hide = true)]
    minute: f64,
}

/// A minute of updates.
#[derive(Debug)]
struct Minute {
    block: Block,
    slow: u64,
    slowest: Duration,
    disk_bytes: u64,
    memory_bytes: Option<u64>,
}

impl Minute {
    fn cpu_us(&self) -> Option<f64> {
        Some(self.block.spent.cpu()?.as_secs_f64() * 1e6 / self.block.operations as f64)
    }

    fn written(&self) -> Option<f64> {
        self.block.spent.io.map(|io| io.written_bytes as f64)
    }

    fn json(&self, minute: usize) -> Value {
        let micros = |quantile| self.block.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        let megabytes = |bytes: f64| (bytes / 1e6).round();
        json!({
            "minute": minute,
            "cpu_us": self.cpu_us(),
            "updates": self.block.operations,
            "p50_us": micros(0.5),
            "p99_us": micros(0.99),
            "slowest_ms": self.slowest.as_secs_f64() * 1000.0,
            "slow": self.slow,
            "written_mb": self.written().map(megabytes),
            "disk_mb": megabytes(self.disk_bytes as f64),
            "memory_mb": self.memory_bytes.map(|bytes| megabytes(bytes as f64)),
        })
    }
}

/// The rows, and how often each was updated.
struct Rows {
    db: Percolator,
    table: Table,
    updated: Vec<u64>,
    random: SmallRng,
    wrong: u64,
}

impl Rows {
    async fn load(dir: &Path, rows: usize, gc: GcOptions, seed: u64) -> anyhow::Result<Self> {
        let options = OpenOptions {
            durability: Durability::Buffered,
            gc: Some(gc),
            ..OpenOptions::default()
        };
        let db = Percolator::open_with(dir, options).await?;
        let table = db.table("rows").await?;
        let mut random = SmallRng::seed_from_u64(seed);
        let cells = (0..rows).map(|row| (key(row), value(0, &mut random)));
        write(&db, &table, &COLUMN, cells.collect::<Vec<_>>()).await?;
        Ok(Rows { db, table, updated: vec![0; rows], random, wrong: 0 })
    }

    async fn update(&mut self) -> anyhow::Result<()> {
        let row = self.random.random_range(0..self.updated.len());
        let next = self.updated[row] + 1;
        let new = value(next, &mut self.random);
        let mut tx = self.db.begin().await?;
        let old = tx.get(&self.table, key(row), &COLUMN).await?;
        self.wrong += u64::from(old.and_then(|old| number(&old)) != Some(self.updated[row]));
        tx.set(&self.table, key(row), &COLUMN, new)?;
        tx.commit().await?;
        self.updated[row] = next;
        Ok(())
    }

    /// Updates at a rate for a minute. Calls that are late follow each other without a pause.
    async fn minute(
        &mut self,
        context: &Context,
        rate: u32,
        length: Duration,
    ) -> anyhow::Result<Minute> {
        let (mut slow, mut slowest) = (0, Duration::ZERO);
        let mut watch = Watch::start();
        let mut done = 0;
        loop {
            let elapsed = watch.since().elapsed();
            if elapsed >= length {
                break;
            }
            let due = (elapsed.as_secs_f64() * f64::from(rate)) as u64;
            if done >= due {
                go_on(context)?;
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            let begun = Instant::now();
            self.update().await?;
            let took = begun.elapsed();
            watch.note(nanos(took));
            slow += u64::from(took > SLOW);
            slowest = slowest.max(took);
            done += 1;
        }
        let memory_bytes = crate::system::resident_bytes();
        Ok(Minute { block: watch.stop(), slow, slowest, disk_bytes: 0, memory_bytes })
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

impl Churn {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let Churn { common, rate, .. } = self;
        let rows = self.rows.unwrap_or(common.sized(500_000, 2_000_000));
        let minutes = self.minutes.unwrap_or(common.sized(5, 30));
        within("rows", rows, 1..=100_000_000)?;
        within("rate", *rate, 1..=1_000_000)?;
        within("minutes", minutes, 2..=10_000)?;
        within("minute", self.minute, 0.1..=3_600.0)?;
        let length = Duration::from_secs_f64(self.minute);
        let mut gc = GcOptions::default();
        if common.quick {
            gc.retention = RETENTION_QUICK;
            gc.interval = RETENTION_QUICK / 6;
        }
        let retention = gc.retention;
        let place = Place::temporary()?;
        context.out.note("loading");
        let mut all = Rows::load(&place.join("store"), rows, gc, common.seed).await?;
        let mut told: Vec<Minute> = Vec::new();
        for minute in 1..=minutes {
            context.out.note(&format!("minute {minute} of {minutes}"));
            let mut one = all.minute(context, *rate, length).await?;
            one.disk_bytes = bytes_of(&place.dir, &mut HashSet::new())?;
            told.push(one);
        }
        let retained = f64::from(*rate) * retention.min(length * minutes as u32).as_secs_f64();
        let needed = (rows as f64 + retained) * (KEY_BYTES + VALUE_BYTES) as f64;
        let settings = json!({
            "rows": rows,
            "rate": rate,
            "minutes": minutes,
            "value_bytes": VALUE_BYTES,
            "retention_s": retention.as_secs(),
            "durability": "buffered",
        });
        let lines = told.iter().enumerate().map(|(at, minute)| minute.json(at + 1));
        let report = Report::new("churn", settings, figures(&told, needed));
        let report = report.with("minutes", lines.collect());
        let updates: u64 = told.iter().map(|minute| minute.block.operations).sum();
        let check = json!({ "updates": updates, "wrong": all.wrong });
        let why = format!("{} values were not as they were written", all.wrong);
        let report = report.check_counts(check, all.wrong == 0, &why);
        all.db.close().await?;
        Ok(report.plot("churn.svg", plot(&told)))
    }
}

/// Figures of the minutes. `needed` are the bytes of live and of retained versions.
fn figures(minutes: &[Minute], needed: f64) -> Vec<Figure> {
    let (first, last) = (minutes.first(), minutes.last());
    let cpu = |minute: Option<&Minute>| minute.and_then(Minute::cpu_us);
    let sum = |of: fn(&Minute) -> Option<f64>| minutes.iter().map(of).sum::<Option<f64>>();
    let slow = minutes.iter().map(|minute| minute.slow).sum::<u64>() as f64;
    let slowest = minutes.iter().map(|minute| minute.slowest).max().unwrap_or_default();
    let updates = sum(|minute| Some(minute.block.operations as f64));
    let changed = updates.map(|updates| updates * (KEY_BYTES + VALUE_BYTES) as f64);
    let ratio = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
    let disk = last.map(|minute| minute.disk_bytes as f64);
    [
        ("CPU of an update in the first minute, us", cpu(first), None),
        ("CPU of an update, last minute/first", ratio(cpu(last), cpu(first)), Some(CPU)),
        ("slowest call, ms", Some(slowest.as_secs_f64() * 1e3), Some(SLOW.as_secs_f64() * 1e3)),
        ("slow calls a minute", Some(slow / minutes.len() as f64), None),
        ("bytes written/bytes updated", ratio(sum(Minute::written), changed), None),
        ("bytes on disk/live and retained", ratio(disk, Some(needed)), Some(DISK)),
    ]
    .map(|(name, value, bar)| Figure::alone(name, value).bar(bar.map(Bar::AtMost)))
    .into()
}

/// Bytes that the files of a directory take, without second names of the same file.
pub(super) fn bytes_of(dir: &Path, seen: &mut HashSet<u64>) -> anyhow::Result<u64> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut bytes = 0;
    for entry in entries {
        let entry = entry?;
        // The store may have removed the file meanwhile.
        let Ok(found) = entry.metadata() else { continue };
        if found.is_dir() {
            bytes += bytes_of(&entry.path(), seen)?;
        } else if seen.insert(found.ino()) {
            bytes += found.blocks() * 512;
        }
    }
    Ok(bytes)
}

fn plot(minutes: &[Minute]) -> String {
    let points = |of: fn(&Minute) -> Option<f64>| -> Vec<Point> {
        let point = |(at, minute): (usize, &Minute)| Some(Point::at(at as f64 + 1.0, of(minute)?));
        minutes.iter().enumerate().filter_map(point).collect()
    };
    let (x, y) = (Axis::linear("minute", Unit::Plain), Axis::linear("us", Unit::Plain));
    let subtitle = "Embedded store, durability buffered; with all threads of the store.";
    Plot::over(x, y, "CPU of an update", subtitle)
        .line("an update", Role::Ours(0), points(Minute::cpu_us))
        .svg()
}
