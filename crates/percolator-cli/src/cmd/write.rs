//! `set` and `delete`: write in one transaction, which runs again while it conflicts.

use clap::Args;
use percolator::{Attempt, Receipt, RowRange, Timestamp};
use serde_json::json;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::store::TableArgs;

/// Write a cell, in a transaction of its own.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator set Bob bal '$10' --data D
  percolator set 'user\\x00Bob' doc:body b64:AP8= --table docs --data D")]
pub(crate) struct Set {
    /// The row.
    row: String,
    /// The column.
    #[arg(value_name = "COL")]
    column: String,
    /// The value.
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    table: TableArgs,
}

impl Set {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let (row, column) = (keys::row(&self.row)?, keys::column(&self.column)?);
        let value = keys::bytes(&self.value)?;
        let (db, table) = self.table.open().await?;
        let write = async |mut tx: Attempt| {
            tx.set(&table, &row, &column, value.clone())?;
            Ok((tx.start_ts(), 1))
        };
        let written = db.transact_receipt(write).await?;
        report(context, &written, "written")?;
        Ok(Exit::Done)
    }
}

/// Delete a cell, or all cells of a row, in one transaction.
///
/// The exit status is 1 if there is nothing to delete.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator delete Bob bal --data D
  percolator delete Bob --data D")]
pub(crate) struct Delete {
    /// The row.
    row: String,
    /// The column; by default all columns of the row.
    #[arg(value_name = "COL")]
    column: Option<String>,
    #[command(flatten)]
    table: TableArgs,
}

impl Delete {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let row = keys::row(&self.row)?;
        let column = self.column.as_deref().map(keys::column).transpose()?;
        let (db, table) = self.table.open_existing().await?;
        let delete = async |mut tx: Attempt| {
            let scan = tx.scan(&table).range(RowRange::row(&row)).columns(&column);
            let found = scan.collect().await?;
            let mut cells = 0;
            for (column, _) in found.iter().flat_map(|row| &row.cells) {
                tx.delete(&table, &row, column)?;
                cells += 1;
            }
            Ok((tx.start_ts(), cells))
        };
        let deleted = db.transact_receipt(delete).await?;
        if deleted.value.1 == 0 {
            let what = match &column {
                Some(column) => format!("row {row} has no {column}"),
                None => format!("no row {row}"),
            };
            return Err(Failure::no(what, "`percolator scan` lists the rows of the table"));
        }
        report(context, &deleted, "deleted")?;
        Ok(Exit::Done)
    }
}

/// Reports a transaction: its start and commit timestamps, and how many cells it changed.
fn report(
    context: &Context,
    Receipt { value: (start_ts, cells), commit_ts }: &Receipt<(Timestamp, u64)>,
    done: &str,
) -> anyhow::Result<()> {
    if context.out.json {
        let (start_ts, commit_ts) = (start_ts.as_u64(), commit_ts.as_u64());
        context
            .out
            .json(&json!({ "start_ts": start_ts, "commit_ts": commit_ts, "cells": cells }))?;
        return Ok(());
    }
    let cells = if *cells == 1 { "1 cell".to_owned() } else { format!("{cells} cells") };
    context
        .out
        .note(&format!("{cells} {done} by transaction {start_ts}, committed at {commit_ts}"));
    Ok(())
}
