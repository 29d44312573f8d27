//! Runs Figure 10 as in the paper, over HBase: a third of the region servers is killed.
//!
//! Workers drive a TPC-E-like brokerage meanwhile, and the other servers take over the regions.
//! Workers have a capacity, as in `fig10`, so that the throughput before the kill is not the
//! machine's limit. The killed servers stay dead. Nothing commits on their regions until HBase
//! notices that they are gone, splits their logs and assigns the regions anew.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use bigtable_hbase::{HbaseAddress, HbaseOptions, HbaseStore, Reshape};
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::Failure;
use percolator_cli::output::grouped;
use percolator_cli::progress::Progress;
use percolator_torture::{ServerProcess, Servers};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use tpce::{Audit, Exchange, Scale};

use super::cluster::Cluster;
use super::report::{BACK, PAPER, PAPER_BASELINE};
use super::series::Series;
use super::{Capacity, Clock, ON_TIME_SHARE, calibrate};
use crate::flags::{Common, brokerage, within};
use crate::hbase::{own_namespace, servers_json};
use crate::plot::{Axis, Line, Plot, Point, Role, Unit};
use crate::report::{Bar, Figure, Report};

/// Seconds, beyond the session of a dead server, until throughput should be back.
const BACK_S: f64 = 90.0;
/// Seconds that are measured after that.
const AFTER_S: f64 = 30.0;
/// Length of the windows in which throughput must be back, and of those for the lowest rate.
const WINDOW_S: f64 = 5.0;
/// Time until others take a worker for dead. A worker cannot renew its token during the outage.
const LIFETIME: Duration = Duration::from_secs(60);
/// Fewest regions for each server before the run.
const REGIONS_A_SERVER: usize = 2;
/// Most attempts to split a region, for each server. A region cannot be split again before HBase
/// has compacted its files and dropped the old ones.
const SPLITS_A_SERVER: u64 = 8;
/// The minute of the paper's curve at which its throughput is back.
const PAPER_BACK: f64 = 14.0;

/// Throughput over time while a third of HBase's region servers is killed (the paper's Figure 10).
///
/// Workers drive a TPC-E-like brokerage, in a new namespace, which stays. The servers must be
/// processes of this machine, and stay dead. The report has HBase's version and the processes of
/// its servers, as the cluster names them. The exit status is 3 if an acknowledged commit is lost,
/// or if the books are not in order.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  HBASE_SESSION_MS=6000 scripts/hbase.sh sh -c \\
    'percolator-bench fig10-hbase \"$PERCOLATOR_HBASE\" --out results'")]
pub(crate) struct Fig10Hbase {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The address of the cluster: hbase://HOST:PORT/NAMESPACE.
    store: HbaseAddress,
    /// Customers of the brokerage; all else is in proportion [default: 100, quick: 20].
    #[arg(long, value_name = "N")]
    customers: Option<u64>,
    /// The number of workers.
    #[arg(long, value_name = "N", default_value_t = 3)]
    workers: usize,
    /// Seconds before the kill [default: 120, quick: 30].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
}

/// The results of a run.
struct Outcome {
    servers: [Servers; 2],
    killed: Vec<ServerProcess>,
    capacity: Capacity,
    /// The moments of the kill and of the end, in seconds since the beginning.
    killed_s: f64,
    end_s: f64,
    all: Series,
    trade_results: Series,
    audit: Audit,
    workers: Vec<Value>,
    loaded_s: f64,
}

impl Outcome {
    fn baseline(&self) -> f64 {
        self.all.rate(0.0, self.killed_s)
    }

    /// Seconds from the kill until throughput stays back; `None` if it never does.
    fn back_s(&self) -> Option<f64> {
        self.all.until(BACK * self.baseline(), self.killed_s, self.end_s, WINDOW_S)
    }
}

/// Splits the tables until each server can have a share, and spreads the regions over all servers.
/// A small brokerage has one region for each of its tables.
async fn spread(admin: &HbaseStore, servers: usize) -> anyhow::Result<()> {
    let (mut refused, wanted) = (None, REGIONS_A_SERVER * servers);
    for draw in 0..SPLITS_A_SERVER * servers as u64 {
        refused = admin.reshape(Reshape::Split, draw).await.err().or(refused);
        tokio::time::sleep(Duration::from_secs(1)).await;
        if admin.region_count().await? >= wanted {
            break;
        }
    }
    let regions = admin.spread().await?;
    if regions < wanted {
        let why =
            refused.map_or("the tables have too few rows".to_owned(), |last| last.to_string());
        let what = format!("the tables have only {regions} regions for {servers} servers: {why}");
        return Err(Failure::usage(what, "give more --customers"));
    }
    Ok(())
}

impl Fig10Hbase {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        within("seconds", self.seconds(), 5.0..=3600.0)?;
        within("workers", self.workers, 1..=100)?;
        let scale = brokerage(self.customers(), self.common.seed)?;
        let outcome = self.run(context, scale).await?;
        Ok(self.report(scale, &outcome))
    }

    fn customers(&self) -> u64 {
        self.customers.unwrap_or(self.common.sized(20, 100))
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(self.common.sized(30.0, 120.0))
    }

    /// Seconds from the kill until throughput should be back.
    fn back_s(&self) -> f64 {
        self.store.session.as_secs_f64() + BACK_S
    }

    async fn run(&self, context: &Context, scale: Scale) -> anyhow::Result<Outcome> {
        let started = Instant::now();
        let data = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
        let all_s = 1.5 * self.seconds() + self.back_s() + AFTER_S;
        let progress = Progress::new(context.out.quiet, Some(all_s as u64));
        progress.say(0, "loading");
        let address = own_namespace(&self.store, "fig10");
        let admin = HbaseStore::connect(&address, HbaseOptions::default()).await?;
        let before = Servers::of(&admin).await?;
        context.out.note(&before.lines());
        let url = address.to_string();
        let (customers, seed) = (self.customers(), self.common.seed);
        let own = (url.as_str(), LIFETIME);
        let mut cluster = Cluster::over(data.path(), own, self.workers, customers, seed)?;
        Exchange::load(cluster.connect().await?, scale).await?;
        spread(&admin, before.region_servers.len()).await?;
        let loaded_s = started.elapsed().as_secs_f64();
        cluster.start_workers()?;
        let clock = Clock { context, progress: &progress, measuring: Instant::now() };
        let capacity = calibrate(&clock, (self.seconds(), self.workers), &mut cluster).await?;
        let begin = cluster.begin();
        clock.wait(self.seconds(), "the baseline").await?;
        let mut killed = Servers::of(&admin).await?.region_servers;
        killed.shuffle(&mut SmallRng::seed_from_u64(seed));
        killed.truncate((killed.len() / 3).max(1));
        let killed_s = cluster.now();
        for server in &killed {
            server.kill()?;
            context.out.note(&format!("killed region server {}", server.line()));
        }
        clock.wait(self.back_s() + AFTER_S, "region servers are killed").await?;
        let end_s = cluster.now();
        progress.say(all_s as u64, "checking");
        let workers = cluster.end()?;
        let logs = cluster.logs()?;
        let audit = Exchange::audit(cluster.connect().await?, scale, &logs).await;
        let audit = audit.context("comparing the store with the logs")?;
        let [all, trade_results] = Series::of(&logs, begin);
        let servers = [before, Servers::of(&admin).await?];
        Ok(Outcome {
            servers,
            killed,
            capacity,
            killed_s,
            end_s,
            all,
            trade_results,
            audit,
            workers,
            loaded_s,
        })
    }

    fn figures(&self, outcome: &Outcome) -> Vec<Figure> {
        let (baseline, killed, end) = (outcome.baseline(), outcome.killed_s, outcome.end_s);
        let rates = outcome.all.rates(killed, end, WINDOW_S);
        let lowest = rates.into_iter().reduce(f64::min).map(|rate| rate / baseline);
        let silent = outcome.all.rates(killed, end, 1.0);
        let silent = silent.iter().filter(|rate| **rate == 0.0).count() as f64;
        // Where it never comes back, the time is at least this long.
        let back = outcome.back_s().unwrap_or(end - killed);
        let after = outcome.all.rate(killed + back.min(self.back_s()), end) / baseline;
        let lost = outcome.audit.lost as f64;
        vec![
            Figure::alone("region servers killed: seconds to 0.97", Some(back))
                .bar(Bar::AtMost(self.back_s())),
            Figure::alone("region servers killed: lowest 5 s/baseline", lowest),
            Figure::alone("region servers killed: seconds without a commit", Some(silent)),
            Figure::alone("back/baseline", Some(after)).bar(Bar::AtLeast(BACK)).paper(BACK),
            Figure::alone("lost commits", Some(lost)).bar(Bar::AtMost(0.0)),
        ]
    }

    /// The reason why the figures are void, and the remedy.
    fn void(&self, outcome: &Outcome) -> Option<(String, String)> {
        if let Some(first) = outcome.audit.violations.first() {
            let (count, lost) = (outcome.audit.violations.len(), outcome.audit.lost);
            let what = format!("{count} violations of the books, {lost} commits lost: {first}");
            return Some((what, "please report this with the settings above".to_owned()));
        }
        let [before, after] = &outcome.servers;
        let left = before.region_servers.len() - outcome.killed.len();
        if after.region_servers.len() != left {
            let what = format!(
                "{} region servers live at the end, not {left}: killed servers must stay dead",
                after.region_servers.len()
            );
            return Some((what, "run it without HBASE_RESTART_S".to_owned()));
        }
        let wanted = outcome.capacity.each * self.workers as f64;
        let reached = outcome.baseline() / wanted;
        (reached < ON_TIME_SHARE).then(|| {
            let what = format!("the workers reached {:.0} % of their capacities", reached * 100.0);
            (what, "run it again on a machine that does nothing else".to_owned())
        })
    }

    fn report(&self, scale: Scale, outcome: &Outcome) -> Report {
        let audit = &outcome.audit;
        let sum =
            |name: &str| outcome.workers.iter().filter_map(|said| said[name].as_u64()).sum::<u64>();
        let about = json!({
            "customers": self.customers(),
            "trades_before": scale.trades(),
            "workers": self.workers,
            "region_servers_killed": outcome.killed.len(),
            "session_s": self.store.session.as_secs_f64(),
            "deadline_s": self.store.deadline.as_secs_f64(),
            "taken_for_dead_after_s": LIFETIME.as_secs_f64(),
            "seed": self.common.seed,
            "quick": self.common.quick,
        });
        let (all, results) = (&outcome.all, &outcome.trade_results);
        let own = json!({
            "hbase_before": servers_json(&outcome.servers[0]),
            "hbase_after": servers_json(&outcome.servers[1]),
            "killed": outcome.killed.iter().map(ServerProcess::line).collect::<Vec<_>>(),
            "loaded_s": outcome.loaded_s,
            "killed_s": outcome.killed_s,
            "end_s": outcome.end_s,
            "baseline_per_s": outcome.baseline(),
            "capacity": {
                "free_per_s": outcome.capacity.free,
                "worker_per_s": outcome.capacity.each,
                "cpu_share": outcome.capacity.cpu_share,
            },
            "series": {
                "transactions_per_s": all.rates(0.0, outcome.end_s, 1.0),
                "trade_results_per_s": results.rates(0.0, outcome.end_s, 1.0),
            },
            "paper": {
                "minutes": PAPER.map(|(at, _)| at),
                "trade_results_per_s": PAPER.map(|(_, rate)| rate),
            },
            "workers": { "conflicts": sum("conflicts"), "retries": sum("retries") },
        });
        let check = json!({
            "acknowledged": audit.acknowledged,
            "lost": audit.lost,
            "in_doubt": audit.in_doubt,
            "violations": audit.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        Report::new("fig10-hbase", about, self.figures(outcome))
            .with_all(own)
            .check(check, self.void(outcome))
            .plot("fig10-hbase.svg", self.chart(outcome))
    }

    /// Throughput over time as a share of the baseline, and the paper's.
    fn chart(&self, outcome: &Outcome) -> String {
        let line = |series: &Series, window: f64| -> Vec<Point> {
            let baseline = series.rate(0.0, outcome.killed_s);
            let rates = series.rates(0.0, outcome.end_s, window).into_iter().enumerate();
            rates.map(|(n, rate)| Point::at((n as f64 + 0.5) * window, rate / baseline)).collect()
        };
        let minute = self.back_s() / PAPER_BACK;
        let at = |minutes: f64| outcome.killed_s + minutes * minute;
        let paper = PAPER.into_iter().map(|(minutes, rate)| (at(minutes), rate / PAPER_BASELINE));
        let paper = paper.filter(|(at, _)| *at <= outcome.end_s);
        let paper = paper.map(|(at, share)| Point::at(at, share)).collect();
        let servers = outcome.servers[0].region_servers.len();
        let subtitle = format!(
            "TPC-E-like, {} customers, {:.0} transactions/s in the baseline; HBase {}, {servers} region \
             servers, a session of {:.0} s",
            grouped(self.customers()),
            outcome.baseline(),
            outcome.servers[0].version,
            self.store.session.as_secs_f64(),
        );
        let of_paper = "the paper, 5 of 15 tablet servers killed; its 14 minutes are our bar";
        let killed = format!("{} of {servers} region servers killed", outcome.killed.len());
        let (x, y) = ("seconds", "throughput / baseline");
        let (x, y) = (Axis::linear(x, Unit::Plain), Axis::linear(y, Unit::Plain));
        let title = "Figure 10 over HBase: throughput while region servers are killed";
        Plot::over(x, y, title, subtitle)
            .dashed(of_paper, Role::Paper(0), paper)
            .line("all transactions, each second", Role::Ours(0), line(&outcome.all, 1.0))
            .points(
                format!("Trade-Results, each {:.0} s", 2.0 * WINDOW_S),
                Role::Ours(1),
                line(&outcome.trade_results, 2.0 * WINDOW_S),
            )
            .mark(Line::X(outcome.killed_s), killed)
            .svg()
    }
}
