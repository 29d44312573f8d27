//! Implements `export`: writes the data of a store as lines of JSON, or as CSV (`csv.rs`).
//!
//! ```text
//!   {"percolator_export":1,"timestamp":812,"observers":[...]}
//!   {"table":"docs","row":"a","cells":[{"column":"doc:title","value":"A cod"}]}
//!   {"end":{"rows":1,"cells":1}}
//! ```
//!
//! A key or value that is not text is `{"b64": ...}`. The last line shows that nothing was cut
//! off.

use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use percolator::observe::{Observed, Strength};
use percolator::{RowRange, ScannedRow, Snapshot};
use serde_json::{Value, json};

use crate::cmd::csv;
use crate::cmd::transfer::{Format, POSITIONS, VERSION};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::output::{Out, grouped};
use crate::progress::Progress;
use crate::store::StoreArgs;

/// Write the data as lines of JSON or CSV, as it is at one timestamp.
///
/// A line of JSON is a row with its cells. Keys and values that are not text are written as
/// {"b64": ...}. A record of CSV is a cell; see docs/backup.md. Garbage collection keeps the data
/// at the command's timestamp for as long as it runs. `percolator import` reads these lines.
/// History is not exported: use `backup`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator export --data D > all.jsonl
  percolator export --table docs --format csv --data D > docs.csv
  percolator export --table docs --prefix a/ --at 812 --config percolator.toml | gzip > docs.gz")]
pub(crate) struct Export {
    /// Export this table only.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Export only rows whose keys begin with this text.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Export the data as it was at this timestamp. Versions stay readable for ten minutes after
    /// they were overwritten or deleted.
    #[arg(long, value_name = "TS")]
    at: Option<u64>,
    /// The format. An export in CSV has no observers.
    #[arg(long, value_enum, default_value = "jsonl", value_name = "FORMAT")]
    format: Format,
    #[command(flatten)]
    store: StoreArgs,
}

impl Export {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let range = match &self.prefix {
            Some(prefix) => RowRange::prefix(keys::bytes(prefix)?),
            None => RowRange::all(),
        };
        let db = self.store.open_existing().await?;
        let at = self.at.map(keys::timestamp).transpose()?;
        let snapshot = db.held_snapshot(at).await?;
        let mut tables = db.table_names().await?;
        tables.retain(|name| name != POSITIONS);
        if let Some(wanted) = &self.table {
            if !tables.contains(wanted) {
                let help =
                    format!("name one of the store's tables with --table: {}", tables.join(", "));
                return Err(Failure::no(format!("the store has no table {wanted:?}"), help));
            }
            tables.retain(|name| name == wanted);
        }
        let observers = db.observers().await?;
        let observers = observers.iter().filter(|o| tables.contains(&o.table)).map(observed_json);
        let lines = Lines { out, format: self.format };
        lines.begin(&snapshot, observers.collect())?;
        let progress = Progress::new(out.quiet, None);
        let (mut rows, mut cells) = (0, 0);
        for name in tables {
            let table = db.table(&name).await?;
            let mut scan = snapshot.scan(&table).range(range.clone());
            while let Some(row) = scan.next().await.with_context(|| format!("table {name}"))? {
                lines.row(&name, &row)?;
                rows += 1;
                cells += row.cells.len() as u64;
                progress.say(rows, &format!("{} rows are written", grouped(rows)));
            }
        }
        lines.end(rows, cells)?;
        Ok(Exit::Done)
    }
}

/// Writes the lines of an export.
struct Lines {
    out: Out,
    format: Format,
}

impl Lines {
    fn begin(&self, snapshot: &Snapshot, observers: Vec<Value>) -> anyhow::Result<()> {
        match self.format {
            Format::Jsonl => {
                let begin = json!({
                    "percolator_export": VERSION,
                    "timestamp": snapshot.timestamp().as_u64(),
                    "observers": observers,
                });
                self.out.line(&begin.to_string())?;
            }
            Format::Csv => self.out.bytes(&csv::header()?)?,
        }
        Ok(())
    }

    fn row(&self, table: &str, row: &ScannedRow) -> anyhow::Result<()> {
        match self.format {
            Format::Jsonl => self.out.line(&row_json(table, row).to_string())?,
            Format::Csv => {
                if let Some(records) = csv::row(table, row)? {
                    self.out.bytes(&records)?;
                }
            }
        }
        Ok(())
    }

    fn end(&self, rows: u64, cells: u64) -> anyhow::Result<()> {
        match self.format {
            Format::Jsonl => {
                let end = json!({ "end": { "rows": rows, "cells": cells } });
                self.out.line(&end.to_string())?;
            }
            Format::Csv => self.out.bytes(&csv::end(rows)?)?,
        }
        Ok(())
    }
}

fn row_json(table: &str, row: &ScannedRow) -> Value {
    let cells = row.cells.iter().map(|(column, value)| {
        json!({ "column": bytes_json(column.as_bytes()), "value": bytes_json(value) })
    });
    let cells: Vec<Value> = cells.collect();
    json!({ "table": table, "row": bytes_json(row.row.as_bytes()), "cells": cells })
}

/// Text as it is, anything else in base64.
fn bytes_json(bytes: &[u8]) -> Value {
    match str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "b64": STANDARD.encode(bytes) }),
    }
}

fn observed_json(observed: &Observed) -> Value {
    json!({
        "table": observed.table,
        "column": bytes_json(observed.column.as_bytes()),
        "observer": observed.observer,
        "strength": match observed.strength {
            Strength::Strong => "strong",
            Strength::Weak => "weak",
        },
    })
}
