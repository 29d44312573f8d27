//! `bench micro`: the arms take turns.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::bench::bed::Bed;
use crate::bench::system;
use crate::cmd::Context;
use crate::progress::Progress;
use crate::store::Durability;

/// Most cells: what surely stays in memory.
pub(crate) const CELLS_MAX: usize = 1_000_000;

/// How long one arm runs before it is the next one's turn.
const BLOCK: Duration = Duration::from_millis(500);

/// How it is measured.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) durability: Durability,
    pub(crate) seconds: f64,
    pub(crate) cells: usize,
    pub(crate) seed: u64,
    pub(crate) dir: PathBuf,
}

impl Settings {
    /// How many blocks each arm has.
    pub(crate) fn blocks(&self) -> usize {
        ((self.seconds / BLOCK.as_secs_f64()).ceil() as usize).max(1)
    }

    /// The length of a block.
    pub(crate) fn block(&self) -> Duration {
        Duration::from_secs_f64(self.seconds).div_f64(self.blocks() as f64)
    }
}

/// What is done over and over in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    FjallGet,
    FjallInsert,
    RawRead,
    RawWrite,
    RawAppend,
    TxRead,
    SnapshotRead,
    TxWrite,
    TwoPhases,
}

impl Arm {
    /// All of them, in the order they are reported in.
    pub(crate) const ALL: [Arm; 9] = [
        Arm::FjallGet,
        Arm::RawRead,
        Arm::TxRead,
        Arm::SnapshotRead,
        Arm::FjallInsert,
        Arm::RawWrite,
        Arm::RawAppend,
        Arm::TxWrite,
        Arm::TwoPhases,
    ];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arm::FjallGet => "fjall_get",
            Arm::FjallInsert => "fjall_insert",
            Arm::RawRead => "raw_read",
            Arm::RawWrite => "raw_write",
            Arm::RawAppend => "raw_append",
            Arm::TxRead => "tx_read",
            Arm::SnapshotRead => "snapshot_read",
            Arm::TxWrite => "tx_write",
            Arm::TwoPhases => "tx_write_two_phases",
        }
    }

    /// What one operation of it does.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Arm::FjallGet => "get of a bare fjall keyspace",
            Arm::FjallInsert => "insert into a bare fjall keyspace",
            Arm::RawRead => "newest version of one cell by Table::read_row",
            Arm::RawWrite => "a newer version of that cell by Table::mutate_row",
            Arm::RawAppend => "the same, blind: in a family whose newest is not apart",
            Arm::TxRead => "begin, get",
            Arm::SnapshotRead => "snapshot, get",
            Arm::TxWrite => "begin, set, commit",
            Arm::TwoPhases => "the same, with prewrite and commit as in the paper",
        }
    }

    async fn block(self, bed: &mut Bed, length: Duration) -> anyhow::Result<Block> {
        match self {
            Arm::FjallGet => block(bed, length, Bed::fjall_get).await,
            Arm::FjallInsert => block(bed, length, Bed::fjall_insert).await,
            Arm::RawRead => block(bed, length, Bed::raw_read).await,
            Arm::RawWrite => block(bed, length, Bed::raw_write).await,
            Arm::RawAppend => block(bed, length, Bed::raw_append).await,
            Arm::TxRead => block(bed, length, Bed::tx_read).await,
            Arm::SnapshotRead => block(bed, length, Bed::snapshot_read).await,
            Arm::TxWrite => block(bed, length, Bed::tx_write).await,
            Arm::TwoPhases => block(bed, length, Bed::tx_write_two_phases).await,
        }
    }
}

/// One turn of an arm.
struct Block {
    operations: u64,
    elapsed: Duration,
    cpu: Option<Duration>,
    /// In nanoseconds.
    latencies: Histogram<u64>,
}

/// What an arm did in all of its turns.
pub(crate) struct Measured {
    pub(crate) arm: Arm,
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    pub(crate) cpu: Option<Duration>,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Operations per second in each turn.
    pub(crate) rates: Vec<f64>,
    /// Operations per second of processor time in each turn.
    pub(crate) cpu_rates: Vec<f64>,
}

/// Whether all that was written could be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check {
    pub(crate) cells: usize,
    pub(crate) wrong: u64,
}

/// The load of the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) processes: Option<f64>,
    pub(crate) pressure: Option<f64>,
}

impl Load {
    fn now() -> Self {
        Load { processes: system::load(), pressure: system::cpu_pressure() }
    }
}

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) arms: Vec<Measured>,
    pub(crate) check: Check,
    pub(crate) before: Load,
    pub(crate) after: Load,
}

impl Outcome {
    /// What an arm did.
    pub(crate) fn arm(&self, arm: Arm) -> Option<&Measured> {
        self.arms.iter().find(|measured| measured.arm == arm)
    }
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: &Settings) -> anyhow::Result<Option<Outcome>> {
    let before = Load::now();
    let rounds = settings.blocks();
    let turns = (rounds + 1) * Arm::ALL.len();
    let progress = Progress::new(context.out.quiet, Some(turns as u64));
    progress.say(0, "loading");
    let mut bed = Bed::create(settings).await?;
    bed.check_all().await?;
    let mut arms: Vec<Measured> = Arm::ALL.into_iter().map(Measured::new).collect();
    let mut order: Vec<usize> = (0..arms.len()).collect();
    let mut random = SmallRng::seed_from_u64(settings.seed);
    let mut turn = 0;
    // The first round warms up and does not count.
    for round in 0..=rounds {
        order.shuffle(&mut random);
        for &i in &order {
            if context.interrupt.requested() {
                return Ok(None);
            }
            progress.say(turn, &format!("round {round} of {rounds}: {}", arms[i].arm.name()));
            let block = arms[i].arm.block(&mut bed, settings.block()).await?;
            if round > 0 {
                arms[i].add(&block)?;
            }
            turn += 1;
        }
    }
    progress.say(turn, "checking");
    let after = Load::now();
    bed.check_all().await?;
    let check = Check { cells: settings.cells, wrong: bed.wrong };
    Ok(Some(Outcome { arms, check, before, after }))
}

/// Does an operation on random cells for this long. One reading of the clock ends an operation and
/// begins the next, the drawing of the cell included.
async fn block(
    bed: &mut Bed,
    length: Duration,
    mut operation: impl AsyncFnMut(&mut Bed, usize) -> anyhow::Result<()>,
) -> anyhow::Result<Block> {
    let mut latencies = histogram();
    let mut operations = 0;
    let (cpu, started) = (system::cpu_time(), Instant::now());
    let mut last = Duration::ZERO;
    while last < length {
        let cell = bed.pick();
        operation(bed, cell).await?;
        let now = started.elapsed();
        latencies.saturating_record((now - last).as_nanos() as u64);
        last = now;
        operations += 1;
    }
    let cpu = system::cpu_time().zip(cpu).map(|(now, before)| now.saturating_sub(before));
    Ok(Block { operations, elapsed: last, cpu, latencies })
}

/// Of nanoseconds up to a minute; what is longer counts as a minute.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are allowed")
}

impl Measured {
    fn new(arm: Arm) -> Self {
        Measured {
            arm,
            operations: 0,
            elapsed: Duration::ZERO,
            cpu: Some(Duration::ZERO),
            latencies: histogram(),
            rates: Vec::new(),
            cpu_rates: Vec::new(),
        }
    }

    fn add(&mut self, block: &Block) -> anyhow::Result<()> {
        let operations = block.operations as f64;
        self.operations += block.operations;
        self.elapsed += block.elapsed;
        self.cpu = self.cpu.zip(block.cpu).map(|(all, one)| all + one);
        self.latencies.add(&block.latencies)?;
        self.rates.push(operations / block.elapsed.as_secs_f64());
        self.cpu_rates.extend(block.cpu.map(|cpu| operations / cpu.as_secs_f64()));
        Ok(())
    }
}
