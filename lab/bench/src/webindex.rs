//! Measures the web index: pages and links a second until it is idle and searchable, and delays
//! at half load.
//!
//! There are two runs, each on a store of its own. The first loads at full speed, until every
//! observer is idle and every page searchable. In the second, pages arrive at half that rate.
//! Their schedule does not wait for the index, so that a stall counts for every page that it
//! delays. Each run ends with a verification, and is void if that fails.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use percolator::{OpenOptions, Percolator};
use percolator_cli::cmd::webindex::{Index, drive, wait};
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::{Column, Out, grouped};
use percolator_cli::store::Durability;
use serde_json::{Value, json};
use webindex::address::Base;
use webindex::{IndexStats, LoadOptions, LoadReport, Progress, Quantiles, Skipped};

use crate::system;

/// The web index on a directory of HTML: pages and links a second, and delays at half that load.
///
/// The benchmark makes two runs, each on a new store. The first loads as fast as it can, until
/// every page is searchable and every observer is idle. In the second, pages arrive at half
/// that rate. Each run ends with a verification. The exit status is 3 if it finds a
/// difference.
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
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        if !self.dir.is_dir() {
            return Err(Failure::usage(
                format!("{}: no such directory", self.dir.display()),
                "name a directory with HTML files; `percolator webindex generate DIR` makes one",
            ));
        }
        let base = Base::parse(&self.base)?;
        if cfg!(debug_assertions) {
            context.out.warn("this build is not optimised: build with --release for real figures");
        }
        let Some((full, half)) = self.both(context, &base).await? else {
            context.out.note("interrupted before the end: nothing to report");
            return Ok(Exit::Interrupted);
        };
        if context.out.json {
            context.out.json(&json(self, &full, &half))?
        } else {
            print(context.out, self, &full, &half)?
        }
        match full.differences.len() + half.differences.len() {
            0 => Ok(Exit::Done),
            differences => Err(Failure::error(
                Exit::Violated,
                format!("the verification found {differences} differences"),
                "the figures are void; please report this with the directory's contents",
            )),
        }
    }

    /// Runs both; `None` after Ctrl-C.
    async fn both(&self, context: &Context, base: &Base) -> anyhow::Result<Option<(Run, Run)>> {
        let Some(full) = one(context, self, base, None).await? else { return Ok(None) };
        let half = full.pages_per_s() / 2.0;
        let Some(half) = one(context, self, base, Some(half)).await? else { return Ok(None) };
        Ok(Some((full, half)))
    }
}

/// The results of one run.
#[derive(Debug)]
struct Run {
    pages_per_s_offered: Option<f64>,
    seconds: f64,
    cpu_seconds: Option<f64>,
    stats: IndexStats,
    transactions: u64,
    conflicts: u64,
    to_observer: Quantiles,
    to_searchable: Quantiles,
    differences: Vec<String>,
}

impl Run {
    fn pages_per_s(&self) -> f64 {
        self.stats.pages as f64 / self.seconds
    }

    fn json(&self) -> Value {
        let Run { stats, seconds, .. } = self;
        json!({
            "pages_per_s_offered": self.pages_per_s_offered,
            "pages": stats.pages,
            "links": stats.links,
            "distinct_links": stats.edges,
            "duplicates": stats.duplicates,
            "seconds": seconds,
            "cpu_seconds": self.cpu_seconds,
            "pages_per_s": self.pages_per_s(),
            "links_per_s": stats.links as f64 / seconds,
            "distinct_links_per_s": stats.edges as f64 / seconds,
            "pages_per_cpu_s": self.cpu_seconds.map(|cpu| stats.pages as f64 / cpu),
            "transactions": self.transactions,
            "conflicts": self.conflicts,
            "load_to_observer_ms": self.to_observer,
            "load_to_searchable_ms": self.to_searchable,
            "verify_ok": self.differences.is_empty(),
            "differences": self.differences,
        })
    }
}

/// The result in JSON.
fn json(settings: &Webindex, full: &Run, half: &Run) -> Value {
    json!({
        "bench": "webindex",
        "dir": settings.dir.display().to_string(),
        "durability": settings.durability.name(),
        "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "load_average": system::load(),
        "cpu_pressure_percent": system::cpu_pressure(),
        "full_load": full.json(),
        "half_load": half.json(),
        "peak_memory_bytes": system::peak_memory_bytes(),
    })
}

/// The result in words.
fn print(out: Out, settings: &Webindex, full: &Run, half: &Run) -> std::io::Result<()> {
    let header = ["", "full load", "half load"];
    let both = |name: &str, of: &dyn Fn(&Run) -> String| vec![name.to_owned(), of(full), of(half)];
    let ms = |ms: f64| format!("{ms:.1} ms");
    let rows = vec![
        both("pages", &|run| grouped(run.stats.pages as u64)),
        both("pages/s to idle and searchable", &|run| format!("{:.0}", run.pages_per_s())),
        both("hyperlinks/s", &|run| grouped((run.stats.links as f64 / run.seconds) as u64)),
        both("distinct links/s", &|run| grouped((run.stats.edges as f64 / run.seconds) as u64)),
        both("CPU seconds", &|run| run.cpu_seconds.map_or("-".into(), |s| format!("{s:.1}"))),
        both("transactions", &|run| grouped(run.transactions)),
        both("conflicts", &|run| grouped(run.conflicts)),
        both("load to observer, p50", &|run| ms(run.to_observer.p50_ms)),
        both("load to searchable, p50", &|run| ms(run.to_searchable.p50_ms)),
        both("load to searchable, p95", &|run| ms(run.to_searchable.p95_ms)),
    ];
    let columns: Vec<Column> = header.iter().map(|name| Column::right(*name)).collect();
    out.table(&columns, rows)?;
    let memory = system::peak_memory_bytes().map_or("-".into(), |bytes| grouped(bytes >> 20));
    out.line(&format!(
        "durability {}, peak memory {memory} MiB, verified without difference: {}",
        settings.durability.name(),
        full.differences.is_empty() && half.differences.is_empty(),
    ))
}

/// The error for a directory without pages: the store is new, so it holds only the loaded pages.
fn nothing_to_index(settings: &Webindex, load: &LoadReport) -> anyhow::Error {
    let mut what = format!("{}: no pages to index in this directory", settings.dir.display());
    if let Some(Skipped { path, reason }) = load.skipped.first() {
        what += &format!("; skipped: {}, the first of them {path}: {reason}", load.warnings);
    }
    let mut help = "name a directory with HTML files; `percolator webindex generate DIR` makes one";
    if !settings.exclude.is_empty() {
        help = "name a directory with HTML files, or leave out fewer of them with --exclude";
    }
    Failure::usage(what, help)
}

async fn one(
    context: &Context,
    settings: &Webindex,
    base: &Base,
    rate: Option<f64>,
) -> anyhow::Result<Option<Run>> {
    let temporary = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
    let data = temporary.path().join("data");
    let durability = settings.durability.into();
    let options = OpenOptions { durability, ..OpenOptions::default() };
    let index = Index::over(Percolator::open_with(&data, options).await?, Path::new(&data)).await?;
    let options = LoadOptions {
        exclude: settings.exclude.clone(),
        pages_per_s: rate,
        ..LoadOptions::default()
    };
    let (progress, started, cpu) = (Progress::default(), Instant::now(), system::cpu_time());
    let load = index.load(&settings.dir, base, &options, &progress);
    let load = drive(context, "loading", &progress, load).await?;
    if load.loaded == 0 && !load.stopped {
        index.stop().await;
        return Err(nothing_to_index(settings, &load));
    }
    if !wait(context, &index).await? || load.stopped {
        index.stop().await;
        return Ok(None);
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = system::cpu_time().zip(cpu).map(|(now, then)| (now - then).as_secs_f64());
    let (to_observer, to_searchable) = index.latency();
    let counts = index.database().stats();
    let stats = index.stats().await?;
    let verify = index.verify().await?;
    index.stop().await;
    Ok(Some(Run {
        pages_per_s_offered: rate,
        seconds,
        cpu_seconds,
        stats,
        transactions: counts.committed,
        conflicts: counts.conflicts,
        to_observer,
        to_searchable,
        differences: verify.named,
    }))
}
