//! `backlog`: counts the notifications that wait for observers, with their age and the rate of
//! change.

use std::time::Duration;

use clap::Args;
use percolator::Percolator;
use percolator::admin::Age;
use percolator::observe::Backlog as Waiting;
use serde_json::{Value, json};

use crate::clock;
use crate::context::Context;
use crate::exit::Exit;
use crate::keys;
use crate::output::{Column, grouped};
use crate::store::StoreArgs;

/// Count the notifications that wait for observers, by column, with the age of the oldest.
///
/// Ages come from samples of timestamps. Every process that collects garbage takes samples, and
/// so does this command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator backlog --json --data D
  percolator backlog --rate 5s --config cluster.toml")]
pub(crate) struct Backlog {
    /// Count twice, this far apart, and show how fast each backlog grows or falls.
    #[arg(long, value_name = "DURATION", value_parser = clock::duration)]
    rate: Option<Duration>,
    #[command(flatten)]
    store: StoreArgs,
}

/// The backlog of one column.
struct Entry {
    waiting: Waiting,
    age: Age,
    /// How many cells the backlog grows by in a second; negative when it shrinks.
    per_s: Option<f64>,
}

impl Backlog {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let db = self.store.open_existing().await?;
        let entries = self.entries(&db).await?;
        if out.json {
            out.json(&entries.iter().map(entry_json).collect())?;
            return Ok(Exit::Done);
        }
        if entries.is_empty() {
            out.note("no notification waits for an observer");
            return Ok(Exit::Done);
        }
        let mut header = vec![
            Column::left("column"),
            Column::right("cells"),
            Column::right("oldest"),
            Column::right("oldest ts"),
        ];
        if self.rate.is_some() {
            header.extend([Column::right("cells/s"), Column::right("empty in")]);
        }
        header.push(Column::left("observers"));
        out.table(&header, entries.iter().map(row).collect())?;
        Ok(Exit::Done)
    }

    async fn entries(&self, db: &Percolator) -> anyhow::Result<Vec<Entry>> {
        let mut before = None;
        if let Some(rate) = self.rate {
            before = Some((db.backlog().await?, rate.as_secs_f64().max(0.001)));
            tokio::time::sleep(rate).await;
        }
        let backlog = db.backlog().await?;
        let oldest: Vec<_> = backlog.iter().map(|waiting| waiting.oldest).collect();
        let ages = db.ages(&oldest).await?;
        let per_s = |waiting: &Waiting| {
            let (before, seconds) = before.as_ref()?;
            let same = |b: &&Waiting| (&b.table, &b.column) == (&waiting.table, &waiting.column);
            let cells = before.iter().find(same).map_or(0, |before| before.cells);
            Some((waiting.cells as f64 - cells as f64) / seconds)
        };
        let entry = |(waiting, age)| Entry { per_s: per_s(&waiting), waiting, age };
        Ok(backlog.into_iter().zip(ages).map(entry).collect())
    }
}

impl Entry {
    /// Returns how long the backlog takes to empty at the measured rate; `None` if it does not
    /// shrink.
    fn left(&self) -> Option<Duration> {
        let falls = self.per_s.filter(|per_s| *per_s < 0.0)?;
        Duration::try_from_secs_f64(self.waiting.cells as f64 / -falls).ok()
    }
}

fn row(entry: &Entry) -> Vec<String> {
    let Entry { waiting, age, per_s } = entry;
    let mut row = vec![
        format!("{}/{}", waiting.table, waiting.column),
        grouped(waiting.cells as u64),
        clock::age_of(*age),
        waiting.oldest.to_string(),
    ];
    if let Some(per_s) = per_s {
        row.push(format!("{per_s:+.1}"));
        row.push(entry.left().map_or("never".to_owned(), clock::age));
    }
    let name = |name: &String| {
        if waiting.paused.contains(name) { format!("{name} (paused)") } else { name.clone() }
    };
    row.push(waiting.observers.iter().map(name).collect::<Vec<_>>().join(", "));
    row
}

fn entry_json(entry: &Entry) -> Value {
    let mut value = waiting_json(&entry.waiting);
    value["oldest_age"] = clock::age_json(entry.age);
    if let Some(per_s) = entry.per_s {
        value["per_s"] = per_s.into();
        value["left_s"] = entry.left().map(|left| left.as_secs_f64()).into();
    }
    value
}

/// Returns the backlog in JSON.
pub(super) fn backlog_json(backlog: &[Waiting]) -> Value {
    backlog.iter().map(waiting_json).collect()
}

fn waiting_json(waiting: &Waiting) -> Value {
    json!({
        "table": waiting.table,
        "column": keys::json(waiting.column.as_bytes()),
        "observers": waiting.observers,
        "paused": waiting.paused,
        "cells": waiting.cells,
        "oldest_ts": waiting.oldest.as_u64(),
    })
}
