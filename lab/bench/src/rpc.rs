//! Transactions over a network, measured against the requests that they consist of.
//!
//! ```text
//!   bare_commit    prewrite and commit of a transaction on one cell, as two requests made
//!                  beforehand
//!   tx             begin, set, commit: the client makes the same requests
//!   tx_read_first  the same as without conditional mutations (paper section 2.5): a request of its
//!                  own reads each row, for locks and writes in the way, before the one that locks
//!                  it
//!   tx_ten         begin, ten sets in ten rows, commit, with batches of conditional mutations
//!   tx_ten_each    the same as on a server without batches: each row's mutation is a request of
//!                  its own
//!   bare_read      one ReadRows, made beforehand
//!   get            snapshot, get: the client makes the same request
//! ```
//!
//! The table server is a process of its own, the oracle is in this one, and each arm has one
//! caller, and again as many as `--callers` says. No two callers share a cell, so nothing
//! conflicts. Each value carries its cell's number and how often the cell was written, so that a
//! lost, repeated or misplaced write is noticed.

mod bed;
mod caller;
mod record;
mod report;

pub(crate) use report::{json, plot, print};

use std::sync::Arc;

use crate::Turns;
use crate::system::Load;
use crate::turns::{Block, Measured, Start, histogram};

use bed::{Bed, Form};
use caller::{Caller, Work};
use percolator_cli::context::Context;

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
#[derive(Debug)]
struct Arm {
    name: &'static str,
    operation: &'static str,
    work: Work,
    /// By as many callers as the settings say, instead of one.
    many: bool,
}

const fn one(name: &'static str, work: Work, operation: &'static str) -> Arm {
    Arm { name, operation, work, many: false }
}

const fn many(name: &'static str, work: Work) -> Arm {
    Arm { name, operation: "the same, many callers", work, many: true }
}

const TX: Work = Work::Commit { cells: 1, form: Form::Usual };
const TX_READ_FIRST: Work = Work::Commit { cells: 1, form: Form::ReadFirst };
const TX_TEN: Work = Work::Commit { cells: TEN, form: Form::Usual };
const TX_TEN_EACH: Work = Work::Commit { cells: TEN, form: Form::EachAlone };

/// All arms, in the order they are reported in.
const ARMS: [Arm; 14] = [
    one("bare_commit", Work::BareCommit, "CheckAndMutateRow twice: prewrite and commit of a cell"),
    one("tx", TX, "begin, set, commit"),
    one("tx_read_first", TX_READ_FIRST, "the same, each row read before it is locked"),
    one("tx_ten", TX_TEN, "begin, ten sets in ten rows, commit"),
    one("tx_ten_each", TX_TEN_EACH, "the same, without batches"),
    one("bare_read", Work::BareRead, "one ReadRows: locks and newest write of a cell"),
    one("get", Work::Get, "snapshot, get"),
    many("bare_commit_many", Work::BareCommit),
    many("tx_many", TX),
    many("tx_read_first_many", TX_READ_FIRST),
    many("tx_ten_many", TX_TEN),
    many("tx_ten_each_many", TX_TEN_EACH),
    many("bare_read_many", Work::BareRead),
    many("get_many", Work::Get),
];

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
    let progress = settings.turns.progress(context, ARMS.len());
    progress.say(0, "loading");
    let bed = Arc::new(Bed::create(settings).await?);
    let mut callers = Caller::all(settings);
    for caller in &mut callers {
        caller.load(&bed).await?;
    }
    let mut arms = ARMS.map(|arm| Measured::new(arm.name, arm.operation));
    let turn = async |arm: usize| {
        let Arm { work, many, .. } = ARMS[arm];
        let count = if many { settings.callers } else { 1 };
        turn(&bed, &mut callers[..count], work, settings).await
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
    let check = Check { cells, wrong, transactions, committed: bed.committed() };
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
