//! `cell`: everything Percolator keeps of a cell, as the table of the paper's Figure 4.

use clap::Args;
use percolator::admin::{CellName, LockView, Moment};
use serde_json::{Value, json};

use crate::clock;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::output::Column;
use crate::store::TableArgs;

/// How many timestamps are shown without --history.
const NEWEST: usize = 4;

/// Print what lies beneath a cell: data, locks and write records at each timestamp, newest first.
///
/// Nothing is resolved or changed. Exit status 1 when the cell was never written.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator cell Bob bal --history --data D
   ts │ bal:data │ bal:lock │ bal:write
  ────┼──────────┼──────────┼───────────
    8 │          │          │ data @ 7
    7 │ $3       │          │
    6 │          │          │ data @ 5
    5 │ $10      │          │")]
pub(crate) struct Cell {
    /// The row.
    row: String,
    /// The column.
    column: String,
    /// Every timestamp, not the newest few alone.
    #[arg(long)]
    history: bool,
    #[command(flatten)]
    table: TableArgs,
}

impl Cell {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let (row, column) = (keys::row(&self.row)?, keys::column(&self.column)?);
        let (db, table) = self.table.open_existing().await?;
        let mut moments = db.cell_history(&table, &row, &column).await?;
        if moments.is_empty() {
            let what = format!("{}/{row}/{column} was never written", table.name());
            return Err(Failure::no(what, "`percolator scan` lists the cells that are there"));
        }
        let older = if self.history { 0 } else { moments.len().saturating_sub(NEWEST) };
        moments.truncate(moments.len() - older);
        let out = context.out;
        if out.json {
            let mut array = out.json_array();
            for moment in &moments {
                array.push(&moment_json(moment))?;
            }
            array.finish()?;
            return Ok(Exit::Done);
        }
        print(context, table.name(), &column, &moments)?;
        if older > 0 {
            out.note(&format!("{older} older timestamps: --history shows them"));
        }
        Ok(Exit::Done)
    }
}

fn print(
    context: &Context,
    table: &str,
    column: &percolator::Column,
    moments: &[Moment],
) -> anyhow::Result<()> {
    let mut header = vec!["ts".to_owned()];
    header.extend(["data", "lock", "write"].map(|kind| format!("{column}:{kind}")));
    let rollbacks = moments.iter().any(|moment| moment.rolled_back);
    let notifications = moments.iter().any(|moment| moment.notify);
    header.extend(rollbacks.then(|| format!("{column}:rollback")));
    header.extend(notifications.then(|| format!("{column}:notify")));
    let rows = moments.iter().map(|moment| {
        let mut row = vec![
            moment.timestamp.to_string(),
            moment.data.as_ref().map(keys::text).unwrap_or_default(),
            moment.lock.as_ref().map(|lock| lock_text(table, lock)).unwrap_or_default(),
            moment.write.as_ref().map_or_else(String::new, |write| {
                let what = if write.delete { "delete" } else { "data" };
                format!("{what} @ {}", write.start_ts)
            }),
        ];
        let mark = |is: bool, text: &str| if is { text.to_owned() } else { String::new() };
        row.extend(rollbacks.then(|| mark(moment.rolled_back, "rolled back")));
        row.extend(notifications.then(|| mark(moment.notify, "dirty")));
        row
    });
    let mut header = header.into_iter();
    let columns: Vec<Column> =
        header.next().map(Column::right).into_iter().chain(header.map(Column::left)).collect();
    context.out.table(&columns, rows.collect())?;
    Ok(())
}

/// A lock in the paper's words: `primary`, or where the primary is.
fn lock_text(table: &str, lock: &LockView) -> String {
    match &lock.primary {
        None => "primary".to_owned(),
        Some(at) if at.table == table => format!("primary @ {}.{}", at.row, at.column),
        Some(at) => format!("primary @ {}/{}.{}", at.table, at.row, at.column),
    }
}

fn moment_json(moment: &Moment) -> Value {
    let write = moment.write.as_ref();
    json!({
        "timestamp": moment.timestamp.as_u64(),
        "data": moment.data.as_ref().map(|data| keys::json(data)),
        "lock": moment.lock.as_ref().map(lock_json),
        "write": write.map(|w| json!({ "start_ts": w.start_ts.as_u64(), "delete": w.delete })),
        "rolled_back": moment.rolled_back,
        "notify": moment.notify,
    })
}

/// A lock in JSON.
pub(super) fn lock_json(lock: &LockView) -> Value {
    json!({
        "cell": name_json(&lock.cell),
        "start_ts": lock.start_ts.as_u64(),
        "primary": name_json(lock.primary.as_ref().unwrap_or(&lock.cell)),
        "is_primary": lock.primary.is_none(),
        "delete": lock.delete,
        "owner": lock.owner.to_string(),
        "time": clock::rfc3339(lock.wall_ms),
    })
}

/// A cell's name in JSON.
fn name_json(name: &CellName) -> Value {
    json!({
        "table": name.table,
        "row": keys::json(name.row.as_bytes()),
        "column": keys::json(name.column.as_bytes()),
    })
}
