//! `gc run|status`: drops old versions, and shows how far that has come.

use std::time::Duration;

use clap::{Args, Subcommand};
use percolator::Timestamp;
use percolator::admin::{Age, GcCounts, GcReport, GcStatus, LastRound};
use serde_json::{Value, json};

use crate::clock;
use crate::cmd::cell;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::{Column, grouped};
use crate::program::Elsewhere;
use crate::store::StoreArgs;

/// Drop versions that were overwritten or deleted, or show the state of garbage collection.
///
/// Every command that opens a database collects garbage in the background, with a retention of ten
/// minutes, also if it only reads. `cell`, `why`, `locks` and `gc` do not. `serve table` and
/// `serve oracle` never do.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator gc run --retention 1h --data D")]
pub(crate) enum Gc {
    Run(Run),
    Status(Status),
}

impl Gc {
    /// Where the command runs if another process has its directory open.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        match self {
            Gc::Run(_) => Elsewhere::Writes,
            Gc::Status(_) => Elsewhere::Reads,
        }
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Gc::Run(run) => run.run(context).await,
            Gc::Status(status) => status.run(context).await,
        }
    }
}

/// Collect once, as fast as possible.
///
/// Afterwards nothing below the safe point can be read (`get --at`). The exit status is 1 if a lock
/// whose owner lives holds the safe point back.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator gc run --retention 0s --json --data D")]
pub(crate) struct Run {
    /// Keep what was readable this long ago, as far as the store has samples of that time.
    #[arg(long, value_name = "DURATION", value_parser = clock::duration, default_value = "10m")]
    retention: Duration,
    #[command(flatten)]
    store: StoreArgs,
}

/// Show the safe point, the clients that hold it back, and the last round.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator gc status --json --data D")]
pub(crate) struct Status {
    /// Show the safe point that a round with this retention would have now.
    #[arg(long, value_name = "DURATION", value_parser = clock::duration, default_value = "10m")]
    retention: Duration,
    #[command(flatten)]
    store: StoreArgs,
}

impl Run {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let db = self.store.open_existing_alone().await?;
        let report = db.gc(self.retention).await?;
        if out.json {
            out.json(&report_json(&report))?;
        } else {
            let mut rows = vec![vec!["safe point".to_owned(), report.safe_point.to_string()]];
            rows.extend(counts_rows(&report.counts));
            out.table(&[Column::left("round"), Column::right("")], rows)?;
        }
        let Some(lock) = &report.blocked_by else { return Ok(Exit::Done) };
        out.warn(&format!(
            "nothing was dropped: {} is locked by transaction {}, whose owner {} lives; \
             `percolator locks ls` shows it",
            lock.cell, lock.start_ts, lock.owner
        ));
        Ok(Exit::No)
    }
}

impl Status {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let db = self.store.open_existing_alone().await?;
        let status = db.gc_status(self.retention).await?;
        let ages = db.ages(&timestamps(&status)).await?;
        if out.json {
            out.json(&status_json(&status, &ages))?;
            return Ok(Exit::Done);
        }
        out.table(&status_header(), status_rows(&status, &ages))?;
        Ok(Exit::Done)
    }
}

/// Returns the timestamps of a status whose ages are shown: safe point, next safe point, then
/// each reader's.
fn timestamps(status: &GcStatus) -> Vec<Timestamp> {
    let readers = status.readers.iter().map(|reader| reader.oldest);
    [status.safe_point, status.next].into_iter().chain(readers).collect()
}

fn status_header() -> [Column; 3] {
    [Column::left("garbage collection"), Column::right("age"), Column::right("timestamp")]
}

/// Returns rows of name, age and timestamp. Counts and times stand in the last column.
fn status_rows(status: &GcStatus, ages: &[Age]) -> Vec<Vec<String>> {
    let row = |name: &str, age: String, last: String| vec![name.to_owned(), age, last];
    let held = status.readers.iter().map(|reader| format!("held open by {}", reader.client));
    let names = ["safe point", "safe point of a round now"].map(str::to_owned);
    let aged = timestamps(status).into_iter().zip(ages).zip(names.into_iter().chain(held));
    let aged = aged.map(|((ts, age), name)| {
        // Before the first round the safe point is zero, which has no age.
        let age = if ts == Timestamp::ZERO { String::new() } else { clock::age_of(*age) };
        row(&name, age, ts.to_string())
    });
    let mut rows: Vec<Vec<String>> = aged.collect();
    rows.insert(2, row("latest timestamp", String::new(), status.latest.to_string()));
    let Some(last) = &status.last else {
        rows.push(row("last round", String::new(), "none yet".to_owned()));
        return rows;
    };
    let ago = clock::now_ms().saturating_sub(last.wall_ms);
    let ago = clock::age(Duration::from_millis(ago));
    rows.push(row("last round", ago, clock::rfc3339(last.wall_ms)));
    if last.blocked {
        rows.push(row("  ended by a living owner's lock", String::new(), String::new()));
    }
    let counts = last.counts.entries().into_iter();
    rows.extend(counts.map(|(name, n)| row(&format!("  {name}"), String::new(), grouped(n))));
    rows
}

fn counts_rows(counts: &GcCounts) -> impl Iterator<Item = Vec<String>> {
    counts.entries().into_iter().map(|(name, count)| vec![format!("  {name}"), grouped(count)])
}

fn counts_json(counts: &GcCounts) -> Value {
    let entries = counts.entries().into_iter();
    entries.map(|(name, count)| (name.to_owned(), Value::from(count))).collect()
}

fn report_json(report: &GcReport) -> Value {
    json!({
        "safe_point": report.safe_point.as_u64(),
        "blocked_by": report.blocked_by.as_ref().map(cell::lock_json),
        "counts": counts_json(&report.counts),
    })
}

fn status_json(status: &GcStatus, ages: &[Age]) -> Value {
    let age = |index: usize| ages.get(index).map(|age| clock::age_json(*age));
    let readers = status.readers.iter().enumerate().map(|(index, reader)| {
        json!({
            "client": reader.client.to_string(),
            "oldest_ts": reader.oldest.as_u64(),
            "oldest_age": age(index + 2),
        })
    });
    let last = |last: &LastRound| {
        json!({
            "time": clock::rfc3339(last.wall_ms),
            "safe_point": last.safe_point.as_u64(),
            "collected": last.collected.as_u64(),
            "blocked": last.blocked,
            "counts": counts_json(&last.counts),
        })
    };
    json!({
        "safe_point": status.safe_point.as_u64(),
        "safe_point_age": age(0),
        "next_safe_point": status.next.as_u64(),
        "next_safe_point_age": age(1),
        "latest_ts": status.latest.as_u64(),
        "readers": readers.collect::<Value>(),
        "last_round": status.last.as_ref().map(last),
    })
}
