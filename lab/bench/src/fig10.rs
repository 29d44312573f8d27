//! Measures throughput over time while a third of the workers, and then the table server, are
//! killed (the paper's Figure 10).
//!
//! ```text
//!   workers killed   transactions a second
//!   ---------------+                  +----------+      +------
//!                  |  the others do   |          |      |
//!                  +------------------+          +------+
//!   baseline       | a third away     | back     | table server away, back
//! ```
//!
//! The table server, the oracle and each worker are a process each. Killing a process gives its
//! share of the processors to the others. So each worker has a capacity, a rate that it does
//! not exceed. The work of a killed worker is then lost, as it is on separate machines. All
//! capacities together take about half of the processors, so that the remaining workers could
//! do more if they were allowed to.
//!
//! Every worker logs a commit after it was acknowledged and before it counts. The throughput
//! comes from the logs, and at the end the store is compared with them. A run is void if a
//! commit is lost or the books are not in order. A run is also void if its workers did not
//! reach their capacities before anything was killed. This benchmark does not measure the
//! moving of tablets, which is the store's work: there is one table server. `hbase.rs` kills
//! servers of an HBase cluster, which moves its regions.

mod cluster;
mod hbase;
mod report;
mod series;
mod worker;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::progress::Progress;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use tpce::{Audit, Exchange, Scale};

use crate::flags::{Common, brokerage, within};
use crate::report::Report;
use crate::system::Spent;
use crate::turns::go_on;

use cluster::Cluster;
pub(crate) use hbase::Fig10Hbase;
use series::Series;
pub(crate) use worker::Fig10Worker;

/// Initial capacities of all workers together, as a share of their rate without capacities.
const CAPACITY_SHARE: f64 = 0.45;
/// Largest share of the processors, and the target if the workers exceed it.
const CPU_SHARE_MAX: f64 = 0.55;
const CPU_SHARE: f64 = 0.5;
const CALIBRATIONS_MAX: usize = 5;
/// Seconds after which throughput should be back.
const GRACE_S: f64 = 5.0;
/// Share of their capacities that the workers must reach before anything is killed.
const ON_TIME_SHARE: f64 = 0.95;

/// Throughput over time while processes are killed (the paper's Figure 10): a third of the workers,
/// and then the table server.
///
/// Workers drive a TPC-E-like brokerage over RPC. Each worker has a capacity, so that the
/// capacity of a killed worker is lost. The exit status is 3 if an acknowledged commit is
/// lost, or if the books are not in order. It is also 3 if the workers did not reach their
/// capacities before the first kill.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench fig10 --quick --out results
  percolator-bench fig10 --seconds 120 --rounds 1 --json")]
pub(crate) struct Fig10 {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Customers of the brokerage; all else is in proportion [default: 1000, quick: 300].
    #[arg(long, value_name = "N")]
    customers: Option<u64>,
    /// The number of workers; a third of them is killed.
    #[arg(long, value_name = "N", default_value_t = 15)]
    workers: usize,
    /// Seconds before the kill, until the return, and after it [default: 60, quick: 20].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// The number of rounds [default: 3, quick: 1].
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
}

impl Fig10 {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        within("seconds", self.seconds(), 1.0..=3600.0)?;
        within("workers", self.workers, 2..=100)?;
        within("rounds", self.rounds(), 1..=100)?;
        let scale = brokerage(self.customers(), self.common.seed)?;
        let outcome = run(context, self, scale).await?;
        Ok(report::report(self, scale, &outcome))
    }

    fn customers(&self) -> u64 {
        self.customers.unwrap_or(self.common.sized(300, 1_000))
    }

    /// Length of each part of a round. The table server is away for a quarter of it.
    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(self.common.sized(20.0, 60.0))
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(self.common.sized(1, 3))
    }

    /// Number of workers that are killed: a third.
    fn killed(&self) -> usize {
        (self.workers / 3).max(1)
    }

    fn table_away_s(&self) -> f64 {
        self.seconds() / 4.0
    }

    /// The time until throughput should be back; less in a shorter run.
    fn grace_s(&self) -> f64 {
        GRACE_S.min(self.seconds() / 2.0)
    }

    /// Length of the windows for rates.
    fn window_s(&self) -> f64 {
        GRACE_S.min(self.seconds() / 4.0)
    }

    /// Length of the windows in which throughput must be back.
    fn probe_s(&self) -> f64 {
        2.0_f64.min(self.seconds() / 8.0)
    }

    /// Approximate length of the run, without loading.
    fn all_s(&self) -> f64 {
        self.rounds() as f64 * (4.0 * self.seconds() + self.table_away_s()) + self.seconds()
    }
}

/// The moments of a round, in seconds since the beginning.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    begin: f64,
    killed: f64,
    /// The time at which the workers are started again.
    returned: f64,
    table_killed: f64,
    /// The time at which the table server is started again.
    table_returned: f64,
    table_listens: f64,
    end: f64,
}

#[derive(Debug, Clone, Copy)]
struct Capacity {
    /// Transactions a second of all workers without a capacity.
    free: f64,
    /// Capacity of one worker, in transactions a second.
    each: f64,
    /// Share of all processors that all processes then take; `None` if it cannot be measured.
    cpu_share: Option<f64>,
}

#[derive(Debug)]
struct Outcome {
    capacity: Capacity,
    rounds: Vec<Round>,
    all: Series,
    trade_results: Series,
    audit: Audit,
    /// The reports of the workers that lived to the end.
    workers: Vec<Value>,
    loaded_s: f64,
    took_s: f64,
}

impl Outcome {
    /// The rate before anything was killed.
    fn baseline(&self, round: &Round) -> f64 {
        self.all.rate(round.begin, round.killed)
    }

    /// The reason why the figures are void, and the remedy; `None` if they are valid.
    fn void(&self, settings: &Fig10) -> Option<(String, &'static str)> {
        if let Some(first) = self.audit.violations.first() {
            let (count, lost) = (self.audit.violations.len(), self.audit.lost);
            return Some((
                format!(
                    "{count} violations of the books, {lost} commits lost; the first one: {first}"
                ),
                "the figures are void; please report this with the settings above",
            ));
        }
        let wanted = self.capacity.each * settings.workers as f64;
        let reached = self.rounds.iter().map(|round| self.baseline(round) / wanted);
        let least = reached.fold(f64::INFINITY, f64::min);
        (least < ON_TIME_SHARE).then(|| {
            (
                format!("the workers reached only {:.0} % of their capacities", least * 100.0),
                "the figures are void: run it again on a machine that does nothing else",
            )
        })
    }
}

async fn run(context: &Context, settings: &Fig10, scale: Scale) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let data = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
    let progress = Progress::new(context.out.quiet, Some(settings.all_s() as u64));
    progress.say(0, "loading");
    let mut cluster =
        Cluster::start(data.path(), settings.workers, settings.customers(), settings.common.seed)?;
    // This client is dropped at once: only the workers may notice that servers are away.
    Exchange::load(cluster.connect().await?, scale).await?;
    let loaded_s = started.elapsed().as_secs_f64();
    cluster.start_workers()?;
    let clock = Clock { context, progress: &progress, measuring: Instant::now() };
    let capacity = calibrate(&clock, (settings.seconds(), settings.workers), &mut cluster).await?;
    let mut random = SmallRng::seed_from_u64(settings.common.seed);
    let begin = cluster.begin();
    let mut rounds = Vec::new();
    for _ in 0..settings.rounds() {
        rounds.push(round(&clock, settings, &mut cluster, &mut random).await?);
    }
    progress.say(settings.all_s() as u64, "checking");
    let workers = cluster.end()?;
    let logs = cluster.logs()?;
    let audit = Exchange::audit(cluster.connect().await?, scale, &logs).await;
    let audit = audit.context("comparing the store with the logs")?;
    let [all, trade_results] = Series::of(&logs, begin);
    let took_s = started.elapsed().as_secs_f64();
    Ok(Outcome { capacity, rounds, all, trade_results, audit, workers, loaded_s, took_s })
}

struct Clock<'a> {
    context: &'a Context,
    progress: &'a Progress,
    measuring: Instant,
}

impl Clock<'_> {
    /// Waits for this many seconds. Fails after Ctrl-C.
    async fn wait(&self, seconds: f64, what: &str) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.progress.say(self.measuring.elapsed().as_secs(), what);
            let step = tokio::time::sleep(left.min(Duration::from_secs(1)));
            self.context.interrupt.cut_off(step).await;
            go_on(self.context)?;
        }
        Ok(())
    }
}

async fn calibrate(
    clock: &Clock<'_>,
    (seconds, workers): (f64, usize),
    cluster: &mut Cluster,
) -> anyhow::Result<Capacity> {
    let length = seconds / 5.0;
    cluster.pace(&json!("free"))?;
    clock.wait(length / 4.0, "warming up").await?;
    let begin = cluster.begin();
    clock.wait(length, "what the workers reach without a capacity").await?;
    let free = cluster.rate_since(begin)?;
    anyhow::ensure!(free > 0.0, "the workers did nothing within {length} s");
    let workers = workers as f64;
    let mut each = free * CAPACITY_SHARE / workers;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    for _ in 0..CALIBRATIONS_MAX {
        cluster.pace(&json!(each))?;
        clock.wait(length / 4.0, "warming up").await?;
        let (spent, started) = (Spent::new(), Instant::now());
        clock.wait(length / 2.0, "what they take with one").await?;
        let share = spent.seconds().map(|cpu| cpu / started.elapsed().as_secs_f64() / cpus);
        if let Some(share) = share
            && share > CPU_SHARE_MAX
        {
            each *= CPU_SHARE / share;
            continue;
        }
        clock.context.out.note(&format!(
            "{free:.0} transactions/s without capacities; each of {workers} workers may do {each:.1}/s, which \
             takes {:.0} % of the processors",
            share.unwrap_or(f64::NAN) * 100.0,
        ));
        return Ok(Capacity { free, each, cpu_share: share });
    }
    anyhow::bail!(
        "even {:.1} transactions/s of all workers take more than {:.0} % of the processors: run it with \
         fewer workers, or on a larger machine",
        each * workers,
        CPU_SHARE_MAX * 100.0,
    )
}

/// Runs a round: baseline, workers killed, workers back, table server killed, table server
/// back.
async fn round(
    clock: &Clock<'_>,
    settings: &Fig10,
    cluster: &mut Cluster,
    random: &mut SmallRng,
) -> anyhow::Result<Round> {
    let mut round = Round { begin: cluster.now(), ..Round::default() };
    clock.wait(settings.seconds(), "the baseline").await?;
    let mut chosen: Vec<usize> = (0..settings.workers).collect();
    chosen.shuffle(random);
    chosen.truncate(settings.killed());
    round.killed = cluster.now();
    cluster.kill(&chosen)?;
    clock.wait(settings.seconds(), "workers are killed").await?;
    round.returned = cluster.now();
    cluster.bring_back(&chosen)?;
    clock.wait(settings.seconds(), "workers are back").await?;
    round.table_killed = cluster.now();
    cluster.kill_table();
    clock.wait(settings.table_away_s(), "the table server is killed").await?;
    round.table_returned = cluster.now();
    cluster.bring_table_back()?;
    round.table_listens = cluster.now();
    let left = settings.seconds() - (round.table_listens - round.table_returned);
    clock.wait(left.max(0.0), "the table server is back").await?;
    round.end = cluster.now();
    Ok(round)
}
