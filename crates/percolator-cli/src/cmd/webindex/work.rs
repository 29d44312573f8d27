//! `webindex rank|recrawl|verify|generate`: runs jobs over a whole index, and generates a site to
//! load. [`drive`] and [`wait`] show the progress of a job and end it at Ctrl-C.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use webindex::{Progress, WebIndex};

use crate::cmd::webindex::Index;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::grouped;
use crate::store::StoreArgs;

/// How often progress is shown.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often the backlog is counted when the observers run in other processes.
const COUNT_EVERY: Duration = Duration::from_secs(1);

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
        let index = Index::open_existing(&self.store.synced_at_end()).await?;
        wait(context, &index).await?;
        let progress = Progress::default();
        let report = drive(context, "ranking", &progress, index.rank(&progress)).await?;
        let idle = wait(context, &index).await?;
        index.database().sync().await?;
        if context.out.json {
            context.out.json(&json!({ "rank": report, "idle": idle }))?
        } else {
            context.out.line(&format!(
                "{} pages ranked over {} links in {} rounds, {} changed",
                grouped(report.pages as u64),
                grouped(report.edges as u64),
                report.iterations,
                grouped(report.changed as u64),
            ))?
        }
        index.stop().await;
        Ok(Exit::Done)
    }
}

/// Simulate a recrawl, for tests: change, delete and load again some of the stored pages.
///
/// Of the chosen pages, 60 % get made-up changes, 20 % are deleted, and the others are loaded
/// again. Nothing is fetched. A load of the original files brings the pages back.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex recrawl --pct 1 --seed 7 --data D")]
pub(crate) struct Recrawl {
    /// The percentage of pages to change.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pct: f64,
    /// The seed of the choice of pages and changes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    store: StoreArgs,
}

impl Recrawl {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let index = Index::open_existing(&self.store.synced_at_end()).await?;
        wait(context, &index).await?;
        let progress = Progress::default();
        let recrawl = index.recrawl(self.pct, self.seed, &progress);
        let report = drive(context, "recrawling", &progress, recrawl).await?;
        let idle = wait(context, &index).await?;
        index.database().sync().await?;
        if context.out.json {
            context.out.json(&json!({ "recrawl": report, "idle": idle }))?
        } else {
            context.out.line(&format!(
                "of {} pages {} edited, {} deleted, {} loaded again",
                grouped(report.pages as u64),
                grouped(report.edited as u64),
                grouped(report.deleted as u64),
                grouped(report.unchanged as u64),
            ))?
        }
        index.stop().await;
        Ok(Exit::Done)
    }
}

/// Recompute everything in one batch from the stored documents and compare it with the index.
///
/// The command compares clusters, canonical pages, in-links with their anchors, and the search
/// index. It counts all differences, and names the first hundred. The exit status is 3 if there is
/// one.
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
        if context.out.json {
            context.out.json(&json!({ "verify_ok": report.is_ok(), "verify": report }))?
        } else {
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
        index.stop().await;
        Ok(if report.is_ok() { Exit::Done } else { Exit::Violated })
    }
}

/// Write a web site made from a seed: links, duplicates, redirects, declared canonicals, a symlink.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex generate site/ --pages 1000 --seed 7")]
pub(crate) struct Generate {
    /// The directory; it must be empty or not exist yet.
    dir: PathBuf,
    /// The number of articles.
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
            "{} pages under {} URLs, with {} different texts, in {}",
            grouped(self.pages as u64),
            grouped(made.urls() as u64),
            grouped(made.texts as u64),
            self.dir.display(),
        ));
        Ok(Exit::Done)
    }
}

/// Runs a job of the index and shows its progress. Ctrl-C stops the job after the piece that it
/// is working on.
pub async fn drive<T>(
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

/// Waits until the observers have caught up. Returns `false` after Ctrl-C, and prints how much is
/// left.
pub async fn wait(context: &Context, index: &WebIndex) -> anyhow::Result<bool> {
    let elsewhere = !index.runs_observers();
    let count = async || {
        let waiting =
            if elsewhere { left(index).await? } else { index.database().hints_waiting() as u64 };
        Ok(format!("observers at work, {} changes wait", grouped(waiting)))
    };
    let every = if elsewhere { COUNT_EVERY } else { LOOK_EVERY };
    let report = crate::progress::Progress::new(context.out.quiet, None)
        .during(&context.interrupt, index.wait(None), every, count)
        .await?;
    let Some(report) = report else {
        context.out.note(&format!(
            "interrupted with {} changes left for observers; nothing is lost, {}",
            grouped(left(index).await?),
            if elsewhere {
                "the workers continue with them"
            } else {
                "the next command on this store continues with them"
            }
        ));
        return Ok(false);
    };
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

/// Returns how many changes wait for observers, as the database counts them.
pub(super) async fn left(index: &WebIndex) -> anyhow::Result<u64> {
    let backlog = index.database().backlog().await?;
    Ok(backlog.iter().map(|entry| entry.cells as u64).sum())
}

/// Returns the counters of this process, in JSON.
pub(crate) fn counters(index: &WebIndex) -> serde_json::Value {
    let entries = index.database().stats().entries();
    entries
        .into_iter()
        .map(|(name, count)| (name.to_owned(), serde_json::Value::from(count)))
        .collect()
}
