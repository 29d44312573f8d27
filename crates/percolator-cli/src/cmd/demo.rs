//! `demo`: builds the web index of real documentation, from nothing, with one command.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use percolator::watch::{Sampling, Watch};
use percolator::{OpenOptions, Options};
use percolator_console::Recorder;
use serde_json::json;
use webindex::address::Base;
use webindex::corpus::{self, Origin};
use webindex::generate::Site;
use webindex::{IndexStats, LoadOptions, LoadReport, Progress, Quantiles, VerifyReport, WebIndex};

use crate::cmd::webindex::{Index, drive, print_cluster, print_hits, wait, warn_of};
use crate::console::{announced, is_read_by_a_person, of_demo};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::{Out, grouped};
use crate::store::{Durability, open_directory};

/// The number of pages of the web site that is generated when there is no documentation to index.
const GENERATED: Site = Site { pages: 3_000, seed: 1 };
/// The demo searches for these words, in documentation of Rust and elsewhere.
const SEARCHES: [&str; 3] = ["iterate over a hash map", "borrow checker", "command line options"];

/// Index real documentation: load, deduplicate, invert links, rank, search, verify.
///
/// Without DIR, the demo takes the HTML documentation of the Rust toolchain, else that of the
/// distribution. If neither is installed, it generates a web site from a seed. It prints which one
/// it took. Every page is loaded, parsed, clustered, linked and exported in transactions of its
/// own, on a durable store.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator demo
  percolator demo /usr/share/doc/git/html --data D")]
pub(crate) struct Demo {
    /// A directory of HTML to index instead.
    dir: Option<PathBuf>,
    /// The URL under which DIR is indexed.
    #[arg(long, value_name = "URL", default_value = "https://example.org/")]
    base: String,
    /// Keep the store in this directory, to look at it afterwards. Without the option the store
    /// is temporary.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// When a commit counts as durable; `buffered` survives kill -9 at any moment.
    #[arg(long, value_enum, default_value = "buffered", value_name = "LEVEL")]
    durability: Durability,
    /// End after the summary, and show no console. A demo whose output is not a terminal also ends
    /// by itself.
    #[arg(long)]
    once: bool,
    /// Leave a trace of all transactions, for `percolator why` and the console: off, all, or one
    /// cascade in N.
    #[arg(long, value_name = "off|1/N|all", default_value_t = Sampling::All)]
    trace: Sampling,
}

/// The pages to index.
struct Source {
    dir: PathBuf,
    base: Base,
    exclude: Vec<String>,
    told: String,
    /// Keeps the directory of a generated site until the end.
    _generated: Option<tempfile::TempDir>,
}

/// The measurements of a demo.
struct Outcome {
    load: LoadReport,
    stats: IndexStats,
    transactions: u64,
    conflicts: u64,
    seconds: f64,
    to_observer: Quantiles,
    to_searchable: Quantiles,
    verify: VerifyReport,
}

impl Demo {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        if cfg!(debug_assertions) {
            out.warn("this build is not optimised: run `cargo run --release -- demo`");
        }
        let source = self.source(out)?;
        let temporary = match self.data {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("percolator-demo-").tempdir()?),
        };
        let data = match (&self.data, &temporary) {
            (Some(dir), _) => dir.clone(),
            (None, Some(temporary)) => temporary.path().join("data"),
            (None, None) => return Ok(Exit::Usage),
        };
        out.note(&format!("indexing {}", source.told));
        let kept = if temporary.is_some() { "temporary" } else { "kept" };
        out.note(&format!("store    {} ({}, {kept})", data.display(), self.durability.name()));
        let recorder = Arc::new(Recorder::new());
        let watch = Some(recorder.clone() as Arc<dyn Watch>);
        let client = Options { watch, trace: self.trace, ..Options::default() };
        let durability = self.durability.into();
        let db =
            open_directory(&data, OpenOptions { durability, client, ..OpenOptions::default() });
        let index = Arc::new(Index::over(db.await?, &data).await?);
        let console = if self.once {
            None
        } else {
            Some(of_demo(index.database(), recorder, &index, &data).await?)
        };
        if let Some(console) = &console {
            out.note(&format!("console  {}", announced(console, is_read_by_a_person())));
        }
        let Some(outcome) = self.index(context, &source, &index).await? else {
            index.stop().await;
            return Ok(Exit::Interrupted);
        };
        if out.json {
            out.json(&json_of(&source, &outcome))?
        } else {
            summary(out, &outcome)?;
            examples(out, &index).await?;
            next_steps(out, self.data.as_deref(), &index).await;
        }
        if let Some(console) = console
            && std::io::stdout().is_terminal()
        {
            out.note(&format!("\nthe console stays open until Ctrl-C: {}", console.url()));
            context.interrupt.pressed().await;
        }
        index.stop().await;
        Ok(if outcome.verify.is_ok() { Exit::Done } else { Exit::Violated })
    }

    async fn index(
        &self,
        context: &Context,
        source: &Source,
        index: &WebIndex,
    ) -> anyhow::Result<Option<Outcome>> {
        let (progress, started) = (Progress::default(), Instant::now());
        let options = LoadOptions { exclude: source.exclude.clone(), ..LoadOptions::default() };
        let load = index.load(&source.dir, &source.base, &options, &progress);
        let load = drive(context, "loading", &progress, load).await?;
        if !wait(context, index).await? {
            return Ok(None);
        }
        let seconds = started.elapsed().as_secs_f64();
        let (to_observer, to_searchable) = index.latency();
        warn_of(context.out, &load);
        context.out.note(&format!("searchable after {seconds:.1} s; ranking"));
        let progress = Progress::default();
        drive(context, "ranking", &progress, index.rank(&progress)).await?;
        if !wait(context, index).await? {
            return Ok(None);
        }
        context.out.note("verifying against a batch over the stored documents");
        let Some(verify) = context.interrupt.cut_off(index.verify()).await else {
            return Ok(None);
        };
        let counts = index.database().stats();
        Ok(Some(Outcome {
            load,
            stats: index.stats().await?,
            transactions: counts.committed,
            conflicts: counts.conflicts,
            seconds,
            to_observer,
            to_searchable,
            verify: verify?,
        }))
    }

    fn source(&self, out: Out) -> anyhow::Result<Source> {
        if let Some(dir) = &self.dir {
            if !dir.is_dir() {
                return Err(Failure::usage(
                    format!("{}: no such directory", dir.display()),
                    "name a directory with HTML files, or none for the installed documentation",
                ));
            }
            let (told, base) = (dir.display().to_string(), Base::parse(&self.base)?);
            let (dir, exclude) = (dir.clone(), Vec::new());
            return Ok(Source { dir, base, exclude, told, _generated: None });
        }
        if let Some(found) = corpus::find()?.into_iter().next() {
            let exclude: Vec<String> = found.exclude.iter().map(ToString::to_string).collect();
            let told = match found.origin {
                Origin::RustToolchain => format!(
                    "the Rust toolchain's documentation, {} (without {})",
                    found.dir.display(),
                    exclude.join(", "),
                ),
                Origin::Installed => {
                    out.warn("the Rust toolchain has no documentation (rust-docs) installed");
                    format!("installed documentation, {}", found.dir.display())
                }
            };
            let (dir, base) = (found.dir, found.base);
            return Ok(Source { dir, base, exclude, told, _generated: None });
        }
        out.warn(
            "neither the Rust toolchain nor the distribution has HTML documentation installed: \
             indexing a GENERATED web site instead",
        );
        let generated = tempfile::Builder::new().prefix("percolator-site-").tempdir()?;
        let dir = generated.path().join("site");
        let made = GENERATED.write(&dir)?;
        let told = format!("a generated site of {} URLs, seed {}", made.urls(), GENERATED.seed);
        let base = Base::parse(&self.base)?;
        Ok(Source { dir, base, exclude: Vec::new(), told, _generated: Some(generated) })
    }
}

fn json_of(source: &Source, outcome: &Outcome) -> serde_json::Value {
    let Outcome { load, stats, seconds, to_observer, to_searchable, verify, .. } = outcome;
    json!({
        "source": source.told,
        "pages": stats.pages,
        "links": stats.links,
        "distinct_links": stats.edges,
        "clusters": stats.clusters,
        "duplicates": stats.duplicates,
        "redirects": stats.redirects,
        "warnings": load.warnings,
        "bytes": load.bytes,
        "transactions": outcome.transactions,
        "conflicts": outcome.conflicts,
        "seconds": seconds,
        "pages_per_s": stats.pages as f64 / seconds,
        "links_per_s": stats.links as f64 / seconds,
        "distinct_links_per_s": stats.edges as f64 / seconds,
        "load_to_observer_ms_p50": to_observer.p50_ms,
        "load_to_searchable_ms_p50": to_searchable.p50_ms,
        "load_to_searchable_ms_p95": to_searchable.p95_ms,
        "verify_ok": verify.is_ok(),
        "differences": verify.named,
    })
}

fn summary(out: Out, outcome: &Outcome) -> std::io::Result<()> {
    let Outcome { load, stats, seconds, to_searchable, verify, .. } = outcome;
    let per_s = |n: f64| grouped((n / seconds) as u64);
    let rows = [
        format!(
            "pages         {:>9}   {:.0} MB, {} a second to idle and searchable",
            grouped(stats.pages as u64),
            load.bytes as f64 / 1e6,
            per_s(stats.pages as f64),
        ),
        format!(
            "hyperlinks    {:>9}   {} a second; {} distinct links",
            grouped(stats.links),
            per_s(stats.links as f64),
            grouped(stats.edges as u64),
        ),
        format!(
            "duplicates    {:>9}   in {} clusters; {} pages redirect",
            grouped(stats.duplicates as u64),
            grouped(stats.clusters as u64),
            grouped(stats.redirects as u64),
        ),
        format!(
            "transactions  {:>9}   {} conflicts, run again",
            grouped(outcome.transactions),
            grouped(outcome.conflicts),
        ),
        format!(
            "searchable    {:>9}   load to searchable p50 {:.1} s, p95 {:.1} s at full load",
            grouped(stats.searchable as u64),
            to_searchable.p50_ms / 1e3,
            to_searchable.p95_ms / 1e3,
        ),
        match verify.differences {
            0 => {
                "verified                no difference to a batch over the stored documents".into()
            }
            n => format!("verified      {n} DIFFERENCES: {}", verify.named.join("; ")),
        },
    ];
    out.line(&rows.join("\n"))
}

async fn examples(out: Out, index: &WebIndex) -> anyhow::Result<()> {
    for query in SEARCHES {
        out.line(&format!("\nsearch: {query}"))?;
        print_hits(out, &index.search(query, 3).await?)?;
    }
    if let Some(cluster) = index.largest_cluster().await? {
        out.line("\na cluster of duplicates:")?;
        print_cluster(out, &cluster)?;
    }
    Ok(())
}

async fn next_steps(out: Out, data: Option<&Path>, index: &WebIndex) {
    out.note("\ntry next:");
    let Some(data) = data else {
        out.note("  percolator demo --data demo-data      the same, and the store is kept; then");
        out.note("  percolator webindex search 'smart pointer' --data demo-data");
        out.note("  percolator webindex recrawl --pct 1 --seed 7 --data demo-data");
        return;
    };
    let data = data.display();
    out.note(&format!("  percolator webindex search 'smart pointer' --data {data}"));
    if let Ok(Some(cluster)) = index.largest_cluster().await {
        out.note(&format!("  percolator webindex page {} --data {data}", cluster.canonical));
    }
    out.note(&format!("  percolator webindex recrawl --pct 1 --seed 7 --data {data}"));
    out.note(&format!("  percolator webindex verify --data {data}"));
}
