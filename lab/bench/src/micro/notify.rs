//! Measures notifications (paper section 2.4).
//!
//! ```text
//!   hand_off              half of a round in which two threads wake each other: the least cost of
//!                         anything across threads
//!   hand_off_across       as hand_off, with each thread kept on a processor of its own
//!   start_hinted          a write is committed, and a hint starts the observer; the writer is a
//!                         task of the workers' runtime, like an application's code
//!   start_outside         as start_hinted, with the writer on a thread outside the runtime
//!   rested_commit, rested_read
//!                         two parts of a start, each measured alone, after a rest in which all
//!                         threads go to sleep; after such a rest everything takes longer
//!   start_scanned_Z       as start_hinted, but without hints: a scan every Z ms finds the cell
//!   transactions          begin, set, commit on one cell, by as many callers as there are workers
//!   notifications         an observer that reads its cell and does nothing: get, acknowledge,
//!                         clear
//!   ..._synced            the same two, where each commit waits for the disk
//!   hot_weak, hot_strong  many writers, and an observer that derives the data of one row from what
//!                         they write: writers send weak notifications, or write the observed cell
//!   commission_...        each trade adds to its broker's one row; or each caller adds to a row of
//!                         its own, and an observer adds these up (paper section 3.3)
//!   scanners_jump         sixteen scanners with a slow observer jump away from each other
//! ```
//!
//! Each experiment has a store or a table of its own, so that no arm finds leftovers of
//! another. Workers run only during the turns of their arms.

mod derived;
mod hand_off;
mod scanners;
mod starts;
mod throughput;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use percolator::Durability;
use percolator_cli::context::Context;
use serde_json::json;
use tokio::sync::Mutex;

use crate::Turns;
use crate::flags::{Measure, Place};
use crate::plot::{Axis, Plot, Point, Role, Unit};
use crate::report::{
    Condition, Figure, Of, PLEASE_REPORT, Report, Row, arm, figures, named, own, p50, p99, rate,
};
use crate::statistics::Estimate;
use crate::turns::{Block, Measured};

use derived::Derived;
use hand_off::{HandOff, Where};
use scanners::Scanners;
use starts::{Part, Starts, Way, Writer};
use throughput::Throughput;
use workers::{CALLERS, WORKERS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    HandOff(Where),
    Start(Way),
    Transactions(Durability),
    Notifications(Durability),
    Derived(derived::Way),
    Scanners,
}

/// All arms in the order of the report, each with its operation.
const ARMS: [(&str, Work, &str); 18] = [
    ("hand_off", Work::HandOff(Where::Anywhere), "a thread wakes another: half of a round trip"),
    ("hand_off_across", Work::HandOff(Where::Across), "the same, from one processor to another"),
    (
        "start_hinted",
        Work::Start(Way::Hinted(Writer::Task)),
        "set, commit; until the observer starts",
    ),
    (
        "start_outside",
        Work::Start(Way::Hinted(Writer::Outside)),
        "the same from outside the runtime",
    ),
    ("rested_commit", Work::Start(Way::Part(Part::Commit)), "set, commit; nothing observed"),
    ("rested_read", Work::Start(Way::Part(Part::Read)), "begin, get"),
    (
        "start_scanned_10",
        Work::Start(Way::Scanned(10)),
        "the same without a hint; a scan every 10 ms",
    ),
    ("start_scanned_100", Work::Start(Way::Scanned(100)), "the same; a scan every 100 ms"),
    ("start_scanned_1000", Work::Start(Way::Scanned(1000)), "the same; a scan every second"),
    ("transactions", Work::Transactions(Durability::Buffered), "begin, set, commit"),
    (
        "notifications",
        Work::Notifications(Durability::Buffered),
        "get, acknowledge, clear (on average)",
    ),
    ("transactions_synced", Work::Transactions(Durability::Sync), "begin, set, commit"),
    (
        "notifications_synced",
        Work::Notifications(Durability::Sync),
        "get, acknowledge, clear (on average)",
    ),
    ("hot_weak", Work::Derived(derived::Way::HotWeak), "set, notify the hot row, commit"),
    ("hot_strong", Work::Derived(derived::Way::HotStrong), "set, set in the hot row, commit"),
    (
        "commission_conflicting",
        Work::Derived(derived::Way::Conflicting),
        "a trade that adds to its broker's row",
    ),
    (
        "commission_observed",
        Work::Derived(derived::Way::Observed),
        "a trade that notifies its broker's row",
    ),
    ("scanners_jump", Work::Scanners, "a dirty row is found and handled"),
];

const STARTS: [Row; 8] = [
    p50("start_hinted", "hand_off").at_most(5.0),
    p99("start_hinted", "hand_off").at_most(10.0),
    // The paper reports two seconds (section 3.2), with the transactions of the observers.
    named("2 s/start_hinted p50", "start_hinted", |turn| Some(2e9 / turn.p50)).at_least(400.0),
    p50("start_hinted", "hand_off_across").at_most(5.0),
    p50("start_outside", "hand_off"),
    p50("start_outside", "hand_off_across").at_most(5.0),
    p50("rested_commit", "hand_off"),
    p50("rested_read", "hand_off"),
];

/// The wait for a scan as a share of its period, at the median and the 99th percentile.
const SCANNED: [(&str, Of, Of); 3] = [
    ("start_scanned_10", |turn| Some(turn.p50 / 1e7), |turn| Some(turn.p99 / 1e7)),
    ("start_scanned_100", |turn| Some(turn.p50 / 1e8), |turn| Some(turn.p99 / 1e8)),
    ("start_scanned_1000", |turn| Some(turn.p50 / 1e9), |turn| Some(turn.p99 / 1e9)),
];

const REST: [Row; 11] = [
    rate("notifications", "transactions").at_least(0.5),
    own("notifications", ": starts in vain", |turn| turn.own("in vain")).at_most(0.02),
    rate("notifications_synced", "transactions_synced").at_least(3.0),
    own("notifications_synced", ": starts in vain", |turn| turn.own("in vain")).at_most(0.02),
    own("hot_weak", ": committed of attempted", |turn| Some(1.0 - turn.own("conflicts")?))
        .at_least(0.9),
    own("hot_strong", ": committed of attempted", |turn| Some(1.0 - turn.own("conflicts")?))
        .at_most(0.5),
    rate("hot_weak", "hot_strong"),
    rate("commission_observed", "commission_conflicting"),
    own("commission_conflicting", ": conflicts of attempts", |turn| turn.own("conflicts")),
    own("commission_observed", ": conflicts of attempts", |turn| turn.own("conflicts"))
        .at_most(0.01),
    own("scanners_jump", ": spread", |turn| turn.own("spread")),
];

const QUANTILES: [f64; 13] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 0.999];

/// Notifications: how soon an observer starts, how many a second, and what they save on hot rows.
///
/// The benchmark runs on the embedded store. It compares the time to an observer's start with a
/// thread that wakes another, and the rate of runs with transactions on one cell. The arms take
/// turns in blocks of half a second at most, in an order drawn from the seed. The exit status is 3
/// if an observer's run was lost or committed twice, or if the observers' results differ from the
/// written data.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench micro notify --quick --out results
  percolator-bench micro notify --seconds 30 --json")]
pub(crate) struct Notify {
    #[command(flatten)]
    pub(crate) measure: Measure,
}

struct Benches {
    hand_off: HandOff,
    starts: Arc<Mutex<Starts>>,
    throughput: Throughput,
    synced: Throughput,
    derived: Derived,
    scanners: Scanners,
}

impl Benches {
    async fn create(place: &Place, seed: u64) -> anyhow::Result<Self> {
        let throughput = async |name: &str, durability| {
            Throughput::create(&place.join(name), seed, durability).await
        };
        Ok(Benches {
            hand_off: HandOff::new(seed),
            starts: Arc::new(Mutex::new(Starts::create(&place.join("starts"), seed).await?)),
            throughput: throughput("throughput", Durability::Buffered).await?,
            synced: throughput("synced", Durability::Sync).await?,
            derived: Derived::create(&place.join("derived"), seed).await?,
            scanners: Scanners::create(&place.join("scanners")).await?,
        })
    }

    async fn turn(&mut self, work: Work, length: Duration) -> anyhow::Result<Block> {
        match work {
            Work::HandOff(place) => self.hand_off.block(place, length).await,
            Work::Start(way) => self.start(way, length).await,
            Work::Transactions(durability) => self.of(durability).transactions(length).await,
            Work::Notifications(durability) => self.of(durability).notifications(length).await,
            Work::Derived(way) => self.derived.block(way, length).await,
            Work::Scanners => self.scanners.block(length).await,
        }
    }

    fn of(&mut self, durability: Durability) -> &mut Throughput {
        match durability {
            Durability::Buffered => &mut self.throughput,
            Durability::Sync => &mut self.synced,
        }
    }

    /// Runs as a task, like an application's code, so that the woken worker runs on the same
    /// thread.
    async fn start(&self, way: Way, length: Duration) -> anyhow::Result<Block> {
        let mut starts = self.starts.clone().lock_owned().await;
        tokio::spawn(async move { starts.block(way, length).await }).await?
    }

    async fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let mut conditions = self.starts.lock().await.conditions();
        conditions.extend(self.throughput.conditions());
        conditions.extend(self.synced.conditions());
        conditions.extend(self.derived.conditions().await?);
        conditions.extend(self.scanners.conditions().await?);
        Ok(conditions)
    }
}

impl Notify {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let turns = self.measure.turns(10.0)?;
        let place = Place::temporary()?;
        let mut benches = Benches::create(&place, turns.seed).await?;
        let turn = async |at: usize| benches.turn(ARMS[at].1, turns.block()).await;
        let arms = ARMS.map(|(name, _, operation)| (name, operation));
        let arms = turns.measure(context, arms, turn).await?;
        let conditions = benches.conditions().await?;
        let mut all = figures(turns, &arms, &STARTS);
        all.extend(parts(turns, &arms));
        for (name, p50, p99) in SCANNED {
            let rows = [
                own(name, " p50/period", p50).at_most(0.75),
                own(name, " p99/period", p99).at_most(2.0),
            ];
            all.extend(figures(turns, &arms, &rows));
        }
        all.extend(figures(turns, &arms, &REST));
        let durability = "buffered, but for the synced arms";
        let settings = json!({ "workers": WORKERS, "callers": CALLERS, "durability": durability });
        let report = Report::of_arms("notify", settings, turns, &arms, all);
        let report = report.conditions(&conditions, PLEASE_REPORT);
        Ok(report.plot("notify.svg", plot(&arms)))
    }
}

/// A start over the sum of its parts. The rest is the way to the worker, its row lock, and the
/// reading of the acknowledgement.
fn parts(turns: Turns, arms: &[Measured]) -> Option<Figure> {
    let p50s = |name: &str| Some(arm(arms, name)?.turns.iter().map(|turn| turn.p50));
    let parts = p50s("rested_commit")?.zip(p50s("rested_read")?).zip(p50s("hand_off")?);
    let each = p50s("start_hinted")?.zip(parts);
    let each: Vec<f64> = each.map(|(start, ((c, r), wake))| start / (c + r + wake)).collect();
    let name = "start_hinted p50/(rested_commit + rested_read + hand_off)";
    Some(Figure::new(name, Estimate::of(&each, turns.seed)))
}

fn plot(arms: &[Measured]) -> String {
    let subtitle = "Embedded store, idle but for one writer. The paper's repository had documents \
                    clustered two seconds after they were crawled.";
    let x = Axis::linear("share of all starts", Unit::Percent).between(0.0, 100.0);
    let y = Axis::log("delay", Unit::Seconds);
    let mut plot = Plot::over(x, y, "From commit to the observer's start", subtitle);
    for (role, name, told) in [
        (Role::Peer(0), "hand_off", "a thread wakes another"),
        (Role::Ours(0), "start_hinted", "hint"),
        (Role::Ours(1), "start_scanned_10", "scan every 10 ms"),
        (Role::Ours(2), "start_scanned_100", "scan every 100 ms"),
        (Role::Ours(3), "start_scanned_1000", "scan every second"),
    ] {
        let Some(arm) = arm(arms, name) else { continue };
        let point = |quantile: &f64| {
            let nanos = arm.latencies.value_at_quantile(*quantile) as f64;
            Point::at(100.0 * quantile, nanos / 1e9)
        };
        plot = plot.line(told, role, QUANTILES.iter().map(point).collect());
    }
    plot.svg()
}
