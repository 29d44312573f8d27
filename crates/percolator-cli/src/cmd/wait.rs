//! `wait`: waits until observers have handled every change.

use std::time::Duration;

use clap::Args;
use percolator::Percolator;
use percolator::observe::{Backlog, IdleReport, Observed, SetAside};
use serde_json::json;

use crate::clock;
use crate::cmd::{backlog, failures, webindex};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::grouped;
use crate::owner::asked;
use crate::progress::Progress;
use crate::store::{Place, StoreArgs};

/// How often the command counts what is left.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How many set-aside notifications an error names.
const NAMED_MAX: usize = 10;

/// Wait until observers have nothing left to do.
///
/// The exit status is 1 if the time is up, or if a notification was set aside or waits for a paused
/// observer. Observers set a notification aside when they keep failing at it. The error gives the
/// name. Transactions that clients are still running are not waited for.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator wait --timeout 60s --data D")]
pub(crate) struct Wait {
    /// The longest time to wait.
    #[arg(long, value_name = "DURATION", value_parser = clock::duration, default_value = "60s")]
    timeout: Duration,
    #[command(flatten)]
    store: StoreArgs,
}

impl Wait {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let place = self.store.place()?;
        let db = self.store.open_existing_at(&place).await?;
        // A directory is open in one process at a time. So if this process runs no observers
        // there, none run.
        let index = if webindex::is_in(&db).await? {
            Some(webindex::Index::at(db.clone(), &place).await?)
        } else {
            None
        };
        // The owner of the directory may run observers unknown to this program.
        let elsewhere = matches!(place, Place::Cluster(_)) || asked::current().is_some();
        let handled = elsewhere || index.is_some() || !db.backlog().await?.iter().any(waits);
        let (report, waited) = if handled {
            match self.idle(context, &db).await? {
                Some(report) => (report, Some(self.timeout)),
                None => return Ok(Exit::Interrupted),
            }
        } else {
            // This process runs no observers, so no observer is missing, and waiting would be in
            // vain.
            let set_aside = db.set_aside().await?;
            let (missing, paused) = (Vec::new(), Vec::new());
            (IdleReport { idle: false, set_aside, missing, paused }, None)
        };
        let left = if report.idle { Vec::new() } else { db.backlog().await? };
        if context.out.json {
            context.out.json(&json!({
                "idle": report.idle,
                "backlog": backlog::backlog_json(&left),
                "set_aside": failures::set_aside_json(&report.set_aside),
                "paused": names(&report.paused),
            }))?;
        }
        if let Some(index) = index {
            index.stop().await;
        }
        verdict(&report, &left, waited)?;
        context.out.note("idle: nothing is left to do");
        Ok(Exit::Done)
    }

    /// Waits, and shows how much is left. Returns `None` after Ctrl-C.
    async fn idle(&self, context: &Context, db: &Percolator) -> anyhow::Result<Option<IdleReport>> {
        let count = async || Ok(format!("{} left", total(&db.backlog().await?)));
        let idle = Progress::new(context.out.quiet, None)
            .during(&context.interrupt, db.wait_idle(Some(self.timeout)), LOOK_EVERY, count)
            .await?;
        if idle.is_some() {
            return Ok(idle);
        }
        let left = db.backlog().await?;
        context.out.note(&format!("interrupted with {} left; nothing is lost", total(&left)));
        Ok(None)
    }
}

fn total(backlog: &[Backlog]) -> String {
    let cells: usize = backlog.iter().map(|entry| entry.cells).sum();
    format!("{} notifications", grouped(cells as u64))
}

/// Whether the backlog of a column waits for an observer that may run.
fn waits(backlog: &Backlog) -> bool {
    backlog.observers.is_empty() || backlog.paused.len() < backlog.observers.len()
}

/// Returns the names of observers, each once.
fn names(observers: &[Observed]) -> Vec<&str> {
    let mut names: Vec<&str> = observers.iter().map(|entry| entry.observer.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns an error unless everything was handled.
fn verdict(report: &IdleReport, left: &[Backlog], waited: Option<Duration>) -> anyhow::Result<()> {
    if !report.set_aside.is_empty() {
        let count = grouped(report.set_aside.len() as u64);
        return Err(Failure::no(
            format!("{count} notifications are set aside:{}", named(&report.set_aside)),
            "correct what the observers fail at, then run `percolator observers replay`",
        ));
    }
    if report.idle && !report.paused.is_empty() {
        let paused = names(&report.paused).join(", ");
        return Err(Failure::no(
            format!("changes wait for paused observers: {paused}"),
            format!("`percolator observers resume NAME` lets one run again: {paused}"),
        ));
    }
    if report.idle {
        return Ok(());
    }
    let columns: Vec<String> = left
        .iter()
        .map(|e| format!("{}/{} {}", e.table, e.column, grouped(e.cells as u64)))
        .collect();
    let what = format!("{} wait ({})", total(left), columns.join(", "));
    let mut names: Vec<&str> =
        left.iter().flat_map(|entry| &entry.observers).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    Err(match waited {
        Some(waited) => Failure::no(
            format!("{what} after {}", clock::age(waited)),
            "wait longer with --timeout, or look at `percolator backlog`",
        ),
        None => Failure::no(
            format!("{what}, and this command does not run their observers"),
            match names.as_slice() {
                [] => "no observer is registered for them".to_owned(),
                names => {
                    format!("run the program that contains the observers {}", names.join(", "))
                }
            },
        ),
    })
}

fn named(set_aside: &[SetAside]) -> String {
    let line = |entry: &SetAside| {
        let SetAside { table, row, column, observer, attempts, error, .. } = entry;
        format!("\n  {table}/{row}/{column}: {observer} failed {attempts} times: {error}")
    };
    let mut text: String = set_aside.iter().take(NAMED_MAX).map(line).collect();
    if let Some(more @ 1..) = set_aside.len().checked_sub(NAMED_MAX) {
        text.push_str(&format!("\n  and {} more", grouped(more as u64)));
    }
    text
}
