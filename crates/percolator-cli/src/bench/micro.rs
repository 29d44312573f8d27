//! `bench micro`: the arms take turns.

mod bed;
mod report;

pub(crate) use report::{json, print};

use std::path::PathBuf;
use std::time::Duration;

use crate::bench::Turns;
use crate::bench::system::Load;
use crate::bench::turns::{Block, Measured, Start, histogram, nanos};
use crate::cmd::Context;
use crate::store::Durability;

use bed::Bed;

/// Most cells: what surely stays in memory.
pub(crate) const CELLS_MAX: usize = 1_000_000;

/// How it is measured.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) turns: Turns,
    pub(crate) durability: Durability,
    pub(crate) cells: usize,
    pub(crate) dir: PathBuf,
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

/// Whether all that was written could be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check {
    pub(crate) cells: usize,
    pub(crate) wrong: u64,
}

/// The result of a run.
pub(crate) struct Outcome {
    arms: Vec<Measured>,
    pub(crate) check: Check,
    load: [Load; 2],
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: &Settings) -> anyhow::Result<Option<Outcome>> {
    let before = Load::now();
    let progress = settings.turns.progress(context, Arm::ALL.len());
    progress.say(0, "loading");
    let mut bed = Bed::create(settings).await?;
    bed.check_all().await?;
    let mut arms = Arm::ALL.map(|arm| Measured::new(arm.name(), arm.description()));
    let turn = async |arm: usize| Arm::ALL[arm].block(&mut bed, settings.turns.block()).await;
    if !settings.turns.take(context, &progress, &mut arms, turn).await? {
        return Ok(None);
    }
    let load = [before, Load::now()];
    bed.check_all().await?;
    let check = Check { cells: settings.cells, wrong: bed.wrong };
    Ok(Some(Outcome { arms: arms.into(), check, load }))
}

/// Does an operation on random cells for this long. One reading of the clock ends an operation and
/// begins the next, the drawing of the cell included.
async fn block(
    bed: &mut Bed,
    length: Duration,
    mut operation: impl AsyncFnMut(&mut Bed, usize) -> anyhow::Result<()>,
) -> anyhow::Result<Block> {
    let (mut latencies, mut operations) = (histogram(), 0);
    let start = Start::now(None);
    let mut last = Duration::ZERO;
    while last < length {
        let cell = bed.pick();
        operation(bed, cell).await?;
        let now = start.at().elapsed();
        latencies.saturating_record(nanos(now - last));
        (last, operations) = (now, operations + 1);
    }
    Ok(Block { operations, spent: start.spent(), latencies })
}
