//! `tables`: lists the tables of a store, with their sizes and their observed columns.

use clap::Args;
use percolator::admin::TableSize;
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::keys;
use crate::output::{Column, grouped};
use crate::store::StoreArgs;

/// List the tables: rows, bytes of their newest versions, and observed columns.
///
/// Rows are counted one by one, up to a bound. The figures of a larger table are lower bounds,
/// and say "at least".
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator tables --data D
  percolator tables --rows-max 1000000 --json --data D")]
pub(crate) struct Tables {
    /// Count at most this many rows of a table.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    rows_max: usize,
    #[command(flatten)]
    store: StoreArgs,
}

impl Tables {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let db = self.store.open_existing().await?;
        let observers = db.observers().await?;
        let (mut array, mut rows) = (out.json_array(), Vec::new());
        for name in db.table_names().await? {
            let size = db.table_size(&db.table(&name).await?, self.rows_max).await?;
            let mut observed: Vec<_> =
                observers.iter().filter(|o| o.table == name).map(|o| o.column.clone()).collect();
            observed.sort();
            observed.dedup();
            if out.json {
                let columns = observed.iter().map(|column| keys::json(column.as_bytes()));
                array.push(&json!({
                    "table": name,
                    "rows": size.rows,
                    "bytes": size.bytes,
                    "whole": size.whole,
                    "observed": columns.collect::<Vec<_>>(),
                }))?;
            } else {
                let columns: Vec<_> = observed.iter().map(ToString::to_string).collect();
                rows.push(vec![
                    name,
                    figure(&size, size.rows),
                    figure(&size, size.bytes),
                    columns.join(", "),
                ]);
            }
        }
        if out.json {
            array.finish()?;
        } else if rows.is_empty() {
            out.note("no tables");
        } else {
            let header = [
                Column::left("table"),
                Column::right("rows"),
                Column::right("bytes"),
                Column::left("observed"),
            ];
            out.table(&header, rows)?;
        }
        Ok(Exit::Done)
    }
}

fn figure(size: &TableSize, figure: u64) -> String {
    let least = if size.whole { "" } else { "at least " };
    format!("{least}{}", grouped(figure))
}
