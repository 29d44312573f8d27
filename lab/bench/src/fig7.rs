//! Runs the experiment of Figure 7: the clustering repository, incremental and in batches
//! (paper section 3.2).
//!
//! ```text
//! rounds   the highest throughput in documents a second: ours and each batch program, in turns
//! sweep    delays at rising crawl rates, until ours no longer keeps up; each rate begins with a
//!          copy of the same repository; batch programs run cycle after cycle
//! fourth   a key added to the running repository, against one more pass
//! engine   the floor, a lower bound of the cost: the same cells put straight into the engine
//!          beneath, without transactions
//! ```
//!
//! A crawl rate is the fraction of the repository that arrives during one run of the row-wise
//! batch, with its three passes. In this form the paper's figure depends neither on size nor on
//! machines. The paper's three passes took a third of an hour. So its 1 % an hour is a third of a
//! percent in this form. The paper's Percolator kept up with at most 40 % an hour: its knee is
//! 0.133 in this form. Delays do depend on the size, which the output states.

mod alone;
mod duckdb;
mod engine;
mod fourth;
mod ours;
mod paper;
mod report;
mod rivals;

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use clap::Args;
use clustering::batch::Files;
use clustering::rule::{Expected, Shape};
use clustering::{Check, Corpus, KEYS_AT_FIRST};
use percolator_cli::context::Context;
use percolator_cli::exit::Failure;
use percolator_cli::progress::Progress;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::flags::{Common, within};
use crate::report::{Condition, Report};
use crate::statistics::quantile;
use crate::turns::go_on;

use duckdb::{Carried, DuckDb};
use fourth::Fourth;
use ours::{Offered, Ours, Work};
use rivals::{Cycle, Cycled, Purpose, Rival, Traits};

pub(crate) use alone::{ALONE, alone, on_one_thread, until_committed, without_passes};

/// The crawl rates: the paper's 1, 5, 18, 30, 35 and 45 % an hour, at three runs of three
/// passes an hour.
const SHARES: [f64; 6] = [0.003, 0.02, 0.06, 0.10, 0.12, 0.15];
/// Factor between further rates, if none of these is too high.
const FURTHER: f64 = 1.25;
const FURTHER_MAX: usize = 12;
/// Number of rates that are measured beyond the knee.
const SATURATED_MAX: usize = 2;
/// Largest growth of a repository at one rate: in a larger one, more keys are known.
const GROWTH_MAX: f64 = 0.25;
/// Shortest time at one rate, unless the flag asks for less.
const WINDOW_MIN: Duration = Duration::from_secs(2);
/// Threads of each batch program, and the meaning of "two cores" here.
const THREADS: usize = 2;

/// A repository of documents clustered as they arrive, against batches (the paper's Figure 7).
///
/// The benchmark measures delays at rising crawl rates, until documents arrive faster than
/// they are clustered. It measures the highest number of documents a second, in turns with the
/// batch programs. It also measures the cost of a fourth clustering key that is added to the
/// running repository.
///
/// Every run ends with a comparison of all clusters with the rule. The exit status is 3 if a
/// cluster differs, or if the generator of arrivals was late.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench fig7 --quick --out results
  percolator-bench fig7 --python duckdb/bin/python --json --out results")]
pub(crate) struct Fig7 {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The number of documents that the repository begins with [default: 2000000, or 100000 with
    /// --quick].
    #[arg(long, value_name = "N")]
    documents: Option<u64>,
    /// The longest time at one crawl rate, in seconds [default: 60, or 4 with --quick].
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// The number of rounds, in each of which every program has one turn. Fewer rounds than the
    /// default are too few for a median with an interval.
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,
    /// The number of documents that are clustered at the same time. As many are written at the
    /// same time, when the benchmark measures the highest rate.
    #[arg(long, value_name = "N", default_value_t = 16)]
    workers: usize,
    /// A Python with the module `duckdb`, for the batch over columns.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// The directory for the data, at most 5 KB for each document; the data is removed at the end.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Fig7 {
    fn documents(&self) -> u64 {
        self.documents.unwrap_or(self.common.sized(100_000, 2_000_000))
    }

    fn window(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(self.common.sized(4.0, 60.0)))
    }

    fn warm(&self) -> Duration {
        Duration::from_secs_f64(self.common.sized(1.0, 5.0)).min(self.window() / 2)
    }

    /// Documents of one block in the measurement of the highest throughput.
    fn block(&self) -> u64 {
        (self.documents() / 40).clamp(5_000, 50_000).min(self.documents())
    }

    fn check(&self) -> anyhow::Result<()> {
        within("documents", self.documents(), 10_000..=20_000_000)?;
        within("seconds", self.seconds.unwrap_or(1.0), 0.1..=3600.0)?;
        within("rounds", self.rounds, 1..=1000)?;
        within("workers", self.workers, 1..=1024)
    }

    fn place(&self) -> anyhow::Result<tempfile::TempDir> {
        let data = self.data.as_deref();
        let dir = match data {
            Some(parent) => tempfile::Builder::new().prefix("fig7-").tempdir_in(parent),
            None => tempfile::Builder::new().prefix("percolator-fig7-").tempdir(),
        };
        dir.map_err(|error| {
            let place = data.map_or("the temporary directory".into(), Path::to_string_lossy);
            Failure::usage(format!("{place}: {error}"), "name an existing directory with --data")
        })
    }
}

impl Fig7 {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        self.check()?;
        let place = self.place()?;
        let run = Run {
            context,
            settings: self,
            dir: place.path().to_owned(),
            corpus: Corpus::new(self.documents(), self.common.seed),
            progress: Progress::new(context.out.quiet, None),
            conditions: Vec::new(),
        };
        Ok(report::report(self, &run.all().await?))
    }
}

#[derive(Debug)]
struct RivalOutcome {
    name: &'static str,
    traits: Traits,
    swept: Vec<(f64, Cycled)>,
}

#[derive(Debug)]
struct Round {
    ours: Work,
    /// The cycles, in the order of [`Outcome::rivals`].
    rivals: Vec<Cycle>,
}

#[derive(Debug)]
struct Outcome {
    first_load: Work,
    first_shape: Shape,
    rounds: Vec<Round>,
    rivals: Vec<RivalOutcome>,
    /// The time of the row-wise batch's three passes.
    passes_s: f64,
    /// Index of the rival that our goals compare with.
    goal: usize,
    /// The missing peers, each with the reason and the remedy.
    missing: Vec<String>,
    duckdb: Option<String>,
    offered: Vec<(f64, Offered)>,
    fourth: Fourth,
    conditions: Vec<Condition>,
}

impl RivalOutcome {
    fn is(&self, purpose: Purpose) -> bool {
        self.traits.purpose == purpose
    }
}

fn passes_s(rounds: &[Round], rival: usize) -> f64 {
    let mut cycles: Vec<f64> =
        rounds.iter().map(|r| r.rivals[rival].elapsed.as_secs_f64()).collect();
    cycles.sort_unstable_by(f64::total_cmp);
    quantile(&cycles, 0.5).unwrap_or(f64::NAN)
}

struct Run<'a> {
    context: &'a Context,
    settings: &'a Fig7,
    /// An empty directory for the data.
    dir: PathBuf,
    corpus: Corpus,
    progress: Progress,
    conditions: Vec<Condition>,
}

impl Run<'_> {
    async fn all(mut self) -> anyhow::Result<Outcome> {
        let duckdb = DuckDb::version(&self.settings.python);
        let mut rivals = self.rivals(duckdb.is_ok())?;
        let (first_load, first_shape) = self.first_load().await?;
        let rounds = self.rounds(&mut rivals).await?;
        let is_goal = |rival: &Rival| rival.traits.purpose == Purpose::Goal;
        let goal = rivals.iter().position(is_goal).expect("ours is held to a rival");
        let passes = passes_s(&rounds, goal);
        let offered = self.sweep(passes).await?;
        let fourth = self.fourth().await?;
        let mut outcomes = Vec::new();
        for rival in &mut rivals {
            let swept = self.sweep_rival(rival, passes)?;
            outcomes.push(RivalOutcome { name: rival.name(), traits: rival.traits, swept });
        }
        let left_out = |why: &String| format!("columns, and rows of DuckDB: {why}");
        Ok(Outcome {
            first_load,
            first_shape,
            rounds,
            rivals: outcomes,
            passes_s: passes,
            goal,
            missing: duckdb.as_ref().err().map(left_out).into_iter().collect(),
            duckdb: duckdb.ok(),
            offered,
            fourth,
            conditions: self.conditions,
        })
    }

    fn say(&self, what: &str) {
        self.progress.say(0, what);
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn condition(&mut self, name: impl Into<String>, holds: bool, found: String) {
        self.conditions.push(Condition::new(name, holds, found));
    }

    /// Records the conditions that our repository is clustered by the rule.
    fn check(&mut self, what: &str, documents: u64, check: Check, keys: usize) {
        let Check { waiting, wrong, shape, .. } = check;
        let exact = check.documents == documents && waiting == 0 && wrong == 0;
        let found = format!("{} documents, {waiting} waiting, {wrong} wrong", check.documents);
        self.condition(format!("{what}: every document is where the rule puts it"), exact, found);
        let expected = Expected::of(documents, self.corpus.key_space(), keys);
        let found = format!(
            "{:.4} documents a cluster, {:.3} % clustered; expected {:.4}, {:.3} %",
            shape.per_cluster(),
            shape.clustered_share() * 100.0,
            expected.per_cluster.0,
            expected.clustered_share.0 * 100.0,
        );
        let name = format!("{what}: the shape is that of random keys");
        self.condition(name, shape.agrees(&expected), found);
    }

    fn rivals(&self, duckdb: bool) -> anyhow::Result<Vec<Rival>> {
        self.say("writing the batch programs' repositories");
        let (corpus, documents) = (self.corpus, self.settings.documents());
        let rows = |name, files| Rival::rows(&self.dir(name), corpus, documents, THREADS, files);
        let mut rivals = vec![rows("rows", Files::New)?, rows("rows-over", Files::Over)?];
        let of_duckdb = [("columns", Carried::Keys), ("rows-of-duckdb", Carried::Bodies)];
        for (name, carried) in of_duckdb.into_iter().filter(|_| duckdb) {
            let (dir, python) = (self.dir(name), Process::new(&self.settings.python));
            let engine = DuckDb::start(python, &dir, corpus, documents, THREADS, carried)?;
            rivals.push(Rival::duckdb(engine, corpus, documents));
        }
        rivals.push(Rival::delta(&self.dir("delta"), corpus, documents)?);
        rivals.push(Rival::engine(&self.dir("engine"), corpus, documents)?);
        Ok(rivals)
    }

    async fn open(&self, name: &str) -> anyhow::Result<Ours> {
        let (base, dir) = (self.dir("base"), self.dir(name));
        tokio::task::block_in_place(|| ours::copy(&base, dir.clone()))?;
        Ours::open(&dir, self.settings.workers, self.corpus, self.settings.documents()).await
    }

    async fn close(&mut self, ours: Ours, name: &str) -> anyhow::Result<()> {
        let check = ours.verify(KEYS_AT_FIRST).await?;
        self.check(name, ours.next, check, KEYS_AT_FIRST);
        ours.close().await;
        std::fs::remove_dir_all(self.dir(name))?;
        Ok(())
    }

    /// Loads the repository with which all other parts begin.
    async fn first_load(&mut self) -> anyhow::Result<(Work, Shape)> {
        self.say("loading our repository");
        let mut ours = Ours::open(&self.dir("base"), self.settings.workers, self.corpus, 0).await?;
        let work = ours.load(self.settings.documents()).await?;
        let check = ours.verify(KEYS_AT_FIRST).await?;
        self.check("first load", self.settings.documents(), check, KEYS_AT_FIRST);
        ours.close().await;
        Ok((work, check.shape))
    }

    async fn rounds(&mut self, rivals: &mut [Rival]) -> anyhow::Result<Vec<Round>> {
        let mut ours = self.open("rounds").await?;
        let mut random = SmallRng::seed_from_u64(self.settings.common.seed);
        // The last index stands for our own program.
        let mut order: Vec<usize> = (0..=rivals.len()).collect();
        let mut rounds = Vec::new();
        for round in 0..=self.settings.rounds {
            order.shuffle(&mut random);
            let (mut work, mut cycles) = (None, vec![None; rivals.len()]);
            for &turn in &order {
                go_on(self.context)?;
                let name = rivals.get(turn).map_or("ours", Rival::name);
                self.say(&format!("round {round} of {}: {name}", self.settings.rounds));
                match rivals.get_mut(turn) {
                    Some(rival) => {
                        cycles[turn] = Some(tokio::task::block_in_place(|| rival.bulk())?);
                    }
                    None => work = Some(ours.load(self.settings.block()).await?),
                }
            }
            // The first round warms up and does not count.
            if let Some(work) = work
                && round > 0
            {
                let rivals = cycles.into_iter().flatten().collect();
                rounds.push(Round { ours: work, rivals });
            }
        }
        self.close(ours, "rounds").await?;
        Ok(rounds)
    }

    async fn sweep(&mut self, passes: f64) -> anyhow::Result<Vec<(f64, Offered)>> {
        let mut offered: Vec<(f64, Offered)> = Vec::new();
        let further = (1..=FURTHER_MAX as i32).map(|n| SHARES[5] * FURTHER.powi(n));
        for (seed, share) in (self.settings.common.seed..).zip(SHARES.into_iter().chain(further)) {
            let saturated = offered.iter().filter(|(_, offered)| offered.is_saturated()).count();
            let beyond = offered.len() >= SHARES.len() && saturated > 0;
            if beyond || saturated >= SATURATED_MAX {
                break;
            }
            go_on(self.context)?;
            let per_second = share * self.settings.documents() as f64 / passes;
            let longest = GROWTH_MAX * self.settings.documents() as f64 / per_second;
            let asked = self.settings.window();
            let window = Duration::from_secs_f64(longest).max(WINDOW_MIN).min(asked);
            let name = format!("rate {share:.4}");
            self.say(&format!("{name}: {per_second:.0} documents a second"));
            let mut ours = self.open(&name).await?;
            let result = ours.offer(per_second, self.settings.warm(), window, seed).await?;
            self.condition(
                format!("{name}: the generator was in time"),
                !result.is_late(),
                result.describe_lateness(),
            );
            self.close(ours, &name).await?;
            offered.push((share, result));
        }
        Ok(offered)
    }

    fn sweep_rival(
        &mut self,
        rival: &mut Rival,
        passes: f64,
    ) -> anyhow::Result<Vec<(f64, Cycled)>> {
        let mut swept = Vec::new();
        let shares = if rival.traits.is_swept() { &SHARES[..] } else { &[] };
        for &share in shares {
            go_on(self.context)?;
            self.say(&format!("{} at rate {share}", rival.name()));
            let per_second = share * self.settings.documents() as f64 / passes;
            let least = self.settings.window() / 4;
            let cycled = tokio::task::block_in_place(|| rival.cycles(per_second, least))?;
            swept.push((share, cycled));
        }
        let wrong = tokio::task::block_in_place(|| rival.wrong())?;
        let name = format!("{}: every document is where the rule puts it", rival.name());
        self.condition(name, wrong == 0, format!("{wrong} wrong"));
        Ok(swept)
    }

    async fn fourth(&mut self) -> anyhow::Result<Fourth> {
        go_on(self.context)?;
        self.say("adding a fourth key");
        let mut ours = self.open("fourth").await?;
        let fourth = fourth::run(&mut ours, self.settings).await?;
        let check = ours.verify(KEYS_AT_FIRST + 1).await?;
        self.check("fourth key", ours.next, check, KEYS_AT_FIRST + 1);
        ours.close().await;
        std::fs::remove_dir_all(self.dir("fourth"))?;
        Ok(fourth)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    #[test]
    fn settings_depend_on_quick_and_are_checked() {
        let settings = |line: &str| {
            let command = Fig7::augment_args(Command::new("fig7").no_binary_name(true));
            let matches = command.try_get_matches_from(line.split_whitespace()).unwrap();
            Fig7::from_arg_matches(&matches).unwrap()
        };
        let told = |settings: &Fig7| {
            (settings.documents(), settings.rounds, settings.window().as_secs(), settings.warm())
        };
        let second = Duration::from_secs(1);
        assert_eq!(told(&settings("--quick")), (100_000, 10, 4, second));
        assert_eq!(told(&settings("")), (2_000_000, 10, 60, 5 * second));
        assert_eq!(settings("--quick --documents 20000").documents(), 20_000);
        for (wrong, names) in [
            ("--documents 9999", "--documents 9999"),
            ("--seconds 0.05", "--seconds 0.05"),
            ("--seconds nan", "--seconds NaN"),
            ("--rounds 0", "--rounds 0"),
            ("--workers 0", "--workers 0"),
        ] {
            let refused = settings(wrong).check().unwrap_err();
            assert!(refused.to_string().contains(names), "{wrong}");
        }
    }
}
