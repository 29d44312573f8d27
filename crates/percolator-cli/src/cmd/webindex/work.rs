//! What changes an index, and what checks it: load, rank, recrawl, verify; and a site to load.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use webindex::address::Base;
use webindex::{LoadOptions, LoadReport, Progress, WebIndex};

use crate::cmd::Context;
use crate::cmd::webindex::Index;
use crate::exit::{Exit, Failure};
use crate::output::{Out, grouped};
use crate::store::StoreArgs;

/// How often progress is shown.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often what is left for observers elsewhere is counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// How many skipped files are named on stderr.
const NAMED_MAX: usize = 10;

/// Load a directory of HTML, one transaction for each page.
///
/// Symlinks are further URLs. Files that are not HTML, are empty, too large or cannot be read are
/// counted and named, and the load goes on. Loading again continues a load that was cut short, and
/// leaves alone what has not changed.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex load site/ --base https://example.org/ --data D")]
pub(crate) struct Load {
    /// The directory.
    dir: PathBuf,
    /// The URL of the directory; http or https, with / at its end.
    #[arg(long, value_name = "URL")]
    base: String,
    /// Leave out this file or directory directly below DIR; may be repeated.
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,
    /// Load at most this many pages.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Load at most this many pages a second.
    #[arg(long, value_name = "PAGES")]
    rate: Option<f64>,
    /// Exit status 1 when anything was skipped.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    store: StoreArgs,
}

impl Load {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let base = Base::parse(&self.base)?;
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return Err(Failure::usage(
                "--rate is not above zero",
                "give pages a second: --rate 200",
            ));
        }
        if !self.dir.is_dir() {
            return Err(Failure::usage(
                format!("{}: no such directory", self.dir.display()),
                "name a directory with HTML files; `percolator webindex generate DIR` makes one",
            ));
        }
        let index = Index::open(&self.store).await?;
        let options = LoadOptions {
            exclude: self.exclude.clone(),
            limit: self.limit,
            pages_per_s: self.rate,
        };
        let progress = Progress::default();
        let started = Instant::now();
        let load = index.load(&self.dir, &base, &options, &progress);
        let report = drive(context, "loading", &progress, load).await?;
        let idle = wait(context, &index).await?;
        let seconds = started.elapsed().as_secs_f64();
        warn_of(context.out, &report);
        match context.out.json {
            true => context.out.json(&json!({
                "loaded": report.loaded, "unchanged": report.unchanged, "bytes": report.bytes,
                "warnings": report.warnings, "skipped": report.skipped,
                "stopped": report.stopped, "idle": idle, "seconds": seconds,
                "counters": counters(&index),
            }))?,
            false => context.out.line(&load_table(&report, seconds))?,
        }
        index.stop().await;
        Ok(match report.warnings > 0 && self.strict {
            true => Exit::No,
            false => Exit::Done,
        })
    }
}

/// A load in words.
pub(crate) fn load_table(report: &LoadReport, seconds: f64) -> String {
    let pages = |n: usize| grouped(n as u64);
    format!(
        "{} pages loaded ({:.1} MB), {} unchanged, {} skipped, in {seconds:.1} s",
        pages(report.loaded),
        report.bytes as f64 / 1e6,
        pages(report.unchanged),
        pages(report.warnings),
    )
}

/// Names what a load has skipped.
pub(crate) fn warn_of(out: Out, report: &LoadReport) {
    for skipped in report.skipped.iter().take(NAMED_MAX) {
        out.warn(&format!("{}: {}", skipped.path, skipped.reason));
    }
    if report.warnings > NAMED_MAX {
        let more = grouped((report.warnings - NAMED_MAX) as u64);
        out.warn(&format!("and {more} more were skipped; --json names a thousand"));
    }
}

/// Rank all pages by PageRank over the stored links; canonical pages may change.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex rank --data D")]
pub(crate) struct Rank {
    #[command(flatten)]
    store: StoreArgs,
}

impl Rank {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let index = Index::open_existing(&self.store).await?;
        wait(context, &index).await?;
        let progress = Progress::default();
        let report = drive(context, "ranking", &progress, index.rank(&progress)).await?;
        let idle = wait(context, &index).await?;
        match context.out.json {
            true => context.out.json(&json!({ "rank": report, "idle": idle }))?,
            false => context.out.line(&format!(
                "{} pages ranked over {} links in {} rounds, {} changed",
                grouped(report.pages as u64),
                grouped(report.edges as u64),
                report.iterations,
                grouped(report.changed as u64),
            ))?,
        }
        index.stop().await;
        Ok(Exit::Done)
    }
}

/// Edit, delete and load again some of the stored pages, as a recrawl would find them.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex recrawl --pct 1 --seed 7 --data D")]
pub(crate) struct Recrawl {
    /// Percent of the pages.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pct: f64,
    /// Which pages, and what happens to each, follows from this.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    store: StoreArgs,
}

impl Recrawl {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let index = Index::open_existing(&self.store).await?;
        wait(context, &index).await?;
        let progress = Progress::default();
        let recrawl = index.recrawl(self.pct, self.seed, &progress);
        let report = drive(context, "recrawling", &progress, recrawl).await?;
        let idle = wait(context, &index).await?;
        match context.out.json {
            true => context.out.json(&json!({ "recrawl": report, "idle": idle }))?,
            false => context.out.line(&format!(
                "of {} pages {} edited, {} deleted, {} loaded again",
                grouped(report.pages as u64),
                grouped(report.edited as u64),
                grouped(report.deleted as u64),
                grouped(report.unchanged as u64),
            ))?,
        }
        index.stop().await;
        Ok(Exit::Done)
    }
}

/// Recompute everything in one batch from the stored documents and compare it with the index.
///
/// Compares clusters, canonical pages, in-links with their anchors, and the search index. Exit status 3
/// when there is a difference; each is named.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex verify --data D")]
pub(crate) struct Verify {
    #[command(flatten)]
    store: StoreArgs,
}

impl Verify {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let index = Index::open_existing(&self.store).await?;
        if !wait(context, &index).await? {
            return Ok(Exit::Interrupted);
        }
        let Some(report) = context.interrupt.cut_off(index.verify()).await else {
            return Ok(Exit::Interrupted);
        };
        let report = report?;
        match context.out.json {
            true => context.out.json(&json!({ "verify_ok": report.is_ok(), "verify": report }))?,
            false => {
                for difference in &report.named {
                    context.out.line(difference)?;
                }
                context.out.line(&format!(
                    "{} documents, {} clusters, {} attached links, {} searchable pages: {}",
                    grouped(report.documents as u64),
                    grouped(report.clusters as u64),
                    grouped(report.attached_links as u64),
                    grouped(report.searchable as u64),
                    match report.differences {
                        0 => "no difference".to_owned(),
                        n => format!("{} differences", grouped(n as u64)),
                    },
                ))?;
            }
        }
        index.stop().await;
        Ok(if report.is_ok() { Exit::Done } else { Exit::Violated })
    }
}

/// Write a web site made from a seed: links, duplicates, redirects, declared canonicals, a symlink.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex generate site/ --pages 1000 --seed 7")]
pub(crate) struct Generate {
    /// The directory; empty or not there.
    dir: PathBuf,
    /// How many articles.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pages: usize,
    /// The seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Generate {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let site = webindex::generate::Site { pages: self.pages, seed: self.seed };
        let made = site.write(&self.dir)?;
        context.out.note(&format!(
            "{} pages under {} URLs in {}",
            grouped(self.pages as u64),
            grouped(made.urls() as u64),
            self.dir.display(),
        ));
        Ok(Exit::Done)
    }
}

/// Runs a job of the index while showing its progress; Ctrl-C stops it after the piece it is at.
pub(crate) async fn drive<T>(
    context: &Context,
    what: &str,
    progress: &Progress,
    job: impl Future<Output = Result<T, webindex::Error>>,
) -> anyhow::Result<T> {
    let mut job = std::pin::pin!(job);
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut bar = None;
    loop {
        tokio::select! {
            result = &mut job => return Ok(result?),
            () = context.interrupt.pressed(), if !progress.is_stopped() => progress.stop(),
            _ = look.tick() => {
                let (done, total) = (progress.done() as u64, progress.total() as u64);
                if total > 0 {
                    let quiet = context.out.quiet;
                    let bar = bar
                        .get_or_insert_with(|| crate::progress::Progress::new(quiet, Some(total)));
                    let (done_text, total) = (grouped(done), grouped(total));
                    bar.say(done, &format!("{what} {done_text} of {total}"));
                }
            }
        }
    }
}

/// Waits until the observers have caught up; `false` after Ctrl-C, which says what is left.
pub(crate) async fn wait(context: &Context, index: &WebIndex) -> anyhow::Result<bool> {
    let bar = crate::progress::Progress::new(context.out.quiet, None);
    let mut idle = std::pin::pin!(index.wait(None));
    let elsewhere = !index.runs_observers();
    let mut look = tokio::time::interval(if elsewhere { COUNT_EVERY } else { LOOK_EVERY });
    let report = loop {
        tokio::select! {
            report = &mut idle => break report?,
            () = context.interrupt.pressed() => {
                drop(bar);
                context.out.note(&format!(
                    "interrupted with {} changes left for observers; nothing is lost, {}",
                    grouped(left(index).await?),
                    match elsewhere {
                        true => "the workers go on with them",
                        false => "the next command on this store goes on with them",
                    }
                ));
                return Ok(false);
            }
            _ = look.tick() => {
                let waiting = match elsewhere {
                    true => left(index).await?,
                    false => index.database().hints_waiting() as u64,
                };
                let waiting = grouped(waiting);
                bar.say(0, &format!("observers at work, {waiting} changes wait"));
            }
        }
    };
    drop(bar);
    if let Some(first) = report.set_aside.first() {
        let count = grouped(report.set_aside.len() as u64);
        context.out.warn(&format!(
            "{count} changes are set aside, because their observers keep failing; the first is {}/{} \
             ({}): {}; `percolator observers replay` tries them again",
            first.table, first.row, first.observer, first.error,
        ));
    }
    Ok(report.idle)
}

/// How many changes wait for observers, as the database says.
async fn left(index: &WebIndex) -> anyhow::Result<u64> {
    let backlog = index.database().backlog().await?;
    Ok(backlog.iter().map(|entry| entry.cells as u64).sum())
}

/// What this process has done, for JSON.
pub(crate) fn counters(index: &WebIndex) -> serde_json::Value {
    let entries = index.database().stats().entries();
    entries
        .into_iter()
        .map(|(name, count)| (name.to_owned(), serde_json::Value::from(count)))
        .collect()
}
