//! The timestamp oracle, measured: what batching gives, and what it costs in time.
//!
//! ```text
//!   echo       one message to and fro over loopback, and nothing else: what a round trip takes
//!   unbatched  one caller, one request for each timestamp
//!   batched    many callers, as fast as it goes; one request in flight
//!   half_load  callers that come at half that rate, whether or not they are served
//!   half_echo  the same load, with a peer that sends back what it gets in place of the oracle
//! ```
//!
//! The server is a process of its own, the clients are this one. The arms take turns; every
//! timestamp that was handed out is marked, and none may be met twice or below one that was there
//! before. The run is void, too, if the callers of `half_load` came late in most rounds.

mod arms;
mod echo;
mod marks;
mod report;

pub(crate) use report::{json, plot, print};

use std::sync::Arc;

use percolator_rpc::Address;
use percolator_rpc::oracle::{RemoteOracle, RemoteOracleOptions};

use crate::Turns;
use crate::server::Server;
use crate::statistics::is_late;
use crate::system::Load;
use crate::turns::{Block, Measured, Start, Turn};

use marks::Marks;
use percolator_cli::context::Context;

/// How it is measured.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) turns: Turns,
    pub(crate) callers: usize,
}

/// What is done over and over in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    Echo,
    Unbatched,
    Batched,
    HalfLoad,
    HalfLoadEcho,
}

impl Arm {
    const ALL: [Arm; 5] =
        [Arm::Echo, Arm::Unbatched, Arm::Batched, Arm::HalfLoad, Arm::HalfLoadEcho];

    fn name(self) -> &'static str {
        match self {
            Arm::Echo => "echo",
            Arm::Unbatched => "unbatched",
            Arm::Batched => "batched",
            Arm::HalfLoad => "half_load",
            Arm::HalfLoadEcho => "half_echo",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Arm::Echo => "32 bytes to and fro over loopback TCP",
            Arm::Unbatched => "a timestamp for the only caller",
            Arm::Batched => "a timestamp for one of many callers",
            Arm::HalfLoad => "a timestamp at half the rate of `batched`, from when it was due",
            Arm::HalfLoadEcho => "an echo for one of as many callers, batched alike",
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Those of [`Arm::ALL`], and how late callers came.
    arms: Vec<Measured>,
    load: [Load; 2],
    /// How many timestamps were handed out.
    timestamps: u64,
    /// How many of them twice, or backwards.
    wrong: u64,
    /// In how many of the rounds callers came late.
    late: usize,
}

impl Outcome {
    /// Why the figures are void, and what to do; `None` if they are not.
    pub(crate) fn void(&self) -> Option<(String, &'static str)> {
        let rounds = self.arms[Arm::HalfLoad as usize].turns.len();
        if self.wrong > 0 {
            let what = format!("{} timestamps came twice or went back", self.wrong);
            return Some((
                what,
                "the figures are void; please report this with the settings above",
            ));
        }
        (self.late * 2 > rounds).then(|| {
            let what =
                format!("callers at half the rate came late in {} of {rounds} rounds", self.late);
            (what, "the delays are void: run it again on a machine that does nothing else")
        })
    }
}

/// Whether the callers of a turn came late.
fn is_late_turn((late, asked): (&Turn, &Turn)) -> bool {
    let seconds = |turn: &Turn| [turn.p50 / 1e9, turn.p99 / 1e9];
    is_late(seconds(late), seconds(asked))
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: &Settings) -> anyhow::Result<Option<Outcome>> {
    let before = Load::now();
    let progress = settings.turns.progress(context, Arm::ALL.len());
    progress.say(0, "starting the server");
    let server = Server::start("oracle", &[])?;
    let addresses = vec![server.address().parse::<Address>()?];
    let oracle = Arc::new(RemoteOracle::new(addresses, RemoteOracleOptions::default())?);
    let mut marks = Marks::default();
    let mut arms = Arm::ALL.map(|arm| Measured::new(arm.name(), arm.description()));
    // Of the warming round, until there are others.
    let mut rate = 100_000.0;
    let mut late = Vec::new();
    let turn = async |arm: usize| {
        let (arm, start) = (Arm::ALL[arm], Start::now(Some(&server)));
        let done = arms::turn(arm, &oracle, settings, rate / 2.0, start).await?;
        marks.add(&done.timestamps);
        let Block { operations, spent, .. } = done.block;
        if arm == Arm::Batched {
            rate = operations as f64 / spent.elapsed.as_secs_f64();
        }
        if arm == Arm::HalfLoad {
            late.push(Block { operations, spent, latencies: done.late });
        }
        Ok(done.block)
    };
    if !settings.turns.take(context, &progress, &mut arms, turn).await? {
        return Ok(None);
    }
    let load = [before, Load::now()];
    let mut arms = Vec::from(arms);
    let what = "how late the callers of `half_load` came, for want of a processor";
    let mut lateness = Measured::new("half_load_late", what);
    settings.turns.counted(&late).iter().try_for_each(|block| lateness.add(block))?;
    let rounds = lateness.turns.iter().zip(&arms[Arm::HalfLoad as usize].turns);
    let late_rounds = rounds.filter(|round| is_late_turn(*round)).count();
    arms.push(lateness);
    let (timestamps, wrong) = (marks.count(), marks.wrong());
    Ok(Some(Outcome { arms, load, timestamps, wrong, late: late_rounds }))
}
