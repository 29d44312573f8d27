//! Defines the observers of scripts: a few kinds of runs, and a log of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator_core::{Client, Column, Error, Registration, Result, WorkerOptions};

use crate::world::{add, number, observer};

/// An observer that a script has introduced.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    pub(super) name: String,
    pub(super) column: Column,
    pub(super) weak: bool,
    pub(super) deed: Deed,
}

/// The column in which an observer records the value that it has read.
const SEEN: Column = Column::literal("seen");

/// The action of an observer's run.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    Nothing,
    /// Adds one to a number in the same row.
    Count(Column),
    /// Counts the number in the observed cell down to zero.
    CountDown,
    /// Fails until it is healed, then counts.
    Fail(Column),
    /// Records the value of another column of the row.
    Read(Column),
}

/// The state that the observers of a script share.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    pub(super) runs: Arc<Mutex<Vec<String>>>,
    pub(super) healed: Arc<Mutex<BTreeSet<String>>>,
}

impl Watch {
    fn registration(&self, log: &Log) -> Registration {
        let (watch, log) = (self.clone(), log.clone());
        let run = observer(move |tx, change| {
            let (watch, log) = (watch.clone(), log.clone());
            Box::pin(async move {
                let (table, row, column) = (&change.table, &change.row, &change.column);
                let run = format!("{} runs for {row}.{column} at {}", watch.name, tx.start_ts());
                log.runs.lock().unwrap().push(run);
                match &watch.deed {
                    Deed::Nothing => Ok(()),
                    Deed::Fail(_) if !log.healed.lock().unwrap().contains(&watch.name) => {
                        Err(Error::application("no luck"))
                    }
                    Deed::Count(counter) | Deed::Fail(counter) => {
                        add(tx, table, row.clone(), counter, 1).await
                    }
                    Deed::Read(source) => {
                        let value = tx.get(table, row.clone(), source).await?.unwrap_or_default();
                        tx.set(table, row.clone(), &SEEN, value)
                    }
                    Deed::CountDown => match number(tx.get(table, row.clone(), column).await?) {
                        0 => Ok(()),
                        n => tx.set(table, row.clone(), column, (n - 1).to_string()),
                    },
                }
            })
        });
        let (name, column) = (self.name.clone(), self.column.clone());
        if self.weak {
            Registration::weak(name, "t", &column, run)
        } else {
            Registration::strong(name, "t", &column, run)
        }
    }
}

fn options() -> WorkerOptions {
    // Row locks are not renewed, so that scripts can show what happens after one has run out.
    let run_max = Duration::ZERO;
    WorkerOptions { threads: 1, failures_max: 3, run_max, ..WorkerOptions::default() }
}

/// Registers an observer in the schema. The workers are stopped before they do anything.
pub(super) async fn register(client: &Client, watch: &Watch, log: &Log) -> Result<String> {
    client.observe(vec![watch.registration(log)], options()).await?.stop().await;
    Ok(String::new())
}

/// Runs a process's observers until nothing is dirty or the time is over. Returns what they
/// did.
pub(super) async fn work(
    client: Client,
    watches: Vec<Watch>,
    log: Log,
    longest: Duration,
) -> Result<String> {
    let registrations = watches.iter().map(|watch| watch.registration(&log)).collect();
    let before = client.stats();
    let workers = client.observe(registrations, options()).await?;
    let report = client.wait_idle(Some(longest)).await?;
    workers.stop().await;
    let mut lines = std::mem::take(&mut *log.runs.lock().unwrap());
    for ((name, before), (_, after)) in before.entries().iter().zip(client.stats().entries()) {
        let told = ["conflicts", "observer_failures", "notifications_stale", "rolled_forward"];
        if told.contains(name) && after > *before {
            lines.push(format!("{name}: {}", after - before));
        }
    }
    lines.extend(report.set_aside.iter().map(|aside| {
        let (row, column, attempts) = (&aside.row, &aside.column, aside.attempts);
        let (observer, error) = (&aside.observer, &aside.error);
        format!("set aside after {attempts} attempts of {observer}: {row}.{column}: {error}")
    }));
    lines.push(if report.idle { "idle" } else { "not idle" }.to_owned());
    Ok(lines.join("\n"))
}
