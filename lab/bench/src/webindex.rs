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
use percolator::{Durability, OpenOptions, Percolator};
use percolator_cli::cmd::webindex::{Index, drive, wait};
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::{Column, Out, grouped};
use serde_json::{Value, json};
use webindex::address::Base;
use webindex::{LoadOptions, LoadReport, Progress, Skipped};

use crate::system;
use crate::tables::plain;

mod cluster;

pub(crate) use cluster::WebindexWorker;

/// The web index on a directory of HTML: pages and links a second, and delays at half that load.
///
/// The benchmark makes two runs, each on a new store. The first loads as fast as it can, until
/// every page is searchable and every observer is idle. In the second, pages arrive at half
/// that rate. Each run ends with a verification. The exit status is 3 if it finds a
/// difference.
///
/// With `--cluster`, the second run is a load by a cluster of processes on this machine, as fast as
/// it can. It counts the requests of each page by table and method.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench webindex \"$(rustc --print sysroot)/share/doc/rust/html\" --exclude core
  percolator-bench webindex site/ --cluster --workers 3")]
pub(crate) struct Webindex {
    /// The directory.
    dir: PathBuf,
    /// Leave out this file or directory directly below DIR; may be repeated.
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,
    /// Compare the full load with one by a cluster of processes.
    #[arg(long)]
    cluster: bool,
    /// The number of worker processes of the cluster.
    #[arg(long, value_name = "N", default_value_t = 3, requires = "cluster", value_parser = clap::value_parser!(u8).range(1..))]
    workers: u8,
}

impl Webindex {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        if !self.dir.is_dir() {
            return Err(Failure::usage(
                format!("{}: no such directory", self.dir.display()),
                "name a directory with HTML files; `percolator webindex generate DIR` makes one",
            ));
        }
        let base = Base::parse("https://example.org/")?;
        if cfg!(debug_assertions) {
            context.out.warn("this build is not optimised: build with --release for real figures");
        }
        let full = one(context, self, &base, None).await?;
        if self.cluster {
            return self.in_cluster(context, full).await;
        }
        let half = match &full {
            Some(full) => {
                let rate = full["pages_per_s"].as_f64().map(|rate| rate / 2.0);
                one(context, self, &base, rate).await?
            }
            None => None,
        };
        let (Some(full), Some(half)) = (full, half) else {
            return Ok(interrupted(context));
        };
        let differences: usize = [&full, &half]
            .map(|run| run["differences"].as_array().map_or(0, Vec::len))
            .iter()
            .sum();
        let told = json!({
            "bench": "webindex",
            "dir": self.dir.display().to_string(),
            "durability": "buffered",
            "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "load_average": system::load(),
            "cpu_pressure_percent": system::cpu_pressure(),
            "full_load": full,
            "half_load": half,
            "peak_memory_bytes": system::peak_memory_bytes(),
        });
        if context.out.json {
            context.out.json(&told)?
        } else {
            print(context.out, &told)?
        }
        verdict(differences)
    }

    fn options(&self, pages_per_s: Option<f64>) -> LoadOptions {
        LoadOptions { exclude: self.exclude.clone(), pages_per_s, ..LoadOptions::default() }
    }

    /// Loads the directory in a cluster, and prints what a page costs there and in the run `full`.
    async fn in_cluster(&self, context: &Context, full: Option<Value>) -> anyhow::Result<Exit> {
        let Some(full) = full else { return Ok(interrupted(context)) };
        let workers = usize::from(self.workers);
        let load = cluster::load(context, &self.dir, &self.options(None), workers).await?;
        let Some(load) = load else { return Ok(interrupted(context)) };
        let ms = full["cpu_seconds"].as_f64().zip(full["pages"].as_f64());
        let ms = ms.map(|(seconds, pages)| 1e3 * seconds / pages);
        let told = json!({
            "bench": "webindex",
            "dir": self.dir.display().to_string(),
            "load_average": system::load(),
            "embedded_cpu_ms_a_page": ms,
            "cluster/embedded": ms.zip(load["cpu_ms_a_page"].as_f64()).map(|(one, all)| all / one),
            "cluster": load,
        });
        if context.out.json {
            context.out.json(&told)?
        } else {
            cluster::print(context.out, &told)?
        }
        let differences = full["differences"].as_array().map_or(0, Vec::len);
        verdict(differences + usize::from(told["cluster"]["verify_ok"] != true))
    }
}

fn interrupted(context: &Context) -> Exit {
    context.out.note("interrupted before the end: nothing to report");
    Exit::Interrupted
}

fn verdict(differences: usize) -> anyhow::Result<Exit> {
    match differences {
        0 => Ok(Exit::Done),
        differences => Err(Failure::error(
            Exit::Violated,
            format!("the verification found {differences} differences"),
            "the figures are void; please report this with the directory's contents",
        )),
    }
}

/// The rows of the printed table: the heading of each, and the place of its cell in a run's JSON.
const ROWS: [(&str, &str); 10] = [
    ("pages", "/pages"),
    ("pages/s to idle and searchable", "/pages_per_s"),
    ("hyperlinks/s", "/links_per_s"),
    ("distinct links/s", "/distinct_links_per_s"),
    ("CPU seconds", "/cpu_seconds"),
    ("transactions", "/transactions"),
    ("conflicts", "/conflicts"),
    ("load to observer, p50, ms", "/load_to_observer_ms/p50_ms"),
    ("load to searchable, p50, ms", "/load_to_searchable_ms/p50_ms"),
    ("load to searchable, p95, ms", "/load_to_searchable_ms/p95_ms"),
];

fn print(out: Out, told: &Value) -> std::io::Result<()> {
    let row = |(name, at): (&str, &str)| {
        let cell = |load: &str| {
            let found = told[load].pointer(at).filter(|value| !value.is_null());
            found.map_or("-".to_owned(), plain)
        };
        vec![name.to_owned(), cell("full_load"), cell("half_load")]
    };
    let columns = ["", "full load", "half load"].map(Column::right);
    out.table(&columns, ROWS.into_iter().map(row).collect())?;
    let memory = told["peak_memory_bytes"].as_u64();
    let verified = |load: &str| told[load]["verify_ok"] == true;
    out.line(&format!(
        "durability {}, peak memory {} MiB, verified without difference: {}",
        plain(&told["durability"]),
        memory.map_or("-".into(), |bytes| grouped(bytes >> 20)),
        verified("full_load") && verified("half_load"),
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

/// Makes one run, and returns its results in JSON; `None` after Ctrl-C.
async fn one(
    context: &Context,
    settings: &Webindex,
    base: &Base,
    rate: Option<f64>,
) -> anyhow::Result<Option<Value>> {
    let temporary = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
    let data = temporary.path().join("data");
    let options = OpenOptions { durability: Durability::Buffered, ..OpenOptions::default() };
    let index = Index::over(Percolator::open_with(&data, options).await?, Path::new(&data)).await?;
    let options = settings.options(rate);
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
    Ok(Some(json!({
        "pages_per_s_offered": rate,
        "pages": stats.pages,
        "links": stats.links,
        "distinct_links": stats.edges,
        "duplicates": stats.duplicates,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "pages_per_s": stats.pages as f64 / seconds,
        "links_per_s": stats.links as f64 / seconds,
        "distinct_links_per_s": stats.edges as f64 / seconds,
        "pages_per_cpu_s": cpu_seconds.map(|cpu| stats.pages as f64 / cpu),
        "transactions": counts.committed,
        "conflicts": counts.conflicts,
        "load_to_observer_ms": to_observer,
        "load_to_searchable_ms": to_searchable,
        "verify_ok": verify.named.is_empty(),
        "differences": verify.named,
    })))
}
