//! Measures the locks that dead clients leave behind (paper section 2.2).
//!
//! ```text
//!   commit             begin, set, commit on one cell
//!   commit_two_phases  begin, set, commit on one cell, in two phases
//!   get                snapshot, get of a cell without a lock
//!   first_lock         snapshot, get of a cell that a dead client has locked: the reader rolls
//!                      the transaction back and removes the lock
//!   further_lock       snapshot, get of another cell of that transaction, after it was rolled
//!                      back: the reader only removes the lock
//!   resume             snapshot, get of a cell whose lock was forgotten by a client that is alive:
//!                      the reader waits until the lock's lifetime is over
//!   live               prewrite, a pause, commit, while readers get the cell
//! ```
//!
//! A client dies here as a process does: its locks remain, and its liveness token is gone.

mod live;
mod locks;

use std::time::Duration;

use clap::Args;
use percolator_cli::context::Context;
use serde_json::json;

use crate::flags::{Measure, Place};
use crate::plot::{Axis, Line, Plot, Role, Unit};
use crate::report::{Figure, PLEASE_REPORT, Report, Row, figures, own, p50};

use live::Live;
use locks::Locks;

/// The lifetime of the locks of `resume` and of `live`.
const LIFETIME: Duration = Duration::from_millis(500);
/// Longest pause of a reader between two looks at a lock.
const BACKOFF_MAX: Duration = Duration::from_millis(100);
/// Cells of the transactions of `further_lock`.
const LOCKS: usize = 1000;
/// Most commits that the first lock of a transaction may cost, and a further one.
const FIRST: f64 = 3.0;
const FURTHER: f64 = 1.2;

/// All arms in the order of the report, each with its operation.
const ARMS: [(&str, &str); 7] = [
    ("commit", "begin, set, commit"),
    ("commit_two_phases", "the same in two phases"),
    ("get", "snapshot, get"),
    ("first_lock", "the same; rolls a dead transaction back"),
    ("further_lock", "the same; removes a further lock of one"),
    ("resume", "the same; waits until a forgotten lock is too old"),
    ("live", "prewrite, a pause, commit; among readers"),
];

const ROWS: [Row; 7] = [
    p50("first_lock", "commit").at_most(FIRST),
    p50("further_lock", "commit").at_most(FURTHER),
    p50("first_lock", "commit_two_phases"),
    p50("further_lock", "commit_two_phases"),
    p50("first_lock", "get"),
    p50("further_lock", "get"),
    own("resume", " p99/(lifetime + 2 backoffs)", |turn| {
        Some(turn.p99 / (LIFETIME + 2 * BACKOFF_MAX).as_nanos() as f64)
    })
    .at_most(1.0),
];

/// Locks of dead clients: their cost for a client that finds them, and how long they delay
/// readers.
///
/// The benchmark runs on the embedded store, and compares with a commit on one cell. The arms
/// take turns in blocks of half a second, in an order drawn from the seed. The exit status is
/// 3 if a reader got anything but a committed value. It is also 3 if a live client was rolled
/// back before its locks were too old.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench micro resolve --quick --out results
  percolator-bench micro resolve --seconds 30 --json")]
pub(crate) struct Resolve {
    #[command(flatten)]
    pub(crate) measure: Measure,
}

impl Resolve {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let turns = self.measure.turns(10.0)?;
        let place = Place::temporary()?;
        let mut locks = Locks::create(&place.join("dead"), turns.seed).await?;
        let mut live = Live::create(&place.join("live")).await?;
        let turn = async |at: usize| {
            let length = turns.block();
            match ARMS[at].0 {
                "commit" => locks.commit(length, false).await,
                "commit_two_phases" => locks.commit(length, true).await,
                "get" => locks.get(length).await,
                "first_lock" => locks.first(length).await,
                "further_lock" => locks.further(length).await,
                "resume" => locks.resume().await,
                _ => live.block(length).await,
            }
        };
        let arms = turns.measure(context, ARMS, turn).await?;
        let mut conditions = locks.conditions().await?;
        conditions.extend(live.conditions().await?);
        let figures = figures(turns, &arms, &ROWS);
        let plot = plot(&figures);
        let settings = json!({
            "durability": "buffered",
            "locks": LOCKS,
            "lock_lifetime_ms": LIFETIME.as_millis() as u64,
            "backoff_max_ms": BACKOFF_MAX.as_millis() as u64,
        });
        let report = Report::of_arms("resolve", settings, turns, &arms, figures);
        Ok(report.conditions(&conditions, PLEASE_REPORT).plot("resolve.svg", plot))
    }
}

fn plot(figures: &[Figure]) -> String {
    let commits = |below: &str| {
        ["first_lock", "further_lock"].map(|lock| {
            let name = format!("{lock}/{below} p50");
            figures.iter().find(|figure| figure.name == name)?.estimate
        })
    };
    let groups = ["first lock of a transaction", "further lock of it"];
    let y = Axis::linear("times a commit on one cell", Unit::Plain);
    let title = "What it costs a reader to remove a dead client's lock";
    Plot::groups(groups, y, title, "Embedded store; the read itself is in it.")
        .bars("commit in one step", Role::Ours(0), commits("commit"))
        .bars("commit in two phases", Role::Ours(1), commits("commit_two_phases"))
        .mark(Line::Y(FIRST), "goal for the first")
        .mark(Line::Y(FURTHER), "goal for a further one")
        .svg()
}
