//! Runs the parent: kills the child many times in the middle of its work, then checks for
//! damage.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::{Out, grouped};
use percolator_cli::progress::Progress;
use percolator_cli::store::Durability;
use percolator_torture::Victim;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use crate::judge::{self, Judgement};
use crate::ledger::Ledger;
use crate::place::Place;
use crate::world::Stored;

/// The lifetime of a child in milliseconds.
const LIFE_MS: std::ops::RangeInclusive<u64> = 50..=1500;
/// The lifetime in milliseconds of a child that is to be killed while it opens the store.
const OPENING_MS: std::ops::RangeInclusive<u64> = 2..=80;
/// One kill in this many comes while the store is opened.
const OPENING_ONE_IN: u32 = 5;
/// The time between two checks whether the child has ended by itself.
const LOOK_EVERY: Duration = Duration::from_millis(10);
pub(crate) const SITE_PAGES: usize = 150;
/// The number of lines of the children's log that are shown.
const LOG_LINES: usize = 20;

/// The flags of a run.
#[derive(Debug, Args)]
pub(crate) struct Torture {
    /// The number of times that the child is killed.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,
    /// The seed of the kills and of the children's work. A run repeats as far as the machine's
    /// own pace allows.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Work in this directory, and keep it. It must be empty, or not exist yet. Without this
    /// flag the directory is temporary, and is kept only when something is wrong.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// When a commit counts as durable; both levels survive kill -9.
    #[arg(long, value_enum, default_value = "buffered", value_name = "LEVEL")]
    durability: Durability,
}

/// The result of all kills.
#[derive(Debug, PartialEq, Eq)]
enum Killed {
    All,
    Interrupted,
    /// A child ended before it was killed.
    EndedByItself(String),
}

impl Torture {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let temporary = match self.data {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("percolator-torture-").tempdir()?),
        };
        let place = match (&self.data, &temporary) {
            (Some(dir), _) => Place::new(dir),
            (None, Some(temporary)) => Place::new(temporary.path()),
            (None, None) => return Ok(Exit::Usage),
        };
        let result = self.torture(context, &place).await;
        if result.is_err()
            && let Some(temporary) = temporary
        {
            let _ = temporary.keep();
        }
        result
    }

    async fn torture(&self, context: &Context, place: &Place) -> anyhow::Result<Exit> {
        prepare(place)?;
        webindex::generate::Site { pages: SITE_PAGES, seed: self.seed }.write(&place.site())?;
        let began = Instant::now();
        match self.kill_all(context, place).await? {
            Killed::All => {}
            Killed::Interrupted => return Ok(Exit::Interrupted),
            Killed::EndedByItself(how) => {
                let what = format!("a child was not killed, but {how}{}", last_words(place));
                return Err(self.violated(place, what));
            }
        }
        context.out.note("verifying");
        let stored = Stored::OnDisk(self.durability);
        let judging = judge::judge(place, &stored);
        let Some(judgement) = context.interrupt.cut_off(judging).await else {
            return Ok(Exit::Interrupted);
        };
        let judgement = match judgement {
            Ok(judgement) => judgement,
            Err(error) => {
                return Err(
                    self.violated(place, format!("the store cannot be verified: {error:#}"))
                );
            }
        };
        let run = (self.kills, self.seed, Some(self.durability.name()));
        report(context.out, run, &judgement, began.elapsed())?;
        match judgement.violations {
            0 => Ok(Exit::Done),
            n => {
                let named = judgement.named.join("\n  ");
                Err(self.violated(
                    place,
                    format!("{n} of {} checks failed:\n  {named}", judgement.checks),
                ))
            }
        }
    }

    fn violated(&self, place: &Place, what: String) -> anyhow::Error {
        let Torture { kills, seed, durability, .. } = self;
        let help = format!(
            "the directory is kept: {}; \
             `percolator-torture --kills {kills} --seed {seed} --durability {}` tries again",
            place.dir().display(),
            durability.name(),
        );
        Failure::error(Exit::Violated, what, help)
    }

    async fn kill_all(&self, context: &Context, place: &Place) -> anyhow::Result<Killed> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let progress = Progress::new(context.out.quiet, Some(self.kills));
        let mut committed = 0;
        for run in 1..=self.kills {
            let life = if random.random_ratio(1, OPENING_ONE_IN) {
                random.random_range(OPENING_MS)
            } else {
                random.random_range(LIFE_MS)
            };
            let mut victim = self.start(place, run, random.random())?;
            let born = Instant::now();
            while born.elapsed() < Duration::from_millis(life) {
                if context.interrupt.cut_off(tokio::time::sleep(LOOK_EVERY)).await.is_none() {
                    return Ok(Killed::Interrupted);
                }
                if let Some(status) = victim.ends_within(Duration::ZERO)? {
                    return Ok(if context.interrupt.requested() {
                        Killed::Interrupted
                    } else {
                        Killed::EndedByItself(format!("ended in run {run} with {status}"))
                    });
                }
            }
            drop(victim);
            if run % 10 == 0 {
                committed = Ledger::read(&place.ledger())?.committed.len();
            }
            let commits = grouped(committed as u64);
            let kills = self.kills;
            progress.say(run, &format!("{run} of {kills} kills, {commits} commits acknowledged"));
        }
        Ok(Killed::All)
    }

    fn start(&self, place: &Place, run: u64, seed: u64) -> anyhow::Result<Victim> {
        let log: File = OpenOptions::new().create(true).append(true).open(place.log())?;
        let program = std::env::current_exe().context("finding this program's own file")?;
        let mut command = Command::new(program);
        command
            .arg("worker")
            .arg("--dir")
            .arg(place.dir())
            .args(["--run", &run.to_string(), "--seed", &seed.to_string()])
            .args(["--durability", self.durability.name(), "--color", "never"])
            // The parent holds this pipe open: the child ends when the parent does.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log);
        Victim::start(&mut command).context("starting a child")
    }
}

/// Prints the result of all kills, of a run with this number of kills, seed and durability.
pub(crate) fn report(
    out: Out,
    (kills, seed, durability): (u64, u64, Option<&str>),
    found: &Judgement,
    took: Duration,
) -> std::io::Result<()> {
    let Judgement { checks, violations, named, begun, committed, unknown, counts, .. } = found;
    let seconds = took.as_secs_f64();
    if out.json {
        let mut document = json!({
            "kills": kills,
            "restarts": kills,
            "seed": seed,
            "transactions_begun": begun,
            "commits_acknowledged": committed,
            "unknown": unknown,
            "conflicts": counts.conflicts,
            "rolled_forward": counts.rolled_forward,
            "rolled_back": counts.rolled_back,
            "observer_runs": counts.observer_runs,
            "documents": found.documents,
            "past_moments": found.moments,
            "checks": checks,
            "violations": violations,
            "named": named,
            "seconds": seconds,
        });
        // A store of others has a durability of its own.
        if let Some(durability) = durability {
            document["durability"] = durability.into();
        }
        return out.json(&document);
    }
    let n = |n: usize| grouped(n as u64);
    let what = if durability.is_some() { "kills, each with a restart," } else { "faults" };
    out.line(&format!(
        "{} {what} in {seconds:.0} s\n\
         {} commits acknowledged, {} without an answer\n\
         {} rows rolled forward, {} transactions rolled back, {} conflicts\n\
         {} observer runs, {} web documents, sums at {} past moments\n\
         {} checks, {}",
        grouped(kills),
        n(*committed),
        n(*unknown),
        grouped(counts.rolled_forward),
        grouped(counts.rolled_back),
        grouped(counts.conflicts),
        grouped(counts.observer_runs),
        n(found.documents),
        n(found.moments),
        grouped(*checks),
        match violations {
            0 => "no violation".to_owned(),
            violations => format!("{} VIOLATIONS", n(*violations)),
        },
    ))
}

/// Checks that the directory is empty.
pub(crate) fn prepare(place: &Place) -> anyhow::Result<()> {
    let dir = place.dir();
    let refuse = |what: String| {
        let help = "name an empty directory with --data, or omit --data to use a temporary one";
        Failure::usage(format!("{}: {what}", dir.display()), help)
    };
    std::fs::create_dir_all(dir).map_err(|error| refuse(error.to_string()))?;
    let mut entries = std::fs::read_dir(dir).map_err(|error| refuse(error.to_string()))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(refuse("the directory is not empty".to_owned())),
    }
}

/// Returns the last lines that the children logged.
fn last_words(place: &Place) -> String {
    let log = std::fs::read(place.log()).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    last.iter().map(|line| format!("\n  {line}")).collect()
}
