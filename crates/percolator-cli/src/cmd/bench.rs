//! `bench`: how fast it is on this machine.

mod batching;
mod fig7;
mod fig9;
mod large_txn;
mod measure;
mod notify;
mod resolve;

use clap::{Args, Subcommand};
use std::path::PathBuf;

use crate::bench::{Turns, micro, oracle, rpc, webindex};
use crate::cmd::Context;
use crate::exit::{Exit, Failure};
use crate::output::grouped;
use crate::store::Durability;

/// Measure.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator bench batching --quick
  percolator bench fig7 --quick --out results
  percolator bench micro --json
  percolator bench fig9 --quick
  percolator bench large-txn --quick
  percolator bench notify --quick
  percolator bench oracle --json
  percolator bench resolve --quick
  percolator bench rpc --json
  percolator bench webindex site/ --json")]
pub(crate) enum Bench {
    Batching(batching::Batching),
    Fig7(fig7::Fig7),
    Micro(Micro),
    Fig9(fig9::Fig9),
    #[command(hide = true, after_help = "Example:\n  percolator bench fig9 --quick")]
    Fig9Store(fig9::Fig9Store),
    LargeTxn(large_txn::LargeTxn),
    Notify(notify::Notify),
    Oracle(Oracle),
    Resolve(resolve::Resolve),
    Rpc(Rpc),
    Webindex(Webindex),
}

impl Bench {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Bench::Batching(batching) => batching.run(context).await,
            Bench::Fig7(fig7) => fig7.run(context).await,
            Bench::Micro(micro) => micro.run(context).await,
            Bench::Fig9(fig9) => fig9.run(context).await,
            Bench::Fig9Store(store) => store.run().await,
            Bench::LargeTxn(large) => large.run(context).await,
            Bench::Notify(notify) => notify.run(context).await,
            Bench::Oracle(oracle) => oracle.run(context).await,
            Bench::Resolve(resolve) => resolve.run(context).await,
            Bench::Rpc(rpc) => rpc.run(context).await,
            Bench::Webindex(webindex) => webindex.run(context).await,
        }
    }
}

/// Measures, between what is to be said before and afterwards.
async fn measured<T>(
    context: &Context,
    run: impl Future<Output = anyhow::Result<Option<T>>>,
) -> anyhow::Result<Option<T>> {
    if cfg!(debug_assertions) {
        context.out.warn("this build is not optimised: build with --release for real figures");
    }
    let result = run.await?;
    if result.is_none() {
        context.out.note("interrupted before the end: nothing to report");
    }
    Ok(result)
}

/// Single-cell reads and writes at random: bare engine, raw table and transactions (the paper's
/// Figure 8).
///
/// One thread, all data cached. The arms take turns in blocks of half a second, in an order drawn
/// from the seed; a ratio is the median of the ratios of each round. At the end everything that was
/// written is read again: exit status 3, and no result, when it is not there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator bench micro
  percolator bench micro --durability sync --data /mnt/disk/bench --json")]
pub(crate) struct Micro {
    /// When a write counts as durable, in every arm alike.
    #[arg(long, value_enum, default_value = "buffered", value_name = "LEVEL")]
    durability: Durability,
    /// Seconds to measure each arm for.
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    seconds: f64,
    /// How many cells there are.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    cells: usize,
    /// Seed of the order of arms and cells.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A new directory for the data, which stays; a temporary one when it is left away.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Micro {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let bad = |what: String, help| Err(Failure::usage(what, help));
        if !(0.01..=3600.0).contains(&self.seconds) {
            return bad(format!("--seconds {}", self.seconds), "give 0.01 to 3600 seconds");
        }
        if !(1..=micro::CELLS_MAX).contains(&self.cells) {
            let most = grouped(micro::CELLS_MAX as u64);
            return bad(format!("--cells {}", self.cells), &format!("give 1 to {most} cells"));
        }
        let temporary = match &self.data {
            Some(dir) => {
                if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
                    let what = format!("{}: the directory is not empty", dir.display());
                    return bad(what, "name an empty directory, or one that is not there yet");
                }
                None
            }
            None => Some(tempfile::Builder::new().prefix("percolator-bench-").tempdir()?),
        };
        let dir = match (&self.data, &temporary) {
            (Some(dir), _) => dir.clone(),
            (None, Some(temporary)) => temporary.path().to_owned(),
            (None, None) => return bad("no directory".to_owned(), "name one with --data"),
        };
        let turns = Turns { seconds: self.seconds, seed: self.seed };
        let (durability, cells) = (self.durability, self.cells);
        let settings = micro::Settings { turns, durability, cells, dir };
        let Some(result) = measured(context, micro::run(context, &settings)).await? else {
            return Ok(Exit::Interrupted);
        };
        match context.out.json {
            true => context.out.json(&micro::json(&settings, &result))?,
            false => micro::print(context.out, &settings, &result)?,
        }
        if result.check.wrong > 0 {
            return Err(Failure::error(
                Exit::Violated,
                format!("{} cells were not as they were written", result.check.wrong),
                "the figures are void; please report this with the settings above",
            ));
        }
        Ok(Exit::Done)
    }
}

/// Timestamps from an oracle process over loopback: one caller, many callers, and delays at half load.
///
/// The arms take turns in blocks of half a second, in an order drawn from the seed; a figure is the
/// median over the rounds. Exit status 3, and no result, when a timestamp was handed out twice or
/// went back.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator bench oracle --callers 2000 --json")]
pub(crate) struct Oracle {
    /// How many callers ask at a time.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    callers: usize,
    /// Seconds to measure each arm for.
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    seconds: f64,
    /// Seed of the order of arms.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Most callers of `bench oracle`.
const CALLERS_MAX: usize = 100_000;

impl Oracle {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let bad = |what: String, help: &str| Err(Failure::usage(what, help));
        if !(0.01..=600.0).contains(&self.seconds) {
            return bad(format!("--seconds {}", self.seconds), "give 0.01 to 600 seconds");
        }
        if !(1..=CALLERS_MAX).contains(&self.callers) {
            let help = format!("give 1 to {} callers", grouped(CALLERS_MAX as u64));
            return bad(format!("--callers {}", self.callers), &help);
        }
        let Oracle { callers, seconds, seed } = *self;
        let settings = oracle::Settings { turns: Turns { seconds, seed }, callers };
        let Some(result) = measured(context, oracle::run(context, &settings)).await? else {
            return Ok(Exit::Interrupted);
        };
        match context.out.json {
            true => context.out.json(&oracle::json(&settings, &result))?,
            false => oracle::print(context.out, &settings, &result)?,
        }
        if result.wrong > 0 {
            return Err(Failure::error(
                Exit::Violated,
                format!("{} timestamps came twice or went back", result.wrong),
                "the figures are void; please report this with the settings above",
            ));
        }
        Ok(Exit::Done)
    }
}

/// Transactions against a table server over loopback, compared with the bare requests that they make.
///
/// The server is a process of its own, the oracle is in this one. Each arm has one caller, and again
/// many. The arms take turns in blocks of half a second, in an order drawn from the seed; a figure is
/// the median over the rounds. At the end every cell is read: exit status 3, and no result, unless each
/// holds the number of transactions that wrote it.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator bench rpc --callers 16 --json")]
pub(crate) struct Rpc {
    /// How many callers the arms for many have.
    #[arg(long, value_name = "N", default_value_t = 16)]
    callers: usize,
    /// Seconds to measure each arm for.
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    seconds: f64,
    /// How many cells there are.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    cells: usize,
    /// Seed of the order of arms and cells.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Most callers of `bench rpc`.
const RPC_CALLERS_MAX: usize = 1000;

impl Rpc {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let bad = |what: String, help: &str| Err(Failure::usage(what, help));
        if !(0.01..=600.0).contains(&self.seconds) {
            return bad(format!("--seconds {}", self.seconds), "give 0.01 to 600 seconds");
        }
        if !(1..=RPC_CALLERS_MAX).contains(&self.callers) {
            let help = format!("give 1 to {} callers", grouped(RPC_CALLERS_MAX as u64));
            return bad(format!("--callers {}", self.callers), &help);
        }
        let least = self.callers * rpc::TEN;
        if !(least..=micro::CELLS_MAX).contains(&self.cells) {
            let most = grouped(micro::CELLS_MAX as u64);
            let help =
                format!("give {} (ten for each caller) to {most} cells", grouped(least as u64));
            return bad(format!("--cells {}", self.cells), &help);
        }
        let Rpc { callers, seconds, cells, seed } = *self;
        let settings = rpc::Settings { turns: Turns { seconds, seed }, callers, cells };
        let Some(result) = measured(context, rpc::run(context, &settings)).await? else {
            return Ok(Exit::Interrupted);
        };
        match context.out.json {
            true => context.out.json(&rpc::json(&settings, &result))?,
            false => rpc::print(context.out, &settings, &result)?,
        }
        if !result.check.is_ok() {
            return Err(Failure::error(
                Exit::Violated,
                format!(
                    "{} cells or answers were wrong, or a commit was miscounted",
                    result.check.wrong
                ),
                "the figures are void; please report this with the settings above",
            ));
        }
        Ok(Exit::Done)
    }
}

/// The web index on a directory of HTML: pages and links a second, and delays at half that load.
///
/// Two runs, each on a new store: as fast as it goes until every page is searchable and every observer
/// idle, and then with pages arriving at half that rate. Each ends with a verification; exit status 3,
/// and no result, when it finds a difference.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator bench webindex \"$(rustc --print sysroot)/share/doc/rust/html\" --exclude core")]
pub(crate) struct Webindex {
    /// The directory.
    dir: PathBuf,
    /// The URL of the directory.
    #[arg(long, value_name = "URL", default_value = "https://example.org/")]
    base: String,
    /// Leave out this file or directory directly below DIR; may be repeated.
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,
    /// When a commit counts as durable.
    #[arg(long, value_enum, default_value = "buffered", value_name = "LEVEL")]
    durability: Durability,
}

impl Webindex {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        if !self.dir.is_dir() {
            return Err(Failure::usage(
                format!("{}: no such directory", self.dir.display()),
                "name a directory with HTML files; `percolator webindex generate DIR` makes one",
            ));
        }
        let settings = webindex::Settings {
            dir: self.dir.clone(),
            base: ::webindex::address::Base::parse(&self.base)?,
            exclude: self.exclude.clone(),
            durability: self.durability,
        };
        let runs = measured(context, webindex::run(context, &settings)).await?;
        let Some((full, half)) = runs else { return Ok(Exit::Interrupted) };
        match context.out.json {
            true => context.out.json(&webindex::json(&settings, &full, &half))?,
            false => webindex::print(context.out, &settings, &full, &half)?,
        }
        let differences = full.differences.len() + half.differences.len();
        if differences > 0 {
            return Err(Failure::error(
                Exit::Violated,
                format!("the verification found {differences} differences"),
                "the figures are void; please report this with the directory's contents",
            ));
        }
        Ok(Exit::Done)
    }
}
