//! Grows the store of one program and measures it, in a process that does nothing else.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::engine::Engine;
use super::ours::Ours;
use crate::processes::say;
use crate::system::resident_bytes;
use crate::turns::Watch;

pub(super) const NAME_BYTES: usize = 16;
pub(super) const VALUE_BYTES: usize = 100;
/// Rows of one transaction while rows are loaded.
pub(super) const AT_ONCE: u64 = 1000;
/// Rows of one scan.
pub(super) const SCANNED: usize = 1000;
/// A value begins with the number of its row.
const NUMBER_BYTES: usize = 8;

/// Grow the store of one program and measure it, in a process that does nothing else.
#[derive(Debug, Args)]
pub(crate) struct GrowWork {
    pub(super) program: String,
    pub(super) data: PathBuf,
    /// The number of rows that the store has already.
    pub(super) from: u64,
    /// The number of rows that the store gets.
    pub(super) to: u64,
    pub(super) seconds: f64,
    pub(super) cache_mb: u64,
    pub(super) seed: u64,
}

/// The measured operations, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Get,
    Absent,
    Update,
    Two,
    Observed,
    Scan,
}

const OPERATIONS: [(&str, Operation); 6] = [
    ("get", Operation::Get),
    ("absent", Operation::Absent),
    ("update", Operation::Update),
    ("two", Operation::Two),
    ("observed", Operation::Observed),
    ("scan", Operation::Scan),
];

/// A store that grows.
pub(super) trait Program: Sized {
    async fn open(work: &GrowWork) -> anyhow::Result<Self>;
    async fn close(self) -> anyhow::Result<()>;
    /// Writes new rows in one transaction.
    async fn load(&mut self, rows: std::ops::Range<u64>, drawn: &mut Drawn) -> anyhow::Result<()>;
    /// Whether a row has a value of its own.
    async fn get(&mut self, row: u64) -> anyhow::Result<bool>;
    /// Reads and writes rows in one transaction. Returns the number of wrong values.
    async fn update(&mut self, rows: &[u64], drawn: &mut Drawn) -> anyhow::Result<u64>;
    /// Writes an observed cell. Returns `false` if the program has no observers.
    async fn observed(&mut self, row: u64, drawn: &mut Drawn) -> anyhow::Result<bool>;
    /// Reads up to [`SCANNED`] rows in order. Returns their number, and that of the wrong ones.
    async fn scan(&mut self, from: u64) -> anyhow::Result<(usize, u64)>;
    /// Ends what the operations of one kind have begun.
    async fn end(&mut self) -> anyhow::Result<()>;
}

/// Does an operation at random rows, and counts values that are not as they were written. Returns
/// the number of rows that it counts for; `None` if the program has no such operation.
async fn one<P: Program>(
    program: &mut P,
    operation: Operation,
    drawn: &mut Drawn,
    wrong: &mut u64,
) -> anyhow::Result<Option<usize>> {
    match operation {
        Operation::Get => *wrong += u64::from(!program.get(drawn.row()).await?),
        Operation::Absent => *wrong += u64::from(program.get(drawn.absent()).await?),
        Operation::Update => *wrong += program.update(&[drawn.row()], drawn).await?,
        Operation::Two => *wrong += program.update(&[drawn.row(), drawn.row()], drawn).await?,
        Operation::Observed => return Ok(program.observed(drawn.row(), drawn).await?.then_some(1)),
        Operation::Scan => {
            let (seen, not_right) = program.scan(drawn.row()).await?;
            *wrong += not_right;
            return Ok(Some(seen));
        }
    }
    Ok(Some(1))
}

/// Draws rows.
pub(super) struct Drawn {
    random: SmallRng,
    rows: u64,
}

impl Drawn {
    pub(super) fn new(seed: u64, rows: u64) -> Self {
        Drawn { random: SmallRng::seed_from_u64(seed), rows }
    }

    /// A row that exists.
    pub(super) fn row(&mut self) -> u64 {
        self.random.random_range(0..self.rows)
    }

    /// A row that does not exist.
    pub(super) fn absent(&mut self) -> u64 {
        self.random.random_range(1 << 40..1 << 41)
    }

    /// A new value of a row. Half of it is random, so that it compresses by half, as text does.
    pub(super) fn value(&mut self, row: u64) -> Vec<u8> {
        let mut value = vec![7; VALUE_BYTES];
        value[..NUMBER_BYTES].copy_from_slice(&row.to_be_bytes());
        self.random.fill(&mut value[NUMBER_BYTES..VALUE_BYTES / 2]);
        value
    }
}

/// True if a value belongs to this row.
pub(super) fn is_value(value: &[u8], row: u64) -> bool {
    value.len() == VALUE_BYTES && value[..NUMBER_BYTES] == row.to_be_bytes()
}

/// The name of a row. Names of successive rows lie far from each other, and no two rows have the
/// same. `sqlite.py` does the same.
pub(super) fn name(row: u64) -> String {
    let mixed = (row ^ (row >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    format!("{:0NAME_BYTES$x}", mixed ^ (mixed >> 31))
}

impl GrowWork {
    /// The arguments of the process, without the program.
    pub(super) fn arguments(&self) -> [std::ffi::OsString; 6] {
        let GrowWork { data, from, to, seconds, cache_mb, seed, .. } = self;
        let numbers = [from.to_string(), to.to_string(), seconds.to_string()];
        let [from, to, seconds] = numbers.map(Into::into);
        let [cache_mb, seed] = [cache_mb, seed].map(|number| number.to_string().into());
        [data.into(), from, to, seconds, cache_mb, seed]
    }

    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let told = match &*self.program {
            "percolator" => self.grow::<Ours>().await?,
            "engine" => self.grow::<Engine>().await?,
            other => anyhow::bail!("there is no program {other}"),
        };
        Ok(say(&told)?)
    }

    pub(super) async fn grow<P: Program>(&self) -> anyhow::Result<Value> {
        let mut program = P::open(self).await?;
        let (watch, mut drawn) = (Watch::start(), Drawn::new(self.seed, self.to));
        for first in (self.from..self.to).step_by(AT_ONCE as usize) {
            program.load(first..(first + AT_ONCE).min(self.to), &mut drawn).await?;
        }
        let load = watch.stop().spent;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / (self.to - self.from) as f64;
        let mut told = json!({
            "load": { "us": each(load.elapsed), "cpu_us": load.cpu().map(each) },
        });
        let (mut drawn, mut wrong) = (Drawn::new(self.seed, self.to), 0);
        for (name, operation) in OPERATIONS {
            told[name] = self.operations(&mut program, operation, &mut drawn, &mut wrong).await?;
        }
        told["memory_mb"] = json!(resident_bytes().map(|bytes| (bytes as f64 / 1e6).round()));
        program.close().await?;
        let begun = Instant::now();
        let mut program = P::open(self).await?;
        // The first read may wait for what the opening has left to do.
        one(&mut program, Operation::Get, &mut drawn, &mut wrong).await?;
        told["open_ms"] = json!((begun.elapsed().as_secs_f64() * 1e4).round() / 10.0);
        program.close().await?;
        told["wrong"] = json!(wrong);
        Ok(told)
    }

    async fn operations<P: Program>(
        &self,
        program: &mut P,
        operation: Operation,
        drawn: &mut Drawn,
        wrong: &mut u64,
    ) -> anyhow::Result<Value> {
        let length = Duration::from_secs_f64(self.seconds);
        let mut watch = Watch::start();
        while watch.goes_on(length) {
            match one(program, operation, drawn, wrong).await? {
                None => return Ok(Value::Null),
                Some(count) => watch.lap(count),
            }
        }
        program.end().await?;
        let block = watch.stop();
        let each = |time: Duration| {
            let us = time.as_secs_f64() * 1e6 / block.operations as f64;
            (us * 100.0).round() / 100.0
        };
        let us = |quantile| block.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        Ok(json!({
            "us": each(block.spent.elapsed),
            "cpu_us": block.spent.cpu().map(each),
            "p50_us": us(0.5),
            "p99_us": us(0.99),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let names: BTreeSet<String> =
            (0..10_000).chain(1 << 40..(1 << 40) + 10_000).map(name).collect();
        assert_eq!(names.len(), 20_000);
        assert!(names.iter().all(|name| name.len() == NAME_BYTES));
        // `sqlite.py` gives the same name to this row.
        assert_eq!(name(1), "5692161d100b05e5");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn both_programs_grow() {
        let dir = tempfile::tempdir().unwrap();
        for program in ["percolator", "engine"] {
            for (from, to) in [(0, 1_000), (1_000, 3_000)] {
                let (program, data) = (program.to_owned(), dir.path().join(program));
                let work =
                    GrowWork { program, data, from, to, seconds: 0.01, cache_mb: 1, seed: 1 };
                let told = match &*work.program {
                    "percolator" => work.grow::<Ours>().await.unwrap(),
                    _ => work.grow::<Engine>().await.unwrap(),
                };
                assert_eq!(told["wrong"], 0, "{told}");
                for (field, operation) in OPERATIONS {
                    let has = work.program == "percolator" || operation != Operation::Observed;
                    assert_eq!(told[field]["us"].as_f64() > Some(0.0), has, "{field}: {told}");
                }
            }
        }
    }
}
