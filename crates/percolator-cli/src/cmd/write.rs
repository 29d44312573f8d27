//! `set` and `delete`: one transaction, run again while it conflicts.

use clap::Args;
use percolator::{Attempt, RowRange};
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
            Ok(tx.start_ts())
        };
        let start_ts = db.transact(write).await?;
        if context.out.json {
            context.out.json(&json!({ "start_ts": start_ts.as_u64(), "cells": 1 }))?
        } else {
            context.out.note(&format!("written by transaction {start_ts}"))
        }
        Ok(Exit::Done)
    }
}

/// Delete a cell, or all cells of a row, in one transaction.
///
/// Exit status 1 when there is nothing to delete.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator delete Bob bal --data D
  percolator delete Bob --data D")]
pub(crate) struct Delete {
    /// The row.
    row: String,
    /// The column; all of them when none is named.
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
            let scan = tx.scan(&table).range(RowRange::row(&row)).columns(column.clone());
            let found = scan.collect().await?;
            let mut cells = 0;
            for (column, _) in found.iter().flat_map(|row| &row.cells) {
                tx.delete(&table, &row, column)?;
                cells += 1;
            }
            Ok((tx.start_ts(), cells))
        };
        let (start_ts, cells) = db.transact(delete).await?;
        if cells == 0 {
            let what = match &column {
                Some(column) => format!("row {row} has no {column}"),
                None => format!("no row {row}"),
            };
            return Err(Failure::no(what, "`percolator scan` lists what is there"));
        }
        if context.out.json {
            context.out.json(&json!({ "start_ts": start_ts.as_u64(), "cells": cells }))?
        } else {
            context.out.note(&format!("{cells} deleted by transaction {start_ts}"))
        }
        Ok(Exit::Done)
    }
}
