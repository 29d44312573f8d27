//! Runs transactions that write their own start timestamps, and keeps a history of their reads
//! and outcomes.
//!
//! Time is a counter that every event of the history advances, so the order of events is never
//! in doubt.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;
use percolator_core::{Client, Column, Error, Oracle, Result, Stamp, Table, async_trait};

use crate::check::raw::{Dump, RawCell};
use crate::history::{Cell, History, Op, Outcome, Record, Txn};
use crate::oracle_layer::OracleLayer;

/// The column that the transactions use.
pub(crate) const COLUMN: Column = Column::literal("c");

/// A step of a transaction, on a cell of [`COLUMN`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Read(Cell),
    Write(Cell),
}

/// Returns the cell of a table and a row.
pub(crate) const fn cell(table: u8, row: u16) -> Cell {
    Cell { table, row, column: 0 }
}

/// Returns the name of a table.
pub(crate) fn table_name(table: u8) -> String {
    format!("t{table}")
}

/// Returns the name of a row.
pub(crate) fn row_name(row: u16) -> String {
    format!("r{row}")
}

/// The history so far; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    events: u64,
    history: History,
}

impl Log {
    fn tick(&self) -> Duration {
        let mut state = locked(&self.state);
        state.events += 1;
        Duration::from_nanos(state.events)
    }

    /// Runs a transaction of these steps. Its reads and its outcome go into the history, also
    /// when it is dropped on the way. Returns its commit timestamp, if it wrote anything.
    pub(crate) async fn transaction(
        &self,
        client: &Client,
        steps: &[Step],
    ) -> Result<Option<Timestamp>> {
        let begin_call = self.tick();
        let mut tx = client.begin().await?;
        let (start_ts, begin_return) = (tx.start_ts(), self.tick());
        let txn = Txn {
            start_ts,
            begin_call,
            begin_return,
            commit_return: None,
            ops: Vec::new(),
            outcome: Outcome::Unknown,
        };
        let index = {
            let mut state = locked(&self.state);
            state.history.txns.push(txn);
            state.history.txns.len() - 1
        };
        let mut writes = false;
        for step in steps {
            let op = match step {
                Step::Read(cell) => {
                    let table = client.table(&table_name(cell.table)).await?;
                    let value = tx.get(&table, row_name(cell.row), &COLUMN).await?;
                    Op::Read { cell: *cell, writer: value.as_deref().and_then(written_by) }
                }
                Step::Write(cell) => {
                    writes = true;
                    let table = client.table(&table_name(cell.table)).await?;
                    tx.set(&table, row_name(cell.row), &COLUMN, start_ts.to_string())?;
                    Op::Write { cell: *cell, delete: false }
                }
            };
            locked(&self.state).history.txns[index].ops.push(op);
        }
        let result = tx.commit().await;
        let outcome = match &result {
            Ok(commit_ts) if writes => Outcome::Committed(*commit_ts),
            Ok(_) | Err(Error::Aborted { .. }) => Outcome::Aborted,
            Err(_) => Outcome::Unknown,
        };
        let commit_return = Some(self.tick());
        let txn = &mut locked(&self.state).history.txns[index];
        (txn.outcome, txn.commit_return) = (outcome, commit_return);
        Ok(result?).map(|commit_ts| writes.then_some(commit_ts))
    }

    /// Returns how the transaction with this start timestamp ended, as far as its client knows.
    pub(crate) fn outcome(&self, start_ts: Timestamp) -> Option<Outcome> {
        let state = locked(&self.state);
        let txn = state.history.txns.iter().find(|txn| txn.start_ts == start_ts);
        txn.map(|txn| txn.outcome)
    }

    /// Adds an observer's transaction, which the worker began and will commit.
    pub(crate) fn add_run(&self, start_ts: Timestamp, ops: Vec<Op>) {
        let (begin_call, begin_return) = (Duration::ZERO, self.tick());
        let (commit_return, outcome) = (None, Outcome::Unknown);
        let txn = Txn { start_ts, begin_call, begin_return, commit_return, ops, outcome };
        locked(&self.state).history.txns.push(txn);
    }

    /// Returns the steps and outcomes of all transactions in order of start timestamps,
    /// without times.
    pub(crate) fn seen(&self) -> Vec<(Timestamp, String)> {
        let state = locked(&self.state);
        let of = |txn: &Txn| (txn.start_ts, format!("{:?} {:?}", txn.ops, txn.outcome));
        let mut seen: Vec<_> = state.history.txns.iter().map(of).collect();
        seen.sort();
        seen
    }

    /// Returns the history, completed with what the store holds at its end.
    pub(crate) fn history(&self, dump: &Dump) -> History {
        let mut history = locked(&self.state).history.clone();
        for record in &dump.records {
            let (commit_ts, start_ts) = (record.commit_ts, record.start_ts);
            if let Some(cell) = numbered(&record.cell) {
                history.records.push(Record { cell, commit_ts, start_ts, delete: record.delete });
            }
        }
        let at = |(cell, ts): (&RawCell, Timestamp)| Some((numbered(cell)?, ts));
        history.tombs = dump.tombs.iter().filter_map(|(cell, s)| at((cell, *s))).collect();
        history.locks = dump.locks.iter().filter_map(|(cell, s, _)| at((cell, *s))).collect();
        history.notifications =
            dump.notifications.iter().filter_map(|(cell, ts)| at((cell, *ts))).collect();
        history
    }
}

/// Returns the writer that a value names.
pub(crate) fn written_by(value: &[u8]) -> Option<Timestamp> {
    Timestamp::new(std::str::from_utf8(value).ok()?.parse().ok()?)
}

/// Returns the cell with these names; acknowledgements are column 1.
fn numbered(cell: &RawCell) -> Option<Cell> {
    let row = std::str::from_utf8(cell.row.as_bytes()).ok()?;
    Some(Cell {
        table: cell.table.strip_prefix('t')?.parse().ok()?,
        row: row.strip_prefix('r')?.parse().ok()?,
        column: u8::from(cell.column != COLUMN.as_bytes()),
    })
}

/// Returns the raw name of a cell.
pub(crate) fn raw(cell: Cell) -> RawCell {
    RawCell {
        table: table_name(cell.table),
        row: row_name(cell.row).into(),
        column: COLUMN.to_bytes(),
    }
}

/// Opens the tables of these cells.
pub(crate) async fn open_tables(client: &Client, cells: &[Cell]) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for cell in cells {
        tables.push(client.table(&table_name(cell.table)).await?);
    }
    Ok(tables)
}

/// Records every timestamp that an oracle hands out.
#[async_trait]
impl OracleLayer for Log {
    async fn timestamp(&self, inner: &dyn Oracle) -> Result<Stamp> {
        let call = self.tick();
        let stamp = inner.timestamp().await?;
        let returned = self.tick();
        locked(&self.state).history.stamps.push((stamp.timestamp, call, returned));
        Ok(stamp)
    }
}
