//! Records transactions as their clients see them, while they run.
//!
//! The client writes its reads and writes into the transaction's log. When the log is dropped, the
//! transaction enters the record of the run. The end of a killed process drops its logs too, so
//! the record also has what that process had seen until then.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{RowRange, Timestamp};
use bytes::Bytes;
use percolator_core::{Client, Result, Table, Transaction};

use crate::history::{Cell, Op, Outcome, Txn};
use crate::names::{COLUMNS, parse_value, row_key, row_number, value};

/// The record of a run.
pub(crate) trait Recorder {
    /// Enters a transaction that has ended.
    fn enter(&self, txn: Txn);

    /// Reports a finding.
    fn find(&self, property: &'static str, facts: String);
}

/// The record of one transaction while it runs.
#[derive(Debug)]
pub(crate) struct Log<R: Recorder> {
    pub(crate) recorder: Arc<R>,
    pub(crate) txn: Txn,
}

impl<R: Recorder> Log<R> {
    pub(crate) fn new(
        recorder: &Arc<R>,
        tx: &Transaction,
        (begin_call, begin_return): (Duration, Duration),
        outcome: Outcome,
    ) -> Self {
        let (start_ts, commit_return, ops) = (tx.start_ts(), None, Vec::new());
        let txn = Txn { start_ts, begin_call, begin_return, commit_return, ops, outcome };
        Log { recorder: recorder.clone(), txn }
    }

    /// Reads a cell and returns the workload's part of the value.
    pub(crate) async fn get(
        &mut self,
        tx: &Transaction,
        table: &Table,
        cell: Cell,
    ) -> Result<Option<Bytes>> {
        let read = tx.get(table, row_key(cell.row), &COLUMNS[usize::from(cell.column)]).await?;
        Ok(self.read(cell, read))
    }

    /// Records a read by other code, and returns the workload's part of the value.
    pub(crate) fn read(&mut self, cell: Cell, value: Option<Bytes>) -> Option<Bytes> {
        let (writer, body) = parse(&*self.recorder, value);
        self.txn.ops.push(Op::Read { cell, writer });
        body
    }

    /// Scans one column of the rows from `from` up to, but without, the row `to`.
    pub(crate) async fn scan(
        &mut self,
        tx: &Transaction,
        table: &Table,
        (from, to): (Cell, u16),
        limit: usize,
    ) -> Result<Vec<(u16, Bytes)>> {
        let range = RowRange::between(row_key(from.row), row_key(to));
        let column = COLUMNS[usize::from(from.column)].clone();
        let rows = tx.scan(table).range(range).columns([&column]).limit(limit).collect().await?;
        let (mut found, mut bodies) = (Vec::new(), Vec::new());
        for row in rows {
            let number = row_number(&row.row).unwrap_or(u16::MAX);
            let value = row.cells.into_iter().next().map(|(_, value)| value);
            let (writer, body) = parse(&*self.recorder, value);
            found.push((Cell { row: number, ..from }, writer.unwrap_or_default()));
            bodies.push((number, body.unwrap_or_default()));
        }
        self.txn.ops.push(Op::Scan { from, to, limit, found });
        Ok(bodies)
    }

    pub(crate) fn set(
        &mut self,
        tx: &mut Transaction,
        table: &Table,
        cell: Cell,
        body: &[u8],
    ) -> Result<()> {
        let value = value(tx.start_ts(), body);
        tx.set(table, row_key(cell.row), &COLUMNS[usize::from(cell.column)], value)?;
        self.writes(cell, false);
        Ok(())
    }

    pub(crate) fn delete(&mut self, tx: &mut Transaction, table: &Table, cell: Cell) -> Result<()> {
        tx.delete(table, row_key(cell.row), &COLUMNS[usize::from(cell.column)])?;
        self.writes(cell, true);
        Ok(())
    }

    /// Makes a cell of table `to_table` equal to another cell.
    pub(crate) async fn copy(
        &mut self,
        tx: &mut Transaction,
        (table, from): (&Table, Cell),
        (to_table, to): (&Table, Cell),
    ) -> Result<()> {
        match self.get(tx, table, from).await? {
            Some(body) => self.set(tx, to_table, to, &body),
            None => self.delete(tx, to_table, to),
        }
    }

    /// Records a write that other code buffers.
    pub(crate) fn writes(&mut self, cell: Cell, delete: bool) {
        self.txn.ops.push(Op::Write { cell, delete });
    }
}

impl<R: Recorder> Drop for Log<R> {
    fn drop(&mut self) {
        let fresh = Txn { ops: Vec::new(), ..self.txn };
        self.recorder.enter(std::mem::replace(&mut self.txn, fresh));
    }
}

/// Reads cells as of the latest timestamp, without a transaction.
pub(crate) async fn view(
    recorder: &impl Recorder,
    client: &Client,
    tables: &[Table],
    cells: &[Cell],
) -> Result<(Timestamp, Vec<Op>)> {
    let view = client.snapshot().await?;
    let mut ops = Vec::new();
    for cell in cells {
        let table = &tables[usize::from(cell.table)];
        let column = &COLUMNS[usize::from(cell.column)];
        let (writer, _) = parse(recorder, view.get(table, row_key(cell.row), column).await?);
        ops.push(Op::Read { cell: *cell, writer });
    }
    Ok((view.timestamp(), ops))
}

/// Returns the writer that a value names, and the workload's part of the value.
fn parse(recorder: &impl Recorder, value: Option<Bytes>) -> (Option<Timestamp>, Option<Bytes>) {
    let Some(value) = value else { return (None, None) };
    match parse_value(&value) {
        Some((writer, body)) => (Some(writer), Some(value.slice_ref(body))),
        None => {
            recorder.find("values", format!("a reader got {value:?}"));
            (Some(Timestamp::ZERO), None)
        }
    }
}
