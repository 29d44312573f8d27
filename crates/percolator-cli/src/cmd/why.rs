//! `why`: the transactions that led to a cell's value, and those that it has set off.

use std::time::Duration;

use clap::Args;
use percolator::admin::{CellName, TraceRecord, Why as Answer, WhyLine};
use percolator::{Error, Timestamp};

use crate::clock;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::output::{Column, Out, printable};
use crate::store::TableArgs;

/// The most characters of a cell's name in the table.
const CELL_CHARS_MAX: usize = 60;

/// Explain a cell's value: the changes that led to it, and the changes that it caused.
///
/// The answer comes from the trace, which `demo`, `webindex load --trace` and `worker --trace`
/// leave in the store for a day. For a transaction that is not in the trace, the answer is "not
/// recorded".
///
/// The exit status is 1 if the cell was not written, or not recorded at that timestamp.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator webindex load site/ --base https://a.example/ --trace all --data D
  percolator why https://a.example/index.html doc:content --table documents --data D")]
pub(crate) struct Why {
    /// The row.
    row: String,
    /// The column.
    column: String,
    /// Explain the value that a reader at this timestamp gets; by default a reader at the latest
    /// timestamp.
    #[arg(long, value_name = "TS")]
    at: Option<u64>,
    #[command(flatten)]
    table: TableArgs,
}

impl Why {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let (row, column) = (keys::row(&self.row)?, keys::column(&self.column)?);
        let at = self.at.map(keys::timestamp).transpose()?;
        let (db, table) = self.table.open_existing_alone().await?;
        let why = match db.why(&table, row.clone(), &column, at).await {
            Err(Error::TooOld { asked, floor }) => {
                let what =
                    format!("not recorded: timestamp {asked} lies below the safe point {floor}");
                return Err(Failure::no(what, "give a later timestamp with --at, or none"));
            }
            why => why?,
        };
        let Some(why) = why else {
            let name = CellName { table: table.name().to_owned(), row, column };
            let what = format!("{name} was not written");
            return Err(Failure::no(what, "`percolator scan` lists the cells of the table"));
        };
        let out = context.out;
        if out.json {
            out.json(&percolator_console::why_json(&why))?;
        } else {
            print(out, &why)?;
        }
        Ok(Exit::Done)
    }
}

fn print(out: Out, why: &Answer) -> anyhow::Result<()> {
    let verb = if why.write.deleted { "deleted" } else { "written" };
    let (start_ts, commit_ts) = (why.write.start_ts, why.write.commit_ts);
    let cell = printable(&why.cell.to_string());
    out.line(&format!("{cell} was {verb} at {commit_ts} by transaction {start_ts}.\n"))?;
    let header = [
        Column::right("at"),
        Column::right("took"),
        Column::left("transaction"),
        Column::right("start"),
        Column::right("commit"),
        Column::left("because of"),
    ];
    let first = why.nodes.iter().filter_map(|node| Some(node.record.as_ref()?.wall_ms)).min();
    out.table(&header, why.lines().iter().map(|line| row(why, line, first)).collect())?;
    let unknown = why.nodes.iter().filter(|node| node.record.is_none()).count();
    if unknown > 0 {
        out.note(
            "not recorded: the transaction was not traced, or its trace has expired; `--trace all` \
             leaves traces",
        );
    }
    if why.cut {
        out.note("the trace has more transactions than are shown");
    }
    Ok(())
}

fn row(why: &Answer, line: &WhyLine<'_>, first: Option<u64>) -> Vec<String> {
    let WhyLine { node, indent, because, .. } = line;
    let record = node.record.as_ref();
    let at = record.zip(first).map(|(record, first)| {
        let since = Duration::from_millis(record.wall_ms.saturating_sub(first));
        format!("+{}", clock::age(since))
    });
    let took = record.map(|record| took(record.took));
    let wrote_nothing = record.is_some_and(|record| record.start_ts == record.commit_ts);
    let mark = if node.ts == why.write.commit_ts { "* " } else { "" };
    let text = |ts: Timestamp| ts.to_string();
    vec![
        at.unwrap_or_default(),
        took.unwrap_or_default(),
        format!("{}{mark}{}", "  ".repeat(*indent), name(record)),
        record.map(|record| text(record.start_ts)).unwrap_or_default(),
        if wrote_nothing { String::new() } else { text(node.ts) },
        because.map(|cell| changes(cell, record)).unwrap_or_default(),
    ]
}

/// How long a transaction took.
fn took(took: Duration) -> String {
    if took < Duration::from_millis(10) {
        format!("{:.1} ms", took.as_secs_f64() * 1e3)
    } else {
        clock::age(took)
    }
}

/// The transaction's name, or that nothing is known of it.
fn name(record: Option<&TraceRecord>) -> String {
    match record {
        None => "not recorded".to_owned(),
        Some(TraceRecord { name: Some(name), .. }) => printable(name),
        Some(_) => "unnamed".to_owned(),
    }
}

/// The change that set a transaction off, and how many others it handled.
fn changes(cell: &CellName, record: Option<&TraceRecord>) -> String {
    let name = printable(&cell.to_string());
    let mut chars = name.chars();
    let mut shown: String = chars.by_ref().take(CELL_CHARS_MAX).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    match record.map_or(0, |record| record.causes_total) {
        0 | 1 => shown,
        n => format!("{shown} and {} more", n - 1),
    }
}
