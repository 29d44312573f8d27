//! What reading columns ahead saves (section 2.5 of the paper: "reduces the total number of
//! Bigtable reads by a factor of 10"): documents of twenty columns, read column by column, with and
//! without it.
//!
//! Nothing is timed. The reads of the store are counted, which are the same in every run.

use bigtable::MemoryStore;
use percolator::{Column, Options, Percolator, Result};
use percolator_cli::output::{Out, grouped};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::plot::{self, Axis, BarSeries, Bars, Role, Unit};
use crate::report::{Bar, Figure, print_figures};
use crate::statistics::Estimate;
use crate::system::{Load, machine};

/// A document's columns, each read by a request of its own if nothing is read ahead.
const COLUMNS: usize = 20;
/// Every so many columns of the documents with long values has one that does not fit into its
/// record, and takes a second read.
const LONG_EVERY: usize = 5;
const SHORT_BYTES: usize = 10;
const LONG_BYTES: usize = 300;
/// The paper's factor.
const FEWER: f64 = 10.0;

/// Reads of the store for documents of one kind.
#[derive(Debug)]
struct Reads {
    values: &'static str,
    one_by_one: u64,
    ahead: u64,
}

/// What was counted.
#[derive(Debug)]
pub(crate) struct Outcome {
    documents: usize,
    reads: Vec<Reads>,
    /// Values that were not as they were written.
    pub(crate) wrong: u64,
    load: [Load; 2],
}

/// Counts.
pub(crate) async fn run(documents: usize) -> Result<Outcome> {
    let (before, mut reads, mut wrong) = (Load::now(), Vec::new(), 0);
    for (values, has_long) in [("short values", false), ("long values", true)] {
        let mut counted = [0, 0];
        for (reads, read_ahead) in counted.iter_mut().zip([false, true]) {
            let (count, others) = count(documents, has_long, read_ahead).await?;
            *reads = count;
            wrong += others;
        }
        let [one_by_one, ahead] = counted;
        reads.push(Reads { values, one_by_one, ahead });
    }
    Ok(Outcome { documents, reads, wrong, load: [before, Load::now()] })
}

/// The reads of the store that reading all documents takes, and how many values are wrong.
async fn count(documents: usize, has_long: bool, read_ahead: bool) -> Result<(u64, u64)> {
    let options = Options { read_ahead, ..Options::default() };
    let db = Percolator::over(Arc::new(MemoryStore::new()), options).await?;
    let table = db.table("documents").await?;
    let column = |n: usize| Column::new(format!("f:{n:02}"));
    let columns: Vec<Column> = (0..COLUMNS).map(column).collect::<Result<_, _>>()?;
    let value = |document: usize, n: usize| {
        let is_long = has_long && n.is_multiple_of(LONG_EVERY);
        let length = if is_long { LONG_BYTES } else { SHORT_BYTES };
        vec![(document + n) as u8; length]
    };
    for document in 0..documents {
        let mut tx = db.begin().await?;
        for (n, column) in columns.iter().enumerate() {
            tx.set(&table, document.to_string(), column, value(document, n))?;
        }
        tx.commit().await?;
    }
    let (before, mut wrong) = (db.stats().reads, 0);
    for document in 0..documents {
        let tx = db.begin().await?;
        for (n, column) in columns.iter().enumerate() {
            let found = tx.get(&table, document.to_string(), column).await?;
            wrong += u64::from(found.as_deref() != Some(&value(document, n)[..]));
        }
    }
    Ok((db.stats().reads - before, wrong))
}

fn figures(outcome: &Outcome) -> Vec<Figure> {
    let figure = |reads: &Reads| {
        let ratio = reads.one_by_one as f64 / reads.ahead as f64;
        let estimate = Estimate { median: ratio, low: ratio, high: ratio };
        Figure::new(format!("one_by_one / ahead, {}", reads.values), Some(estimate))
            .bar(Bar::AtLeast(FEWER))
            .paper(FEWER)
    };
    outcome.reads.iter().map(figure).collect()
}

/// The figures in JSON.
pub(crate) fn json(outcome: &Outcome) -> Value {
    let reads = |reads: &Reads| json!({ "values": reads.values, "one_by_one": reads.one_by_one, "ahead": reads.ahead });
    json!({
        "benchmark": "prefetch",
        "version": env!("CARGO_PKG_VERSION"),
        "optimised": !cfg!(debug_assertions),
        "settings": { "documents": outcome.documents, "columns": COLUMNS },
        "machine": machine(outcome.load),
        "reads": outcome.reads.iter().map(reads).collect::<Vec<_>>(),
        "figures": figures(outcome).iter().map(Figure::json).collect::<Vec<_>>(),
        "check": { "values": 4 * outcome.documents * COLUMNS, "wrong": outcome.wrong },
        "check_ok": outcome.wrong == 0,
    })
}

/// Requests for all columns of a document.
pub(crate) fn plot(outcome: &Outcome) -> String {
    let each = |of: fn(&Reads) -> u64| {
        let bar = |reads: &Reads| Some(plot::Bar::of(of(reads) as f64 / outcome.documents as f64));
        outcome.reads.iter().map(bar).collect()
    };
    Bars {
        title: "Requests to read a document of twenty columns".into(),
        subtitle: "One column after the other in a transaction. The paper tells of a tenth of the requests."
            .into(),
        y: Axis::linear("requests", Unit::Plain),
        groups: outcome.reads.iter().map(|reads| reads.values.to_owned()).collect(),
        series: vec![
            BarSeries {
                name: "one by one".into(),
                role: Role::Peer(0),
                values: each(|reads| reads.one_by_one),
            },
            BarSeries {
                name: "with columns read ahead".into(),
                role: Role::Ours(0),
                values: each(|reads| reads.ahead),
            },
        ],
        references: Vec::new(),
    }
    .svg()
}

/// Prints the figures.
pub(crate) fn print(out: Out, outcome: &Outcome) -> std::io::Result<()> {
    let documents = grouped(outcome.documents as u64);
    out.line(&format!("{documents} documents of {COLUMNS} columns, each read in a transaction\n"))?;
    for Reads { values, one_by_one, ahead } in &outcome.reads {
        let (one_by_one, ahead) = (grouped(*one_by_one), grouped(*ahead));
        out.line(&format!(
            "{values}: {one_by_one} reads of the store; {ahead} with columns read ahead"
        ))?;
    }
    out.line("")?;
    print_figures(out, &figures(outcome))?;
    out.line(&format!("\nchecked: {} values wrong", outcome.wrong))
}
