//! Figure 7: the clustering repository, incremental and in batches (paper section 3.2).
//!
//! ```text
//! rounds   how many documents a second at most, ours and each batch program's, taking turns
//! sweep    delays at crawl rates up to where ours can no longer keep up; each rate begins with a
//!          copy of the same repository; batch programs run cycle after cycle
//! fourth   a key added to the running repository, against one more pass
//! engine   the floor: the same cells put straight into the engine beneath
//! ```
//!
//! Crawl rates are in parts of the repository that arrive while the row-wise batch goes over it
//! once, with its three passes. In this form the paper's figure does not depend on size or
//! machines: its passes took a third of an hour, so its 1 % an hour is a third of a percent, and
//! Percolator's knee at 40 % an hour 0.133 of a repository. Delays do depend on the size, of which
//! the output says what it was.

mod alone;
mod duckdb;
mod engine;
mod fourth;
mod ours;
mod paper;
mod report;
mod rivals;

use std::path::PathBuf;
use std::time::Duration;

use clustering::batch::Files;
use clustering::rule::{Expected, Shape};
use clustering::{Check, Corpus, KEYS_AT_FIRST};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::findings::Condition;
use crate::system::Load;

use duckdb::{Carried, DuckDb};
use fourth::Fourth;
use ours::{Offered, Ours, Work};
use percolator_cli::context::Context;
use percolator_cli::progress::Progress;
use rivals::{Cycle, Cycled, Purpose, Rival, Traits};

pub(crate) use alone::{ALONE, alone};
pub(crate) use ours::Served;
pub(crate) use report::{json, plots, print};

/// The crawl rates: the paper's 1, 5, 18, 30, 35 and 45 % an hour, at three times three passes an
/// hour.
const SHARES: [f64; 6] = [0.003, 0.02, 0.06, 0.10, 0.12, 0.15];
/// If none of these is too much, each further one is this many times the one before.
const FURTHER: f64 = 1.25;
/// How many further ones there are at most.
const FURTHER_MAX: usize = 12;
/// How many rates beyond the knee are measured.
const SATURATED_MAX: usize = 2;
/// By how much a repository may grow at one rate: the larger, the more of its keys are known.
const GROWTH_MAX: f64 = 0.25;
/// The shortest time at one rate, unless less was asked for.
const WINDOW_MIN: Duration = Duration::from_secs(2);
/// Threads of each batch program, and what "two cores" means here.
const THREADS: usize = 2;

/// What is measured, and how.
#[derive(Debug)]
pub(crate) struct Settings {
    /// How many documents the repository begins with.
    pub(crate) documents: u64,
    pub(crate) served: Served,
    pub(crate) rounds: usize,
    /// The longest time at one rate, and how long it warms up before.
    pub(crate) window: Duration,
    pub(crate) warm: Duration,
    pub(crate) python: String,
    pub(crate) seed: u64,
    pub(crate) quick: bool,
    /// An empty directory for the data.
    pub(crate) dir: PathBuf,
}

impl Settings {
    /// Documents of one block that is measured as fast as it goes.
    fn block(&self) -> u64 {
        (self.documents / 40).clamp(5_000, 50_000).min(self.documents)
    }
}

/// What a batch program came to.
#[derive(Debug)]
struct RivalOutcome {
    name: &'static str,
    traits: Traits,
    swept: Vec<(f64, Cycled)>,
}

/// One turn of everyone.
#[derive(Debug)]
struct Round {
    ours: Work,
    /// In the order of [`Outcome::rivals`].
    rivals: Vec<Cycle>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    first_load: Work,
    first_shape: Shape,
    rounds: Vec<Round>,
    rivals: Vec<RivalOutcome>,
    /// Which of them ours is held to.
    goal: usize,
    /// Peers that are missing, why, and what to do.
    pub(crate) missing: Vec<String>,
    duckdb: Option<String>,
    offered: Vec<(f64, Offered)>,
    fourth: Fourth,
    pub(crate) conditions: Vec<Condition>,
    load: [Load; 2],
}

impl RivalOutcome {
    fn is(&self, purpose: Purpose) -> bool {
        self.traits.purpose == purpose
    }
}

impl Outcome {
    /// The time of the row-wise batch's three passes.
    fn passes_s(&self) -> f64 {
        passes_s(&self.rounds, self.goal)
    }

    /// Conditions that do not hold.
    pub(crate) fn broken(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.iter().filter(|condition| !condition.ok)
    }
}

/// The median time of a rival's cycle.
fn passes_s(rounds: &[Round], rival: usize) -> f64 {
    let mut cycles: Vec<f64> =
        rounds.iter().map(|r| r.rivals[rival].elapsed.as_secs_f64()).collect();
    cycles.sort_unstable_by(f64::total_cmp);
    quantile(&cycles, 0.5).unwrap_or(f64::NAN)
}

/// Where a share of the sorted values lies below; `None` of no values.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

/// What a run works with.
struct Run<'a> {
    context: &'a Context,
    settings: &'a Settings,
    corpus: Corpus,
    progress: Progress,
    conditions: Vec<Condition>,
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: &Settings) -> anyhow::Result<Option<Outcome>> {
    let before = Load::now();
    let mut run = Run {
        context,
        settings,
        corpus: Corpus::new(settings.documents, settings.seed),
        progress: Progress::new(context.out.quiet, None),
        conditions: Vec::new(),
    };
    let duckdb = DuckDb::version(&settings.python);
    let mut rivals = run.rivals(duckdb.is_ok())?;
    let (first_load, first_shape) = run.first_load().await?;
    let Some(rounds) = run.rounds(&mut rivals).await? else { return Ok(None) };
    let is_goal = |rival: &Rival| rival.traits.purpose == Purpose::Goal;
    let goal = rivals.iter().position(is_goal).expect("ours is held to a rival");
    let passes = passes_s(&rounds, goal);
    let Some(offered) = run.sweep(passes).await? else { return Ok(None) };
    let Some(fourth) = run.fourth().await? else { return Ok(None) };
    let mut outcomes = Vec::new();
    for rival in &mut rivals {
        let Some(swept) = run.sweep_rival(rival, passes)? else { return Ok(None) };
        outcomes.push(RivalOutcome { name: rival.name(), traits: rival.traits, swept });
    }
    let left_out = |why: &String| format!("columns, and rows of DuckDB: {why}");
    Ok(Some(Outcome {
        first_load,
        first_shape,
        rounds,
        rivals: outcomes,
        goal,
        missing: duckdb.as_ref().err().map(left_out).into_iter().collect(),
        duckdb: duckdb.ok(),
        offered,
        fourth,
        conditions: run.conditions,
        load: [before, Load::now()],
    }))
}

impl Run<'_> {
    fn say(&self, what: &str) {
        self.progress.say(0, what);
    }

    fn stopped(&self) -> bool {
        self.context.interrupt.requested()
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.settings.dir.join(name)
    }

    fn condition(&mut self, name: impl Into<String>, holds: bool, found: String) {
        self.conditions.push(Condition::new(name, holds, found));
    }

    /// Our repository must be clustered as the rule says.
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
        let (corpus, documents) = (self.corpus, self.settings.documents);
        let rows = |name, files| Rival::rows(&self.dir(name), corpus, documents, THREADS, files);
        let mut rivals = vec![rows("rows", Files::New)?, rows("rows-over", Files::Over)?];
        let of_duckdb = [("columns", Carried::Keys), ("rows-of-duckdb", Carried::Bodies)];
        for (name, carried) in of_duckdb.into_iter().filter(|_| duckdb) {
            let (dir, python) = (self.dir(name), &self.settings.python);
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
        Ours::open(&dir, self.settings.served, self.corpus, self.settings.documents).await
    }

    /// Checks and removes a copy.
    async fn close(&mut self, ours: Ours, name: &str) -> anyhow::Result<()> {
        let check = ours.verify(KEYS_AT_FIRST).await?;
        self.check(name, ours.next, check, KEYS_AT_FIRST);
        ours.close().await;
        std::fs::remove_dir_all(self.dir(name))?;
        Ok(())
    }

    /// Loads the repository that all else begins with.
    async fn first_load(&mut self) -> anyhow::Result<(Work, Shape)> {
        self.say("loading our repository");
        let mut ours = Ours::open(&self.dir("base"), self.settings.served, self.corpus, 0).await?;
        let work = ours.load(self.settings.documents).await?;
        let check = ours.verify(KEYS_AT_FIRST).await?;
        self.check("first load", self.settings.documents, check, KEYS_AT_FIRST);
        ours.close().await;
        Ok((work, check.shape))
    }

    async fn rounds(&mut self, rivals: &mut [Rival]) -> anyhow::Result<Option<Vec<Round>>> {
        let mut ours = self.open("rounds").await?;
        let mut random = SmallRng::seed_from_u64(self.settings.seed);
        // We come after all rivals.
        let mut order: Vec<usize> = (0..=rivals.len()).collect();
        let mut rounds = Vec::new();
        for round in 0..=self.settings.rounds {
            order.shuffle(&mut random);
            let (mut work, mut cycles) = (None, vec![None; rivals.len()]);
            for &turn in &order {
                if self.stopped() {
                    return Ok(None);
                }
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
        Ok(Some(rounds))
    }

    /// Raises the crawl rate until it is too much.
    async fn sweep(&mut self, passes: f64) -> anyhow::Result<Option<Vec<(f64, Offered)>>> {
        let mut offered: Vec<(f64, Offered)> = Vec::new();
        let further = (1..=FURTHER_MAX as i32).map(|n| SHARES[5] * FURTHER.powi(n));
        for (seed, share) in (self.settings.seed..).zip(SHARES.into_iter().chain(further)) {
            let saturated = offered.iter().filter(|(_, offered)| offered.is_saturated()).count();
            let beyond = offered.len() >= SHARES.len() && saturated > 0;
            if beyond || saturated >= SATURATED_MAX {
                break;
            }
            if self.stopped() {
                return Ok(None);
            }
            let per_second = share * self.settings.documents as f64 / passes;
            let longest = GROWTH_MAX * self.settings.documents as f64 / per_second;
            let asked = self.settings.window;
            let window = Duration::from_secs_f64(longest).max(WINDOW_MIN).min(asked);
            let name = format!("rate {share:.4}");
            self.say(&format!("{name}: {per_second:.0} documents a second"));
            let mut ours = self.open(&name).await?;
            let result = ours.offer(per_second, self.settings.warm, window, seed).await?;
            self.condition(
                format!("{name}: the generator was in time"),
                !result.is_late(),
                result.lateness_told(),
            );
            self.close(ours, &name).await?;
            offered.push((share, result));
        }
        Ok(Some(offered))
    }

    fn sweep_rival(
        &mut self,
        rival: &mut Rival,
        passes: f64,
    ) -> anyhow::Result<Option<Vec<(f64, Cycled)>>> {
        let mut swept = Vec::new();
        let shares = if rival.traits.is_swept() { &SHARES[..] } else { &[] };
        for &share in shares {
            if self.stopped() {
                return Ok(None);
            }
            self.say(&format!("{} at rate {share}", rival.name()));
            let per_second = share * self.settings.documents as f64 / passes;
            let least = self.settings.window / 4;
            let cycled = tokio::task::block_in_place(|| rival.cycles(per_second, least))?;
            swept.push((share, cycled));
        }
        let wrong = tokio::task::block_in_place(|| rival.wrong())?;
        let name = format!("{}: every document is where the rule puts it", rival.name());
        self.condition(name, wrong == 0, format!("{wrong} wrong"));
        Ok(Some(swept))
    }

    async fn fourth(&mut self) -> anyhow::Result<Option<Fourth>> {
        if self.stopped() {
            return Ok(None);
        }
        self.say("adding a fourth key");
        let mut ours = self.open("fourth").await?;
        let fourth = fourth::run(&mut ours, self.settings).await?;
        let check = ours.verify(KEYS_AT_FIRST + 1).await?;
        self.check("fourth key", ours.next, check, KEYS_AT_FIRST + 1);
        ours.close().await;
        std::fs::remove_dir_all(self.dir("fourth"))?;
        Ok(Some(fourth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[1.0], 0.95), Some(1.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 1.0), Some(3.0));
    }
}
