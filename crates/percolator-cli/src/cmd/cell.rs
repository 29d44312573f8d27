//! `cell`: prints every record that Percolator keeps of a cell, as in the paper's Figure 4, and
//! explains them.

use clap::Args;
use percolator::admin::{
    CellName, CellState, Explained, LockView, Moment, ReadOutcome, ReaderView,
};
use serde_json::{Value, json};

use crate::clock;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::output::Column;
use crate::store::TableArgs;

/// How many timestamps are shown without --history.
const NEWEST: usize = 4;

/// Print the records of a cell: data, locks and write records at each timestamp, newest first.
///
/// With --explain, the command also explains each record and the steps of a reader.
///
/// The command resolves and changes nothing. The exit status is 1 if the cell was never written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator cell Bob bal --explain --at 7 --data D
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
    /// Show every timestamp instead of the newest four, also with --json.
    #[arg(long)]
    history: bool,
    /// Explain each record, and the steps of a reader.
    #[arg(long)]
    explain: bool,
    /// Explain for a reader at this timestamp; by default at the latest timestamp.
    #[arg(long, value_name = "TS", requires = "explain")]
    at: Option<u64>,
    #[command(flatten)]
    table: TableArgs,
}

impl Cell {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let (row, column) = (keys::row(&self.row)?, keys::column(&self.column)?);
        let at = self.at.map(keys::timestamp).transpose()?;
        let (db, table) = self.table.open_existing_alone().await?;
        let state = db.cell_state(&table, &row, &column).await?;
        if state.moments.is_empty() {
            let what = format!("{} was never written", state.cell);
            return Err(Failure::no(what, "`percolator scan` lists the cells of the table"));
        }
        if self.explain {
            return explain(context, &state, &state.explain(at));
        }
        let mut moments = state.moments;
        let older = if self.history { 0 } else { moments.len().saturating_sub(NEWEST) };
        moments.truncate(moments.len() - older);
        let out = context.out;
        if out.json {
            let mut array = out.json_array();
            for moment in &moments {
                array.push(&moment_json(moment))?;
            }
            array.finish()?;
        } else {
            print(context, table.name(), &column, &moments)?;
        }
        if older > 0 {
            out.note(&format!("{older} older timestamps: --history shows them"));
        }
        Ok(Exit::Done)
    }
}

/// Prints the records, the meaning of each, and what a reader would do.
fn explain(context: &Context, state: &CellState, explained: &Explained) -> anyhow::Result<Exit> {
    let out = context.out;
    if out.json {
        out.json(&explained_json(state, explained))?;
        return Ok(Exit::Done);
    }
    print(context, &state.cell.table, &state.cell.column, &state.moments)?;
    out.line("")?;
    let digits = state.latest.to_string().len();
    for line in &explained.lines {
        out.line(&format!("{:>digits$}  {}", line.timestamp.as_u64(), line.text))?;
    }
    let ReaderView { at, outcome, because, .. } = &explained.reader;
    out.line("")?;
    out.line(&format!("A reader at {at} {}. {because}", outcome_text(outcome)))?;
    Ok(Exit::Done)
}

fn outcome_text(outcome: &ReadOutcome) -> String {
    match outcome {
        ReadOutcome::Value { value, .. } => format!("returns {}", keys::text(value)),
        ReadOutcome::Absent => "finds nothing".to_owned(),
        ReadOutcome::Waits { lock_ts } => format!("waits for transaction {lock_ts}"),
        ReadOutcome::TooOld => "is refused: its timestamp is too old".to_owned(),
        ReadOutcome::NotIssued => "is refused: its timestamp was not issued yet".to_owned(),
        ReadOutcome::Damaged => "fails: the store is damaged".to_owned(),
    }
}

fn explained_json(state: &CellState, explained: &Explained) -> Value {
    let line = |line: &percolator::admin::Explanation| {
        json!({
            "timestamp": line.timestamp.as_u64(),
            "kind": line.kind.name(),
            "text": line.text,
        })
    };
    let reader = &explained.reader;
    let mut read = json!({
        "at": reader.at.as_u64(),
        "first": reader.first.map(|first| first.name()),
        "outcome": reader.outcome.name(),
        "because": reader.because,
    });
    match &reader.outcome {
        ReadOutcome::Value { value, start_ts, commit_ts } => {
            read["value"] = keys::json(value);
            read["start_ts"] = start_ts.as_u64().into();
            read["commit_ts"] = commit_ts.as_u64().into();
        }
        ReadOutcome::Waits { lock_ts } => read["lock_ts"] = lock_ts.as_u64().into(),
        _ => {}
    }
    json!({
        "cell": name_json(&state.cell),
        "moments": state.moments.iter().map(moment_json).collect::<Value>(),
        "explained": {
            "lines": explained.lines.iter().map(line).collect::<Value>(),
            "reader": read,
        },
        "floor": state.floor.as_u64(),
        "latest_ts": state.latest.as_u64(),
    })
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
    let acknowledged = moments.iter().any(|moment| !moment.acks.is_empty());
    header.extend(acknowledged.then(|| format!("{column}:ack")));
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
        let acks = moment.acks.iter().map(|(observer, upto)| format!("{observer} @ {upto}"));
        row.extend(acknowledged.then(|| acks.collect::<Vec<_>>().join(", ")));
        row
    });
    let mut header = header.into_iter();
    let columns: Vec<Column> =
        header.next().map(Column::right).into_iter().chain(header.map(Column::left)).collect();
    context.out.table(&columns, rows.collect())?;
    Ok(())
}

/// Formats a lock as the paper does: `primary`, or the cell that holds the primary lock.
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
        "acks": moment.acks.iter().map(ack_json).collect::<Value>(),
    })
}

/// Returns an acknowledgement in JSON: the observer, and the start timestamp of its run.
fn ack_json((observer, start_ts): &(String, percolator::Timestamp)) -> Value {
    json!({ "observer": observer, "start_ts": start_ts.as_u64() })
}

/// Returns a lock in JSON.
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

/// Returns a cell's name in JSON.
fn name_json(name: &CellName) -> Value {
    json!({
        "table": name.table,
        "row": keys::json(name.row.as_bytes()),
        "column": keys::json(name.column.as_bytes()),
    })
}
