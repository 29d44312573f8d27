//! The commands, one for each benchmark: their flags, and what becomes of their findings.

mod all;
mod batching;
mod check;
mod common;
mod fig10;
mod fig7;
mod fig8;
mod fig9;
mod large_txn;
mod measure;
mod notify;
mod prefetch;
mod profile;
mod resolve;
mod scan;

use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

use crate::fig8::CELLS_MAX;
use crate::{Turns, oracle, rpc, webindex};

use common::Common;
use percolator_cli::cmd::serve::ServeRole;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::grouped;
use percolator_cli::store::Durability;

/// A benchmark, or what a benchmark starts.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    All(all::All),
    Check(check::Check),
    Batching(batching::Batching),
    Fig7(fig7::Fig7),
    Fig8(fig8::Fig8),
    Fig9(fig9::Fig9),
    #[command(hide = true, after_help = "Example:\n  percolator-bench fig9 --quick")]
    Fig9Store(fig9::Fig9Store),
    Fig10(fig10::Fig10),
    #[command(hide = true, after_help = "Example:\n  percolator-bench fig10 --quick")]
    Fig10Worker(fig10::Fig10Worker),
    LargeTxn(large_txn::LargeTxn),
    #[command(hide = true, after_help = "Example:\n  percolator-bench large-txn --quick")]
    LargeTxnMemory(large_txn::LargeTxnMemory),
    Notify(notify::Notify),
    Oracle(Oracle),
    Prefetch(prefetch::Prefetch),
    Profile(profile::Profile),
    #[command(hide = true, after_help = "Example:\n  percolator-bench profile --quick")]
    ProfileWork(profile::ProfileWork),
    Resolve(resolve::Resolve),
    Rpc(Rpc),
    Scan(scan::Scan),
    Webindex(Webindex),
    /// Servers as processes of this program, which benchmarks start.
    #[command(hide = true)]
    Serve(ServeRole),
}

impl Bench {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Bench::All(all) => all.run(context),
            Bench::Check(check) => check.run(context),
            Bench::Batching(batching) => batching.run(context).await,
            Bench::Fig7(fig7) => fig7.run(context).await,
            Bench::Fig8(fig8) => fig8.run(context).await,
            Bench::Fig9(fig9) => fig9.run(context).await,
            Bench::Fig9Store(store) => store.run().await,
            Bench::Fig10(fig10) => fig10.run(context).await,
            Bench::Fig10Worker(worker) => worker.run().await,
            Bench::Prefetch(prefetch) => prefetch.run(context).await,
            Bench::Profile(profile) => profile.run(context),
            Bench::ProfileWork(work) => work.run().await,
            Bench::LargeTxn(large) => large.run(context).await,
            Bench::LargeTxnMemory(memory) => memory.run().await,
            Bench::Notify(notify) => notify.run(context).await,
            Bench::Oracle(oracle) => oracle.run(context).await,
            Bench::Resolve(resolve) => resolve.run(context).await,
            Bench::Rpc(rpc) => rpc.run(context).await,
            Bench::Scan(scan) => scan.run(context).await,
            Bench::Webindex(webindex) => webindex.run(context).await,
            Bench::Serve(serve) => serve.run(context).await,
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
    told(context, run).await
}

/// Measures, and says so when that was interrupted.
async fn told<T>(
    context: &Context,
    run: impl Future<Output = anyhow::Result<Option<T>>>,
) -> anyhow::Result<Option<T>> {
    let result = run.await?;
    if result.is_none() {
        context.out.note("interrupted before the end: nothing to report");
    }
    Ok(result)
}

/// Where a benchmark's data goes.
#[derive(Debug)]
enum Place {
    Named(PathBuf),
    /// Removed at the end.
    Temporary(tempfile::TempDir),
}

impl Place {
    /// An empty directory of this name, or a temporary one.
    fn of(named: Option<&Path>) -> anyhow::Result<Self> {
        let Some(dir) = named else {
            let dir = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
            return Ok(Place::Temporary(dir));
        };
        if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Failure::usage(
                format!("{}: the directory is not empty", dir.display()),
                "name an empty directory, or one that is not there yet",
            ));
        }
        std::fs::create_dir_all(dir).map_err(|error| {
            let what = format!("{}: {error}", dir.display());
            Failure::usage(what, "name a directory that can be written to with --data")
        })?;
        Ok(Place::Named(dir.to_owned()))
    }

    fn dir(&self) -> &Path {
        match self {
            Place::Named(dir) => dir,
            Place::Temporary(dir) => dir.path(),
        }
    }
}

/// Timestamps from an oracle process over loopback: one caller, many callers, and delays at half
/// load.
///
/// The arms take turns in blocks of half a second at most, in an order drawn from the seed; a
/// figure is the median over the rounds. Exit status 3, and no result, when a timestamp was handed
/// out twice or went back, or when callers came late in most rounds.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-bench oracle --callers 2000 --json")]
pub(crate) struct Oracle {
    /// How many callers ask at a time.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    callers: usize,
    /// Seconds to measure each arm for [default: 5, quick: 2].
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    #[command(flatten)]
    common: Common,
}

/// Most callers of `percolator-bench oracle`.
const CALLERS_MAX: usize = 100_000;

impl Oracle {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let bad = |what: String, help: &str| Err(Failure::usage(what, help));
        let seconds = self.seconds.unwrap_or(self.common.sized(2.0, 5.0));
        if !(0.01..=600.0).contains(&seconds) {
            return bad(format!("--seconds {seconds}"), "give 0.01 to 600 seconds");
        }
        if !(1..=CALLERS_MAX).contains(&self.callers) {
            let help = format!("give 1 to {} callers", grouped(CALLERS_MAX as u64));
            return bad(format!("--callers {}", self.callers), &help);
        }
        self.common.prepare(context)?;
        let (callers, seed) = (self.callers, self.common.seed);
        let settings = oracle::Settings { turns: Turns { seconds, seed }, callers };
        let Some(result) = told(context, oracle::run(context, &settings)).await? else {
            return Ok(Exit::Interrupted);
        };
        let figures = oracle::json(&settings, &result);
        let plot = oracle::plot(&settings, &result);
        self.common.write("oracle", &figures, vec![("oracle.svg".to_owned(), plot)])?;
        if context.out.json {
            context.out.json(&figures)?
        } else {
            oracle::print(context.out, &settings, &result)?
        }
        if let Some((what, help)) = result.void() {
            return Err(Failure::error(Exit::Violated, what, help));
        }
        Ok(Exit::Done)
    }
}

/// Transactions against a table server over loopback, compared with the bare requests that they
/// make.
///
/// The server is a process of its own, the oracle is in this one. Each arm has one caller, and
/// again many. The arms take turns in blocks of half a second at most, in an order drawn from the
/// seed; a figure is the median over the rounds. At the end every cell is read: exit status 3, and
/// no result, unless each holds the number of transactions that wrote it.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-bench rpc --callers 16 --json")]
pub(crate) struct Rpc {
    /// How many callers the arms for many have.
    #[arg(long, value_name = "N", default_value_t = 16)]
    callers: usize,
    /// Seconds to measure each arm for [default: 5, quick: 2].
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// How many cells there are.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    cells: usize,
    #[command(flatten)]
    common: Common,
}

/// Most callers of `percolator-bench rpc`.
const RPC_CALLERS_MAX: usize = 1000;

impl Rpc {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let bad = |what: String, help: &str| Err(Failure::usage(what, help));
        let seconds = self.seconds.unwrap_or(self.common.sized(2.0, 5.0));
        if !(0.01..=600.0).contains(&seconds) {
            return bad(format!("--seconds {seconds}"), "give 0.01 to 600 seconds");
        }
        if !(1..=RPC_CALLERS_MAX).contains(&self.callers) {
            let help = format!("give 1 to {} callers", grouped(RPC_CALLERS_MAX as u64));
            return bad(format!("--callers {}", self.callers), &help);
        }
        let least = self.callers * rpc::TEN;
        if !(least..=CELLS_MAX).contains(&self.cells) {
            let most = grouped(CELLS_MAX as u64);
            let help =
                format!("give {} (ten for each caller) to {most} cells", grouped(least as u64));
            return bad(format!("--cells {}", self.cells), &help);
        }
        self.common.prepare(context)?;
        let (callers, cells, seed) = (self.callers, self.cells, self.common.seed);
        let settings = rpc::Settings { turns: Turns { seconds, seed }, callers, cells };
        let Some(result) = told(context, rpc::run(context, &settings)).await? else {
            return Ok(Exit::Interrupted);
        };
        let figures = rpc::json(&settings, &result);
        let plot = rpc::plot(&settings, &result);
        self.common.write("rpc", &figures, vec![("rpc.svg".to_owned(), plot)])?;
        if context.out.json {
            context.out.json(&figures)?
        } else {
            rpc::print(context.out, &settings, &result)?
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
/// Two runs, each on a new store: as fast as it goes until every page is searchable and every
/// observer idle, and then with pages arriving at half that rate. Each ends with a verification;
/// exit status 3, and no result, when it finds a difference.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-bench webindex \"$(rustc --print sysroot)/share/doc/rust/html\" --exclude core")]
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
        if context.out.json {
            context.out.json(&webindex::json(&settings, &full, &half))?
        } else {
            webindex::print(context.out, &settings, &full, &half)?
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
