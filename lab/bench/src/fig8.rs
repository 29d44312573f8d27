//! Figure 8: reads and writes of single cells, transactional over raw (paper section 3.2).
//!
//! ```text
//! cells      a copy of the cells: raw, in transactions, or a peer's; reads and writes of it
//! embedded   the stores in this process, and which of their optimisations are on
//! remote     our server and Google's emulator, over loopback
//! postgres   a peer
//! bed        all copies, and the arms
//! ladder     what a transaction asks of the store, from the paper's form to the default
//! alone      one arm in a process of its own, for `percolator-bench profile`
//! report     figures, their bars, the plot
//! ```
//!
//! All arms take turns in one run. Each that writes has a copy of its own, so that what one leaves
//! behind costs no other; all data stay in memory. At the end every cell of every copy is read.

mod alone;
mod bed;
mod cells;
mod embedded;
mod ladder;
mod postgres;
mod remote;
mod report;

pub(crate) use alone::{ALONE, alone};
pub(crate) use report::{broken, json, plot, print};

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::Turns;
use crate::system::Load;
use crate::turns::{Block, Measured, Start, histogram, nanos};

use bed::{Arm, Bed};
use cells::{Cells, Held};
use percolator_cli::context::Context;

/// Most cells. Whether they stay in memory is looked at in the end.
pub(crate) const CELLS_MAX: usize = 1_000_000;
/// How many cells a larger transaction writes, each in a row of its own.
pub(crate) const TEN: usize = 10;

/// How many operations one of many callers does before others have their turn.
const YIELD_EVERY: usize = 16;

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

/// How it is measured.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) turns: Turns,
    pub(crate) quick: bool,
    pub(crate) cells: usize,
    /// How many callers the arms for many have.
    pub(crate) callers: usize,
    /// A program to take for the emulator.
    pub(crate) emulator: Option<PathBuf>,
    pub(crate) without: Vec<Beside>,
    pub(crate) dir: PathBuf,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Get,
    SnapshotGet,
    BeginGet,
    Set,
    /// Ten cells; counted in cells.
    SetTen,
}

impl Work {
    /// How many operations it counts as.
    fn counts(self) -> u64 {
        if self == Work::SetTen { TEN as u64 } else { 1 }
    }
}

/// Whether all that was written could be read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Check {
    pub(crate) copies: usize,
    pub(crate) cells: usize,
    pub(crate) wrong: u64,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    arms: Vec<Measured>,
    load: [Load; 2],
    ladder: Vec<ladder::Step>,
    pub(crate) check: Check,
    /// What was left out, and how to get it.
    pub(crate) missing: Vec<String>,
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: &Settings) -> anyhow::Result<Option<Outcome>> {
    let before = Load::now();
    let ladder = ladder::count(&settings.dir).await?;
    let Some(bed) = Bed::create(context, settings).await? else { return Ok(None) };
    let mut arms: Vec<Measured> =
        bed.arms.iter().map(|arm| Measured::new(arm.name, arm.operation)).collect();
    let progress = settings.turns.progress(context, arms.len());
    let mut random = SmallRng::seed_from_u64(settings.turns.seed);
    let turn = async |arm: usize| {
        let arm = &bed.arms[arm];
        turn(arm, bed.start(arm), settings.turns.block(), &mut random).await
    };
    if !settings.turns.take(context, &progress, &mut arms, turn).await? {
        return Ok(None);
    }
    let load = [before, Load::now()];
    let mut check = Check::default();
    for cells in bed.copies() {
        cells.check_all().await?;
        check.copies += 1;
        check.cells += cells.len();
        check.wrong += cells.wrong();
    }
    Ok(Some(Outcome { arms, load, ladder, check, missing: bed.missing }))
}

/// One turn of an arm.
async fn turn(
    arm: &Arm,
    start: Start<'_>,
    length: Duration,
    random: &mut SmallRng,
) -> anyhow::Result<Block> {
    let (since, mut latencies, mut operations) = (start.at(), histogram(), 0);
    let mut record = |nanos| {
        latencies.saturating_record(nanos);
        operations += arm.work.counts();
    };
    let caller = |number| Caller {
        cells: arm.cells.clone(),
        number,
        of: arm.callers,
        random: SmallRng::seed_from_u64(random.random()),
        held: Held::default(),
    };
    let mut callers: Vec<Caller> = (0..arm.callers).map(caller).collect();
    let work = arm.work;
    let spent = if let [one] = &mut callers[..] {
        one.call(work, since, length, &mut record).await?;
        start.spent()
    } else {
        let tasks = callers.into_iter().map(|mut caller| {
            let mut taken = Vec::new();
            tokio::spawn(async move {
                caller.call(work, since, length, |nanos| taken.push(nanos)).await?;
                Ok::<_, anyhow::Error>(taken)
            })
        });
        let done = futures::future::try_join_all(tasks).await?;
        let spent = start.spent();
        for taken in done {
            taken?.into_iter().for_each(&mut record);
        }
        spent
    };
    Ok(Block { operations, spent, latencies })
}

/// Works on cells of its own.
struct Caller {
    cells: Arc<Cells>,
    number: usize,
    /// How many callers share the cells.
    of: usize,
    random: SmallRng,
    held: Held,
}

impl Caller {
    /// Works on random cells for this long. One reading of the clock ends an operation and begins
    /// the next, the drawing of the cell included.
    async fn call(
        &mut self,
        work: Work,
        since: Instant,
        length: Duration,
        mut record: impl FnMut(u64),
    ) -> anyhow::Result<()> {
        let (mut last, mut done) = (since.elapsed(), 0_usize);
        while last < length {
            done += 1;
            if self.of > 1 && done.is_multiple_of(YIELD_EVERY) {
                // Gets of a store in this process wait for nothing, and others would have no turn.
                tokio::task::yield_now().await;
                last = since.elapsed();
            }
            self.one(work).await?;
            let now = since.elapsed();
            record(nanos(now - last));
            last = now;
        }
        Ok(())
    }

    /// Works on random cells once.
    async fn one(&mut self, work: Work) -> anyhow::Result<()> {
        let own = self.cells.len() / self.of;
        let first = self.random.random_range(0..own);
        let cell = |drawn: usize| self.number + self.of * (drawn % own);
        let at = cell(first);
        match work {
            Work::Get => self.cells.get(at, self.number, &mut self.held).await,
            Work::SnapshotGet => self.cells.snapshot_get(at).await,
            Work::BeginGet => self.cells.begin_get(at).await,
            Work::Set => self.cells.set(&[at], self.number, &mut self.random).await,
            Work::SetTen => {
                let ten: [usize; TEN] = std::array::from_fn(|i| cell(first + i));
                self.cells.set(&ten, self.number, &mut self.random).await
            }
        }
    }
}
