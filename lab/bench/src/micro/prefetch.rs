//! Counts the reads that reading columns ahead saves. By the paper it "reduces the total number
//! of Bigtable reads by a factor of 10" (section 2.5). Documents of twenty columns are read
//! column by column, with and without it.
//!
//! Nothing is timed: the reads of the store are the same in every run.

use std::sync::Arc;

use bigtable::MemoryStore;
use clap::Args;
use percolator::{Column, Options, Percolator, Result};
use serde_json::json;

use crate::flags::{Common, within};
use crate::plot::{Axis, Plot, Role, Unit};
use crate::report::{Bar, Figure, Report};
use crate::statistics::Estimate;

/// Columns of a document. Without reading ahead, each takes a request of its own.
const COLUMNS: usize = 20;
/// In documents with long values, every column with a multiple of this number has one. A long
/// value does not fit into its record, and takes a second read.
const LONG_EVERY: usize = 5;
const SHORT_BYTES: usize = 10;
const LONG_BYTES: usize = 2000;
const FEWER: f64 = 10.0;

/// Reads of the store that documents of twenty columns take, one column after the other and with
/// columns read ahead (the paper's section 2.5).
///
/// The benchmark counts reads and measures no times, so every run gives the same figures. The exit
/// status is 3 if a value is not as it was written.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-bench micro prefetch --json")]
pub(crate) struct Prefetch {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The number of documents [default: 1000, quick: 100].
    #[arg(long, value_name = "N")]
    documents: Option<usize>,
}

/// Reads of the store for documents of one kind.
#[derive(Debug)]
struct Reads {
    values: &'static str,
    one_by_one: u64,
    ahead: u64,
}

impl Prefetch {
    pub(crate) async fn measure(&self) -> anyhow::Result<Report> {
        let documents = self.documents.unwrap_or(self.common.sized(100, 1_000));
        within("documents", documents, 1..=100_000)?;
        let (mut all, mut wrong) = (Vec::new(), 0);
        for (values, has_long) in [("short values", false), ("long values", true)] {
            let (one_by_one, others) = count(documents, has_long, false).await?;
            let (ahead, more) = count(documents, has_long, true).await?;
            wrong += others + more;
            all.push(Reads { values, one_by_one, ahead });
        }
        let figure = |Reads { values, one_by_one, ahead }: &Reads| {
            let ratio = Some(*one_by_one as f64 / *ahead as f64);
            let figure = Figure::alone(format!("one_by_one/ahead, {values}"), ratio);
            figure.bar(Bar::AtLeast(FEWER)).paper(FEWER)
        };
        let reads = |Reads { values, one_by_one, ahead }: &Reads| json!({ "values": values, "one_by_one": one_by_one, "ahead": ahead });
        let settings = json!({ "documents": documents, "columns": COLUMNS });
        let report = Report::new("prefetch", settings, all.iter().map(figure).collect());
        let report = report.with("reads", all.iter().map(reads).collect());
        let check = json!({ "values": 4 * documents * COLUMNS, "wrong": wrong });
        let why = format!("{wrong} values were not as they were written");
        let report = report.check_counts(check, wrong == 0, &why);
        Ok(report.plot("prefetch.svg", plot(documents, &all)))
    }
}

/// Reads all documents. Returns the reads of the store, and the number of wrong values.
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

fn plot(documents: usize, all: &[Reads]) -> String {
    let each = |of: fn(&Reads) -> u64| {
        all.iter().map(move |reads| Some(Estimate::alone(of(reads) as f64 / documents as f64)))
    };
    let subtitle = "One column after the other in a transaction. The paper tells of a tenth of the \
                    requests.";
    let (y, groups) = (Axis::linear("requests", Unit::Plain), all.iter().map(|reads| reads.values));
    Plot::groups(groups, y, "Requests to read a document of twenty columns", subtitle)
        .bars("one by one", Role::Peer(0), each(|reads| reads.one_by_one))
        .bars("with columns read ahead", Role::Ours(0), each(|reads| reads.ahead))
        .svg()
}
