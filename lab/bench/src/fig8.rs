//! Runs the experiment of Figure 8: reads and writes of single cells, transactional over raw
//! (paper section 3.2).
//!
//! ```text
//! cells      a copy of the cells: raw, in transactions, or a peer's; reads and writes of it
//! embedded   the stores in this process, with their optimisations
//! remote     our server and Google's emulator, over loopback
//! postgres   a peer
//! caller     a caller that reads and writes cells
//! bed        all copies, and the arms
//! ladder     a transaction's requests to the store, from the paper's form to the default
//! hbase      an HBase cluster, with figures of its own
//! alone      one arm in a process of its own, for `percolator-bench profile`
//! report     figures, their bars, the plot
//! ```
//!
//! All arms take turns in one run. Each kind of write has a copy of its own, so that leftovers of
//! one do not slow another. Its arms with one caller and with many share that copy, also with
//! reads. All data stay in memory. At the end every cell of every copy is read.

mod alone;
mod bed;
mod caller;
mod cells;
mod embedded;
mod hbase;
mod ladder;
mod postgres;
mod remote;
mod report;

pub(crate) use alone::{alone, alone_names};
pub(crate) use hbase::Fig8Hbase;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use percolator_cli::context::Context;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::Turns;
use crate::callers::call;
use crate::flags::{Measure, Place, within};
use crate::report::Report;
use crate::turns::{Block, Measured, Others};

use bed::{Arm, Bed};
use caller::Caller;
pub(crate) use caller::{CELLS_MAX, TEN};
use cells::Held;

/// Most callers: PostgreSQL needs a connection for each.
const CALLERS_MAX: usize = 128;

/// Something beside the stores of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Beside {
    /// Our own server.
    Server,
    /// Google's emulator.
    Emulator,
    /// PostgreSQL.
    Postgres,
}

/// Reads and writes of single cells, transactional over raw (the paper's Figure 8).
///
/// Arms run embedded, buffered and synced, with one caller and with many. They lead from the
/// paper's form to the default, one optimisation after the other. Further arms run over our
/// server and over Google's emulator. Others run the bare engine, its own transactions and
/// PostgreSQL. All data is cached.
///
/// The arms take turns in blocks of at most half a second, in an order drawn from the seed. A
/// ratio is the median of the ratios of each round. At the end everything that was written is
/// read again. The exit status is 3 if a write is missing, or if readers had to read files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench fig8 --quick --out results
  percolator-bench fig8 --data /mnt/disk/bench --without postgres --json")]
pub(crate) struct Fig8 {
    #[command(flatten)]
    pub(crate) measure: Measure,
    /// The number of cells in each copy.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    cells: usize,
    /// The number of callers of the arms for many callers.
    #[arg(long, value_name = "N", default_value_t = 64)]
    callers: usize,
    /// Leave out this store of another process; may be repeated.
    #[arg(long, value_enum, value_name = "WHAT")]
    without: Vec<Beside>,
    /// A new directory for the data, which stays; by default a temporary directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// The result of reading all cells at the end.
#[derive(Debug, Clone, Copy, Default)]
struct Check {
    copies: usize,
    cells: usize,
    wrong: u64,
}

#[derive(Debug)]
struct Outcome {
    turns: Turns,
    arms: Vec<Measured>,
    ladder: Vec<ladder::Step>,
    check: Check,
    /// The parts that were left out, each with the remedy.
    missing: Vec<String>,
}

impl Fig8 {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        within("callers", self.callers, 1..=CALLERS_MAX)?;
        // Each caller needs a cell of its own, and a larger transaction writes several.
        within("cells", self.cells, self.callers.max(TEN)..=CELLS_MAX)?;
        let turns = self.measure.turns(10.0)?;
        let place = Place::of(self.data.as_deref())?;
        let ladder = ladder::count(&place.dir).await?;
        let bed = Bed::create(context, self, turns, &place.dir).await?;
        let (arms, check) = measure(context, turns, &bed).await?;
        let outcome = Outcome { turns, arms, ladder, check, missing: bed.missing };
        Ok(report::report(self, &outcome))
    }
}

/// Measures all arms of a bed, and then reads every cell of every copy.
async fn measure(
    context: &Context,
    turns: Turns,
    bed: &Bed,
) -> anyhow::Result<(Vec<Measured>, Check)> {
    let mut random = SmallRng::seed_from_u64(turns.seed);
    let turn = async |arm: usize| {
        let arm = &bed.arms[arm];
        turn(arm, bed.others(arm), turns.block(), &mut random).await
    };
    let arms = bed.arms.iter().map(|arm| (arm.name, arm.operation));
    let arms = turns.measure(context, arms, turn).await?;
    let mut check = Check::default();
    for cells in bed.copies() {
        cells.check_all().await?;
        check.copies += 1;
        check.cells += cells.len();
        check.wrong += cells.wrong();
    }
    Ok((arms, check))
}

async fn turn(
    arm: &Arm,
    others: Others<'_>,
    length: Duration,
    random: &mut SmallRng,
) -> anyhow::Result<Block> {
    let caller = |number| Caller {
        cells: arm.cells.clone(),
        work: arm.work,
        number,
        of: arm.callers,
        done: 0,
        random: SmallRng::seed_from_u64(random.random()),
        held: Held::default(),
    };
    let callers: Vec<Caller> = (0..arm.callers).map(caller).collect();
    let block = call(others, callers, length).await?.block;
    Ok(Block { operations: block.operations * arm.work.counts(), ..block })
}
