//! Notifications, measured (paper section 2.4).
//!
//! ```text
//!   hand_off              half of: a thread wakes another, which wakes it; what anything across
//!                         threads costs
//!   hand_off_across       the same, with each kept on a processor of its own
//!   start_hinted          a write is committed, and the observer starts, told by a hint; the
//!                         writer is a task of the workers' runtime, as an application is
//!   start_outside         the same, with the writer on a thread outside the runtime
//!   rested_commit, rested_read
//!                         its parts, each alone: after a rest everything takes longer than in a
//!                         row
//!   start_scanned_Z       the same where no hint comes: a scan every Z ms finds the cell
//!   transactions          begin, set, commit on one cell, by as many callers as there are workers
//!   notifications         an observer that reads its cell and does nothing: get, acknowledge,
//!                         clear
//!   hot_weak, hot_strong  many writers of what one row's observer derives its data from: with weak
//!                         notifications, and with writes of the observed cell
//!   commission_...        each trade adds to its broker's one row; or an observer does, from rows
//!                         of the callers' own (paper section 3.3)
//!   scanners_...          sixteen scanners with a slow observer: jumping away from each other, or
//!                         not
//! ```
//!
//! Each experiment has a store of its own, so that no arm meets what another one left. Workers run
//! during the turns of their arms alone.

mod bed;
mod commission;
mod hand_off;
mod hot;
mod report;
mod scanners;
mod starts;
mod throughput;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::Turns;
use crate::findings::{Condition, Findings};
use crate::system::Load;
use crate::turns::{Block, Measured};

use commission::Commission;
use hand_off::HandOff;
use hot::Hot;
use percolator_cli::context::Context;
use scanners::Scanners;
use starts::{Part, Starts, Way, Writer};
use throughput::Throughput;

/// How many workers, and callers of transactions that are compared with them.
const WORKERS: usize = 4;

/// What is done over and over in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    HandOff(hand_off::Where),
    Start(starts::Way),
    Transactions,
    Notifications,
    Hot(hot::Way),
    Commission(commission::Way),
    Scanners { jump: bool },
}

/// An arm.
#[derive(Debug, Clone, Copy)]
struct Arm {
    name: &'static str,
    operation: &'static str,
    work: Work,
}

const fn arm(name: &'static str, work: Work, operation: &'static str) -> Arm {
    Arm { name, operation, work }
}

/// All arms, in the order they are reported in.
const ARMS: [Arm; 17] = [
    arm(
        "hand_off",
        Work::HandOff(hand_off::Where::Anywhere),
        "a thread wakes another: half of a round trip",
    ),
    arm(
        "hand_off_across",
        Work::HandOff(hand_off::Where::Across),
        "the same, from one processor to another",
    ),
    arm(
        "start_hinted",
        Work::Start(Way::Hinted(Writer::Task)),
        "set, commit; until the observer starts",
    ),
    arm(
        "start_outside",
        Work::Start(Way::Hinted(Writer::Outside)),
        "the same from outside the runtime",
    ),
    arm("rested_commit", Work::Start(Way::Part(Part::Commit)), "set, commit; nothing observed"),
    arm("rested_read", Work::Start(Way::Part(Part::Read)), "begin, get"),
    arm(
        "start_scanned_10",
        Work::Start(Way::Scanned(10)),
        "the same without a hint; a scan every 10 ms",
    ),
    arm("start_scanned_100", Work::Start(Way::Scanned(100)), "the same; a scan every 100 ms"),
    arm("start_scanned_1000", Work::Start(Way::Scanned(1000)), "the same; a scan every second"),
    arm("transactions", Work::Transactions, "begin, set, commit"),
    arm("notifications", Work::Notifications, "get, acknowledge, clear (on average)"),
    arm("hot_weak", Work::Hot(hot::Way::Weak), "set, notify the hot row, commit"),
    arm("hot_strong", Work::Hot(hot::Way::Strong), "set, set in the hot row, commit"),
    arm(
        "commission_conflicting",
        Work::Commission(commission::Way::Conflicting),
        "a trade that adds to its broker's row",
    ),
    arm(
        "commission_observed",
        Work::Commission(commission::Way::Observed),
        "a trade that notifies its broker's row",
    ),
    arm("scanners_jump", Work::Scanners { jump: true }, "a dirty row is found and handled"),
    arm("scanners_go_on", Work::Scanners { jump: false }, "the same without the random jump"),
];

/// What a turn brought.
struct Turned {
    block: Block,
    /// A number of the arm's own.
    aside: Option<f64>,
}

/// All experiments.
struct Benches {
    hand_off: HandOff,
    starts: Arc<Mutex<Starts>>,
    throughput: Throughput,
    hot: Hot,
    commission: Commission,
    scanners: Scanners,
}

impl Benches {
    async fn create(dir: &std::path::Path, seed: u64) -> anyhow::Result<Self> {
        Ok(Benches {
            hand_off: HandOff::new(seed),
            starts: Arc::new(Mutex::new(Starts::create(&dir.join("starts"), seed).await?)),
            throughput: Throughput::create(&dir.join("throughput"), seed).await?,
            hot: Hot::create(&dir.join("hot")).await?,
            commission: Commission::create(&dir.join("commission"), seed).await?,
            scanners: Scanners::create(&dir.join("scanners")).await?,
        })
    }

    async fn turn(&mut self, work: Work, length: Duration) -> anyhow::Result<Turned> {
        let plain = |block| Turned { block, aside: None };
        Ok(match work {
            Work::HandOff(place) => plain(self.hand_off.block(place, length).await?),
            Work::Start(way) => plain(self.start(way, length).await?),
            Work::Transactions => plain(self.throughput.transactions(length).await?),
            Work::Notifications => self.throughput.notifications(length).await?,
            Work::Hot(way) => self.hot.block(way, length).await?,
            Work::Commission(way) => self.commission.block(way, length).await?,
            Work::Scanners { jump } => self.scanners.block(jump, length).await?,
        })
    }

    /// As a task, which the code of an application is: whom it wakes runs on the same thread.
    async fn start(&self, way: Way, length: Duration) -> anyhow::Result<Block> {
        let mut starts = self.starts.clone().lock_owned().await;
        tokio::spawn(async move { starts.block(way, length).await }).await?
    }

    async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let mut conditions = self.starts.lock().await.conditions();
        conditions.extend(self.throughput.conditions());
        conditions.extend(self.hot.conditions().await?);
        conditions.extend(self.commission.conditions().await?);
        conditions.extend(self.scanners.conditions().await?);
        Ok(conditions)
    }
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, turns: Turns) -> anyhow::Result<Option<Findings>> {
    let before = Load::now();
    let progress = turns.progress(context, ARMS.len());
    progress.say(0, "preparing");
    let dir = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
    let mut benches = Benches::create(dir.path(), turns.seed).await?;
    let mut arms = ARMS.map(|arm| Measured::new(arm.name, arm.operation));
    let mut aside = vec![Vec::new(); ARMS.len()];
    let turn = async |at: usize| {
        let Turned { block, aside: number } = benches.turn(ARMS[at].work, turns.block()).await?;
        aside[at].extend(number);
        Ok(block)
    };
    if !turns.take(context, &progress, &mut arms, turn).await? {
        return Ok(None);
    }
    let load = [before, Load::now()];
    let aside: Vec<&[f64]> = aside.iter().map(|of| turns.counted(of)).collect();
    let conditions = benches.conditions().await?;
    Ok(Some(report::findings(turns, load, arms.into(), &aside, conditions)))
}
