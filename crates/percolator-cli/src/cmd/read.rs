//! `get` and `scan`: read rows at a timestamp, by default at the latest that was issued. Neither
//! command requests a new timestamp from the oracle.

use clap::Args;
use percolator::{Percolator, RowKey, RowRange, ScannedRow, Snapshot};
use serde_json::{Value, json};
use std::ops::Bound;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::store::TableArgs;

/// Print the cells of a row, as lines of column and value.
///
/// If one column is named, the command prints the value alone, and a line end. On a terminal,
/// bytes that are not printable are escaped. For exact bytes use --json.
///
/// The exit status is 1 if none of the cells exists.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator get Bob bal --data D
  percolator get Bob --at 7 --json --data D")]
pub(crate) struct Get {
    /// The row.
    row: String,
    /// The columns; by default all columns of the row.
    #[arg(value_name = "COL")]
    columns: Vec<String>,
    /// Read the data as it was at this timestamp. Versions stay readable for ten minutes after they
    /// were overwritten or deleted.
    #[arg(long, value_name = "TS")]
    at: Option<u64>,
    #[command(flatten)]
    table: TableArgs,
}

impl Get {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let row = keys::row(&self.row)?;
        let columns = columns(&self.columns)?;
        let (db, table) = self.table.open_existing().await?;
        let snapshot = snapshot(&db, self.at).await?;
        let scan = snapshot.scan(&table).range(RowRange::row(&row)).columns(&columns);
        let Some(found) = scan.collect().await?.pop() else {
            let what = match self.columns.as_slice() {
                [] => format!("no row {row}"),
                names => format!("row {row} has no {}", names.join(", ")),
            };
            let help = "`percolator scan` lists rows; `percolator cell ROW COL --history` shows \
                        what a cell held before";
            return Err(Failure::no(format!("{what} at timestamp {}", snapshot.timestamp()), help));
        };
        if out.json {
            let mut value = row_json(&found);
            value["timestamp"] = snapshot.timestamp().as_u64().into();
            out.json(&value)?;
        } else if let ([_], [(_, value)]) = (self.columns.as_slice(), found.cells.as_slice()) {
            if out.is_terminal() { out.line(&keys::text(value))? } else { out.bytes(value)? }
        } else {
            for (column, value) in &found.cells {
                out.line(&format!("{column}\t{}", keys::text(value)))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Print the cells of many rows: lines of row, column and value.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator scan --prefix user/ --limit 10 --data D
  percolator scan --start Ann --end Joe -c bal --json --data D")]
pub(crate) struct Scan {
    /// Print only rows that begin with this text.
    #[arg(long, conflicts_with_all = ["start", "end"])]
    prefix: Option<String>,
    /// The first row.
    #[arg(long, value_name = "ROW")]
    start: Option<String>,
    /// The first row that is not printed.
    #[arg(long, value_name = "ROW")]
    end: Option<String>,
    /// Print this column only; may be repeated.
    #[arg(short, long = "column", value_name = "COL")]
    columns: Vec<String>,
    /// Print at most this many rows.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Read the data as it was at this timestamp. Versions stay readable for ten minutes after they
    /// were overwritten or deleted.
    #[arg(long, value_name = "TS")]
    at: Option<u64>,
    #[command(flatten)]
    table: TableArgs,
}

impl Scan {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let range = self.range()?;
        let columns = columns(&self.columns)?;
        let (db, table) = self.table.open_existing().await?;
        let snapshot = snapshot(&db, self.at).await?;
        let scan = snapshot.scan(&table).range(range).columns(&columns);
        let mut scan = scan.limit(self.limit.unwrap_or(usize::MAX));
        let mut array = out.json_array();
        while let Some(found) = scan.next().await? {
            if out.json {
                array.push(&row_json(&found))?;
                continue;
            }
            for (column, value) in &found.cells {
                out.line(&format!("{}\t{column}\t{}", found.row, keys::text(value)))?;
            }
        }
        if out.json {
            array.finish()?;
        }
        Ok(Exit::Done)
    }

    fn range(&self) -> anyhow::Result<RowRange> {
        if let Some(prefix) = &self.prefix {
            return Ok(RowRange::prefix(keys::bytes(prefix)?));
        }
        let bound = |row: &Option<String>| row.as_deref().map(keys::row).transpose();
        Ok(RowRange {
            start: bound(&self.start)?.map_or(Bound::Unbounded, Bound::Included),
            end: bound(&self.end)?.map_or(Bound::Unbounded, Bound::Excluded),
        })
    }
}

fn columns(names: &[String]) -> anyhow::Result<Vec<percolator::Column>> {
    names.iter().map(|name| keys::column(name)).collect()
}

async fn snapshot(db: &Percolator, at: Option<u64>) -> anyhow::Result<Snapshot> {
    Ok(match at {
        Some(at) => db.snapshot_at(keys::timestamp(at)?).await?,
        None => db.snapshot().await?,
    })
}

/// Returns a row in JSON.
pub(super) fn row_json(found: &ScannedRow) -> Value {
    let cell = |(column, value): &(percolator::Column, percolator::Bytes)| json!({ "column": keys::json(column.as_bytes()), "value": keys::json(value) });
    let cells: Vec<Value> = found.cells.iter().map(cell).collect();
    json!({ "row": keys::json(RowKey::as_bytes(&found.row)), "cells": cells })
}
