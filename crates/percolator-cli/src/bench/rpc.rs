//! Transactions over a network, measured against the requests that they consist of.
//!
//! ```text
//!   bare_commit  prewrite and commit of a transaction on one cell, as two requests made beforehand
//!   tx           begin, set, commit: the client makes the same requests
//!   tx_ten       the same on ten cells in ten rows
//!   bare_read    one ReadRows, made beforehand
//!   get          snapshot, get: the client makes the same request
//! ```
//!
//! The table server is a process of its own, the oracle is in this one, and each arm has one caller, and
//! again as many as `--callers` says. No two callers share a cell, so nothing conflicts. Each value
//! carries its cell's number and how often the cell was written, so that a lost, repeated or misplaced
//! write is noticed.

mod bed;
mod caller;
mod record;
mod report;

pub(crate) use report::{json, print};

use std::sync::Arc;

use crate::bench::Turns;
use crate::bench::system::Load;
use crate::bench::turns::{Block, Measured, Start, histogram};
use crate::cmd::Context;

use bed::Bed;
use caller::{Caller, Work};

/// How many cells a transaction of `tx_ten` writes.
pub(crate) const TEN: usize = 10;

/// How it is measured.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) turns: Turns,
    pub(crate) callers: usize,
    pub(crate) cells: usize,
}

/// What is done over and over in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    BareCommit,
    Tx,
    TxTen,
    BareRead,
    Get,
    BareCommitMany,
    TxMany,
    TxTenMany,
    BareReadMany,
    GetMany,
}

impl Arm {
    /// All of them, in the order they are reported in.
    const ALL: [Arm; 10] = [
        Arm::BareCommit,
        Arm::Tx,
        Arm::TxTen,
        Arm::BareRead,
        Arm::Get,
        Arm::BareCommitMany,
        Arm::TxMany,
        Arm::TxTenMany,
        Arm::BareReadMany,
        Arm::GetMany,
    ];

    fn name(self) -> &'static str {
        match self {
            Arm::BareCommit => "bare_commit",
            Arm::Tx => "tx",
            Arm::TxTen => "tx_ten",
            Arm::BareRead => "bare_read",
            Arm::Get => "get",
            Arm::BareCommitMany => "bare_commit_many",
            Arm::TxMany => "tx_many",
            Arm::TxTenMany => "tx_ten_many",
            Arm::BareReadMany => "bare_read_many",
            Arm::GetMany => "get_many",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Arm::BareCommit => {
                "two CheckAndMutateRow made beforehand: prewrite and commit of a cell"
            }
            Arm::Tx => "begin, set, commit",
            Arm::TxTen => "begin, ten sets in ten rows, commit",
            Arm::BareRead => "one ReadRows made beforehand: locks and newest write of a cell",
            Arm::Get => "snapshot, get",
            Arm::BareCommitMany
            | Arm::TxMany
            | Arm::TxTenMany
            | Arm::BareReadMany
            | Arm::GetMany => "the same, many callers",
        }
    }

    fn work(self) -> Work {
        match self {
            Arm::BareCommit | Arm::BareCommitMany => Work::BareCommit,
            Arm::Tx | Arm::TxMany => Work::Commit { cells: 1 },
            Arm::TxTen | Arm::TxTenMany => Work::Commit { cells: TEN },
            Arm::BareRead | Arm::BareReadMany => Work::BareRead,
            Arm::Get | Arm::GetMany => Work::Get,
        }
    }

    fn callers(self, settings: &Settings) -> usize {
        match self {
            Arm::BareCommit | Arm::Tx | Arm::TxTen | Arm::BareRead | Arm::Get => 1,
            Arm::BareCommitMany
            | Arm::TxMany
            | Arm::TxTenMany
            | Arm::BareReadMany
            | Arm::GetMany => settings.callers,
        }
    }
}

/// Whether everything is there that was written, and nothing else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check {
    cells: u64,
    /// Cells, or answers, that were not as they had to be.
    pub(crate) wrong: u64,
    /// Transactions that the callers were told are committed, and that the client counted as such.
    transactions: u64,
    committed: u64,
}

impl Check {
    pub(crate) fn is_ok(&self) -> bool {
        self.wrong == 0 && self.transactions == self.committed
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    arms: Vec<Measured>,
    load: [Load; 2],
    pub(crate) check: Check,
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: &Settings) -> anyhow::Result<Option<Outcome>> {
    let before = Load::now();
    let progress = settings.turns.progress(context, Arm::ALL.len());
    progress.say(0, "loading");
    let bed = Arc::new(Bed::create(settings).await?);
    let mut callers = Caller::all(settings);
    for caller in &mut callers {
        caller.load(&bed).await?;
    }
    let mut arms = Arm::ALL.map(|arm| Measured::new(arm.name(), arm.description()));
    let turn = async |arm: usize| {
        let arm = Arm::ALL[arm];
        turn(&bed, &mut callers[..arm.callers(settings)], arm.work(), settings).await
    };
    if !settings.turns.take(context, &progress, &mut arms, turn).await? {
        return Ok(None);
    }
    let load = [before, Load::now()];
    let (mut cells, mut wrong, mut transactions) = (0, 0, 0);
    for caller in &mut callers {
        cells += caller.check(&bed).await?;
        wrong += caller.wrong;
        transactions += caller.committed;
    }
    let check = Check { cells, wrong, transactions, committed: bed.db.stats().committed };
    Ok(Some(Outcome { arms: arms.into(), load, check }))
}

/// One turn of these callers.
async fn turn(
    bed: &Arc<Bed>,
    callers: &mut [Caller],
    work: Work,
    settings: &Settings,
) -> anyhow::Result<Block> {
    for caller in callers.iter_mut() {
        caller.prepare(bed, work).await?;
    }
    let start = Start::now(Some(&bed.server));
    let (since, length) = (start.at(), settings.turns.block());
    let tasks = callers.iter_mut().map(|place| {
        let (bed, mut caller) = (bed.clone(), std::mem::take(place));
        let task = tokio::spawn(async move {
            let latencies = caller.call(&bed, work, since, length).await?;
            Ok::<_, anyhow::Error>((caller, latencies))
        });
        async move {
            let latencies;
            (*place, latencies) = task.await??;
            Ok::<_, anyhow::Error>(latencies)
        }
    });
    let done = futures::future::try_join_all(tasks).await?;
    let spent = start.spent();
    let mut block = Block { operations: 0, spent, latencies: histogram() };
    for nanos in done.into_iter().flatten() {
        block.latencies.saturating_record(nanos);
        block.operations += 1;
    }
    Ok(block)
}
