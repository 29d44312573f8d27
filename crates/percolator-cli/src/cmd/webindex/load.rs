//! `webindex load|remove`: changes the pages of an index.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use percolator::watch::Sampling;
use serde_json::json;
use webindex::address::Base;
use webindex::{LoadOptions, LoadReport, Mirror, Progress, WebIndex};

use crate::clock;
use crate::cmd::webindex::Index;
use crate::cmd::webindex::work::{counters, drive, left, wait};
use crate::console::{ConsoleArgs, Shown};
use crate::context::Context;
use crate::exit::{Advice, Exit, Failure};
use crate::output::{Out, grouped};
use crate::store::StoreArgs;

/// How many skipped files stderr names.
const NAMED_MAX: usize = 10;

/// The next step after a load that did not load all pages.
const AGAIN: &str = "run the command again: it skips what is loaded, and goes on from there";
/// The next step after a load whose pages wait for observers.
const WAIT: &str = "nothing has to be loaded again: `percolator wait` waits for the observers, and \
                    `percolator webindex stats` names the writer of the search index";
/// How long a load whose time is up may take to count the changes that wait.
const COUNT_MAX: Duration = Duration::from_secs(2);

/// Load a directory of HTML, one transaction for each page.
///
/// Files whose names end in .html, .htm or .xhtml are pages, and symlinks are further URLs. A file
/// that is empty, too large, not HTML or asks not to be indexed is counted and named. A page that
/// was stored from such a file is removed. A page whose file cannot be read stays as it is. The
/// load then goes on. Loading again continues an interrupted load, and skips pages that have not
/// changed.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex load site/ --base https://example.org/ --data D
  percolator webindex load site/ --base https://example.org/ --mirror --data D")]
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
    /// After loading, remove the stored pages below the base URL whose files are gone. No page is
    /// removed, and the exit status is 1, if the directory was not read completely or holds no
    /// page. The same holds if more than a tenth of the stored pages would go.
    #[arg(long)]
    mirror: bool,
    /// With --mirror: remove the pages even if they are more than a tenth.
    #[arg(long, requires = "mirror")]
    yes: bool,
    /// Return exit status 1 if anything was skipped.
    #[arg(long)]
    strict: bool,
    /// Stop after this time, with exit status 1. All that is loaded stays. Running the command
    /// again continues the load, and the wait for the observers.
    #[arg(long, value_name = "DURATION", value_parser = clock::duration)]
    timeout: Option<Duration>,
    /// Leave a trace of the load and of all that it sets off, for `percolator why`: off, all, or
    /// one cascade in N.
    #[arg(long, value_name = "off|1/N|all", default_value_t)]
    trace: Sampling,
    #[command(flatten)]
    console: ConsoleArgs,
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
        let recorder = self.console.recorder();
        let store = self.store.synced_at_end().in_role("loader").traced(self.trace);
        let store = self.console.watched(&store, recorder.as_ref());
        let (place, index) = (store.place()?, Arc::new(Index::open(&store).await?));
        let shown = Shown {
            db: index.database(),
            recorder: recorder.as_ref(),
            place: Some(&place),
            index: Some(&index),
            gauge: None,
        };
        let consoles = self.console.listen(context, shown).await?;
        let started = Instant::now();
        let loaded = self.load(context, &index, &base).await;
        let synced = index.database().sync().await;
        let (report, idle) = loaded?;
        synced?;
        let seconds = started.elapsed().as_secs_f64();
        warn_of(context.out, &report);
        if context.out.json {
            context.out.json(&json!({
                "found": report.found, "loaded": report.loaded, "unchanged": report.unchanged,
                "bytes": report.bytes, "retracted": report.retracted, "mirror": report.mirror,
                "unmatched": report.unmatched, "warnings": report.warnings,
                "skipped": report.skipped,
                "stopped": report.stopped, "idle": idle, "seconds": seconds,
                "counters": counters(&index),
            }))?
        } else {
            context.out.line(&load_table(&report, seconds))?
        }
        drop(consoles);
        index.stop().await;
        let refused = report.mirror.is_some_and(|mirror| mirror.refused.is_some());
        Ok(if refused || (report.warnings > 0 && self.strict) { Exit::No } else { Exit::Done })
    }

    /// Loads the pages, and waits for the observers. Returns also whether they have caught up.
    async fn load(
        &self,
        context: &Context,
        index: &WebIndex,
        base: &Base,
    ) -> anyhow::Result<(LoadReport, bool)> {
        let options = LoadOptions {
            exclude: self.exclude.clone(),
            limit: self.limit,
            pages_per_s: self.rate,
            mirror: self.mirror.then_some(if self.yes { Mirror::All } else { Mirror::ATenth }),
        };
        let progress = Progress::default();
        let end = self.timeout.and_then(|longest| tokio::time::Instant::now().checked_add(longest));
        let load = index.load(&self.dir, base, &options, &progress);
        let mut report = match until(end, drive(context, "loading", &progress, load)).await {
            Some(loaded) => loaded.map_err(|error| match progress.total() {
                // The directory could not be read.
                0 => error,
                _ => error.context(Advice::new(loaded_so_far(&progress), AGAIN)),
            })?,
            None => {
                let what = format!("{}: {}", self.late(), loaded_so_far(&progress));
                return Err(Failure::no(what, AGAIN));
            }
        };
        let idle = match until(end, wait(context, index)).await {
            Some(idle) => idle.map_err(|error| {
                let what =
                    format!("{}, but not handled by all observers", loaded_so_far(&progress));
                error.context(Advice::new(what, WAIT))
            })?,
            None => {
                let waiting =
                    match until(Some(tokio::time::Instant::now() + COUNT_MAX), left(index)).await {
                        Some(Ok(left)) => format!("{} changes wait for observers", grouped(left)),
                        _ => "changes wait for observers".to_owned(),
                    };
                let loaded = loaded_so_far(&progress);
                return Err(Failure::no(format!("{}: {loaded}, and {waiting}", self.late()), WAIT));
            }
        };
        if idle {
            index.name_refused(&mut report).await?;
        }
        Ok((report, idle))
    }

    fn late(&self) -> String {
        format!("the time of {} is up", clock::age(self.timeout.unwrap_or_default()))
    }
}

/// Awaits a future until a time, if there is one. Returns `None` if the time is up.
async fn until<T>(end: Option<tokio::time::Instant>, future: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => tokio::time::timeout_at(end, future).await.ok(),
        None => Some(future.await),
    }
}

fn loaded_so_far(progress: &Progress) -> String {
    let (done, total) = (grouped(progress.done() as u64), grouped(progress.total() as u64));
    format!("{done} of {total} pages are loaded")
}

/// Formats the outcome of a load.
fn load_table(report: &LoadReport, seconds: f64) -> String {
    let pages = |n: usize| grouped(n as u64);
    let removed = report.retracted + report.mirror.as_ref().map_or(0, |mirror| mirror.removed);
    let removed = match removed {
        0 => String::new(),
        n => format!("{} removed, ", pages(n)),
    };
    format!(
        "{} pages loaded ({:.1} MB), {} unchanged, {removed}{} skipped, in {seconds:.1} s",
        pages(report.loaded),
        report.bytes as f64 / 1e6,
        pages(report.unchanged),
        pages(report.warnings),
    )
}

/// Prints the files that a load has skipped, and requested work that it did not do.
pub(crate) fn warn_of(out: Out, report: &LoadReport) {
    for skipped in report.skipped.iter().take(NAMED_MAX) {
        // The reason contains the file name if the system gives it.
        if skipped.reason.contains(&skipped.path) {
            out.warn(&skipped.reason)
        } else {
            out.warn(&format!("{}: {}", skipped.path, skipped.reason))
        }
    }
    if report.warnings > NAMED_MAX {
        let more = grouped((report.warnings - NAMED_MAX) as u64);
        out.warn(&format!("and {more} more were skipped; --json names a thousand"));
    }
    for name in &report.unmatched {
        out.warn(&format!("--exclude {name}: nothing directly below the directory has that name"));
    }
    if report.found == 0 {
        out.warn(
            "no page was found: only files whose names end in .html, .htm or .xhtml are pages; \
             rename the files, or name another directory",
        );
    }
    if let Some(refused) = report.mirror.as_ref().and_then(|mirror| mirror.refused.as_ref()) {
        out.warn(&format!("--mirror removed nothing: {refused}"));
    }
}

/// Remove pages from the index. Links to them stay with the pages that contain the links.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex remove https://example.org/a.html --data D")]
pub(crate) struct Remove {
    /// The pages.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
}

impl Remove {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        // All pages are checked before the first one is removed.
        for url in &self.urls {
            webindex::address::canonicalize(url)?;
        }
        let index = Index::open_existing(&self.store.synced_at_end()).await?;
        let (mut removed, mut missing) = (Vec::new(), Vec::new());
        for url in &self.urls {
            if index.remove(url).await? { removed.push(url) } else { missing.push(url) }
        }
        let idle = wait(context, &index).await?;
        index.database().sync().await?;
        for url in &missing {
            context.out.warn(&format!("{url}: no such page is stored; write URLs in full"));
        }
        if context.out.json {
            context.out.json(&json!({ "removed": removed, "missing": missing, "idle": idle }))?
        } else {
            context.out.line(&format!("{} pages removed", grouped(removed.len() as u64)))?
        }
        index.stop().await;
        Ok(if missing.is_empty() { Exit::Done } else { Exit::No })
    }
}
