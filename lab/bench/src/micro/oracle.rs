//! Measures the timestamp oracle: the gain from batching, and its cost in time.
//!
//! ```text
//!   echo       one message to and fro over loopback, and nothing else: the cost of a round trip
//!   unbatched  one caller, one request for each timestamp
//!   batched    many callers at full speed; one request in flight
//!   half_load  callers that arrive at half that rate, whether or not they are served
//!   half_echo  the same load on a peer that sends each message back, in place of the oracle
//! ```
//!
//! The server is a process of its own; the clients are this one. The arms take turns. Every
//! timestamp that a caller gets is marked: none may occur twice, or below an earlier one. The
//! run is also void if the callers of `half_load` were late in most rounds.

mod arms;
mod echo;
mod marks;

use std::sync::Arc;

use clap::Args;
use percolator_cli::context::Context;
use percolator_rpc::Address;
use percolator_rpc::oracle::{RemoteOracle, RemoteOracleOptions};
use serde_json::json;

use crate::Turns;
use crate::flags::{Measure, within};
use crate::plot::{Axis, Plot, Role, Unit};
use crate::report::{Bar, Figure, Report, Row, figures, p99, rate};
use crate::server::Server;
use crate::statistics::{Estimate, is_late};
use crate::turns::{Block, Measured, Others, Turn};

use marks::Marks;

/// The paper's timestamps a second from one machine.
const PAPER: f64 = 2_000_000.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    Echo,
    Unbatched,
    Batched,
    HalfLoad,
    HalfLoadEcho,
}

const ARMS: [(&str, Arm, &str); 5] = [
    ("echo", Arm::Echo, "32 bytes to and fro over loopback TCP"),
    ("unbatched", Arm::Unbatched, "a timestamp for the only caller"),
    ("batched", Arm::Batched, "a timestamp for one of many callers"),
    ("half_load", Arm::HalfLoad, "a timestamp at half the rate of `batched`, from when it was due"),
    ("half_echo", Arm::HalfLoadEcho, "an echo for one of as many callers, batched alike"),
];

const OVER_ONE: [Row; 1] = [rate("batched", "unbatched").at_least(100.0)];
/// The delay over a round trip under the same load, and over an idle one; and the effect of the
/// load alone.
const DELAYS: [Row; 3] = [
    p99("half_load", "half_echo").at_most(3.0),
    p99("half_load", "echo").at_most(3.0),
    p99("half_echo", "echo"),
];

/// Timestamps from an oracle process over loopback: one caller, many callers, and delays at half
/// load.
///
/// The arms take turns in blocks of at most half a second, in an order drawn from the seed. A
/// figure is the median over the rounds. The exit status is 3 if a timestamp was issued twice
/// or went back, or if callers were late in most rounds.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-bench micro oracle --callers 2000 --json")]
pub(crate) struct Oracle {
    #[command(flatten)]
    pub(crate) measure: Measure,
    /// The number of callers that ask at the same time.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    callers: usize,
}

fn is_late_turn((late, asked): (&Turn, &Turn)) -> bool {
    let seconds = |turn: &Turn| [turn.p50 / 1e9, turn.p99 / 1e9];
    is_late(seconds(late), seconds(asked))
}

impl Oracle {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let callers = self.callers;
        within("callers", callers, 1..=100_000)?;
        let turns = self.measure.turns(5.0)?;
        let server = Server::start("oracle", &[])?;
        let addresses = vec![server.address().parse::<Address>()?];
        let oracle = Arc::new(RemoteOracle::new(addresses, RemoteOracleOptions::default())?);
        let mut marks = Marks::default();
        // The rate of the warm-up round, until others are known.
        let mut rate = 100_000.0;
        let mut late = Vec::new();
        let turn = async |at: usize| {
            let (arm, length, others) = (ARMS[at].1, turns.block(), Others::Server(&server));
            let done = arms::turn(arm, &oracle, callers, length, rate / 2.0, others).await?;
            marks.add(&done.timestamps);
            let Block { operations, spent, .. } = done.block;
            if arm == Arm::Batched {
                rate = operations as f64 / spent.elapsed.as_secs_f64();
            }
            if arm == Arm::HalfLoad {
                late.push(Block { latencies: done.late, ..Block::new(operations, spent) });
            }
            Ok(done.block)
        };
        let arms = ARMS.map(|(name, _, operation)| (name, operation));
        let mut arms = turns.measure(context, arms, turn).await?;
        let what = "how late the callers of `half_load` came, for want of a processor";
        let mut lateness = Measured::new("half_load_late", what);
        // Turns that warm up do not count.
        let counted = &late[late.len().saturating_sub(turns.blocks())..];
        counted.iter().try_for_each(|block| lateness.add(block))?;
        let rounds = lateness.turns.iter().zip(&arms[Arm::HalfLoad as usize].turns);
        let late_rounds = rounds.filter(|round| is_late_turn(*round)).count();
        arms.push(lateness);
        let settings = json!({ "callers": callers, "processes": "one server, one client" });
        let report = Report::of_arms("oracle", settings, turns, &arms, all_figures(turns, &arms));
        let check = json!({
            "timestamps": marks.count(),
            "wrong": marks.wrong(),
            "late_rounds": late_rounds,
        });
        let void = void(marks.wrong(), late_rounds, turns.blocks());
        Ok(report.check(check, void).plot("oracle.svg", plot(callers, turns, &arms)))
    }
}

/// The reason why the figures are void, and the remedy; `None` if they are valid.
fn void(wrong: u64, late: usize, rounds: usize) -> Option<(String, String)> {
    if wrong > 0 {
        let help = "the figures are void; please report this with the settings above";
        return Some((format!("{wrong} timestamps came twice or went back"), help.to_owned()));
    }
    (late * 2 > rounds).then(|| {
        let what = format!("callers at half the rate came late in {late} of {rounds} rounds");
        let help = "the delays are void: run it again on a machine that does nothing else";
        (what, help.to_owned())
    })
}

fn all_figures(turns: Turns, arms: &[Measured]) -> Vec<Figure> {
    let batched = turns.rate(&arms[Arm::Batched as usize]);
    let batched = Figure::new("batched timestamps per s", batched);
    let mut all = figures(turns, arms, &OVER_ONE);
    all.push(batched.bar(Bar::AtLeast(PAPER)).paper(PAPER));
    all.extend(figures(turns, arms, &DELAYS));
    all
}

fn plot(callers: usize, turns: Turns, arms: &[Measured]) -> String {
    let rate = |arm: Arm| turns.rate(&arms[arm as usize]);
    let subtitle = "Over loopback, server and client a process each, on the same machine. The \
                    paper's server has it to itself.";
    let groups = [
        "one caller, a request for each".to_owned(),
        format!("{} callers, batched", percolator_cli::output::grouped(callers as u64)),
    ];
    let y = Axis::log("timestamps a second", Unit::Plain);
    Plot::groups(groups, y, "Timestamps from one oracle", subtitle)
        .bars("here", Role::Ours(0), [rate(Arm::Unbatched), rate(Arm::Batched)])
        .bars("the paper", Role::Paper(0), [None, Some(Estimate::alone(PAPER))])
        .svg()
}
