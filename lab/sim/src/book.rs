//! Records every transaction of a run as its client sees it, while it runs.
//!
//! The client writes its reads and writes into the transaction's log. When the log is dropped, the
//! transaction enters the book. The end of a killed process drops its logs too, so the book also
//! has what that process had seen until then.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{RowRange, Timestamp};
use bytes::Bytes;
use percolator_core::{Client, Error, Result, Table, Transaction};

use crate::history::{Cell, Finding, Op, Outcome, Run, Txn};
use crate::names::{COLUMNS, TABLES, parse_value, row_key, row_number, value};
use crate::world::{HUNG_UP, World};

/// The records of a run.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) txns: Vec<Txn>,
    /// Reads of the past without a transaction.
    pub(crate) views: Vec<(Timestamp, Vec<Op>)>,
    /// Runs of strong observers, committed or not.
    pub(crate) runs: Vec<Run>,
    /// Transactions whose commit returned `Unknown` to the client.
    pub(crate) told_unknown: Vec<Timestamp>,
    /// Transactions whose clients abandoned the commit while they waited for it.
    pub(crate) hung_up: Vec<Timestamp>,
    /// Weak notifications: the start timestamp of the sender, the cell, and the commit
    /// timestamp if the client received it.
    pub(crate) notified: Vec<(Timestamp, Cell, Option<Timestamp>)>,
    /// Runs of weak observers: the cell, and the start timestamp of the run.
    pub(crate) weak_runs: Vec<(Cell, Timestamp)>,
    /// Runs of the batch observer: the cell, and the start timestamp of the run.
    pub(crate) exported: Vec<(Cell, Timestamp)>,
    /// When the schema first named the strong observers.
    pub(crate) observed_since: Option<Duration>,
    /// The strong observers that the schema names at the end.
    pub(crate) registered: Vec<u8>,
    /// Pairs of cells that a probe for write skew tried.
    pub(crate) skew_probes: Vec<(Cell, Cell)>,
    /// Times in which an observer was known to be paused: no run may have begun within them.
    pub(crate) pauses: Vec<Pause>,
    /// How often the run set out to copy the store and compare `explain` with reads.
    pub(crate) copies: u64,
    pub(crate) findings: Vec<Finding>,
}

/// A time in which an observer was paused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    pub(crate) observer: u8,
    /// The latest timestamp when the pause was known to every process.
    pub(crate) from: Timestamp,
    /// The latest timestamp before the observer was to be resumed.
    pub(crate) upto: Timestamp,
}

/// The record of one transaction while it runs.
#[derive(Debug)]
pub(crate) struct Log {
    world: Arc<World>,
    txn: Txn,
}

impl Log {
    /// Opens the log of a transaction that other code commits, such as an observer's.
    pub(crate) fn of(world: &Arc<World>, tx: &Transaction) -> Self {
        let stamp = world.oracles.stamp(tx.start_ts());
        let (begin_call, begin_return) = stamp.unwrap_or((Duration::ZERO, world.now()));
        Log::new(world, tx, (begin_call, begin_return), Outcome::Unknown)
    }

    fn new(
        world: &Arc<World>,
        tx: &Transaction,
        (begin_call, begin_return): (Duration, Duration),
        outcome: Outcome,
    ) -> Self {
        let start_ts = tx.start_ts();
        let commit_return = None;
        let ops = Vec::new();
        let txn = Txn { start_ts, begin_call, begin_return, commit_return, ops, outcome };
        Log { world: world.clone(), txn }
    }

    /// Reads a cell and returns the workload's part of the value.
    pub(crate) async fn get(
        &mut self,
        tx: &Transaction,
        table: &Table,
        cell: Cell,
    ) -> Result<Option<Bytes>> {
        let column = &COLUMNS[usize::from(cell.column)];
        let read = tx.get(table, row_key(cell.row), column).await?;
        let (writer, body) = self.parse(read);
        self.txn.ops.push(Op::Read { cell, writer });
        Ok(body)
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
            let (writer, body) = self.parse(value);
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

    /// Records a write that other code buffers.
    pub(crate) fn writes(&mut self, cell: Cell, delete: bool) {
        self.txn.ops.push(Op::Write { cell, delete });
    }

    fn parse(&self, value: Option<Bytes>) -> (Option<Timestamp>, Option<Bytes>) {
        let Some(value) = value else { return (None, None) };
        match parse_value(&value) {
            Some((writer, body)) => (Some(writer), Some(value.slice_ref(body))),
            None => {
                let facts = format!("transaction {} read {value:?}", self.txn.start_ts);
                self.world.book().findings.push(Finding { property: "values", facts });
                (Some(Timestamp::ZERO), None)
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let fresh = Txn { ops: Vec::new(), ..self.txn };
        let txn = std::mem::replace(&mut self.txn, fresh);
        self.world.book().txns.push(txn);
    }
}

/// A client with its tables open.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) world: Arc<World>,
    pub(crate) client: Client,
    pub(crate) tables: Arc<Vec<Table>>,
}

/// A transaction with its log.
#[derive(Debug)]
pub(crate) struct Tx {
    tx: Transaction,
    log: Log,
    tables: Arc<Vec<Table>>,
    notified: Vec<Cell>,
}

impl Session {
    pub(crate) async fn open(world: &Arc<World>, client: Client) -> Self {
        let mut tables = Vec::new();
        for name in TABLES {
            loop {
                if let Ok(table) = client.table(name).await {
                    tables.push(table);
                    break;
                }
            }
        }
        Session { world: world.clone(), client, tables: Arc::new(tables) }
    }

    /// Reads cells as of the latest timestamp, without a transaction.
    pub(crate) async fn view(&self, cells: &[Cell]) -> Result<()> {
        let view = self.client.snapshot().await?;
        let mut ops = Vec::new();
        for cell in cells {
            let column = &COLUMNS[usize::from(cell.column)];
            let table = &self.tables[usize::from(cell.table)];
            let read = view.get(table, row_key(cell.row), column).await?;
            let writer = read.as_deref().and_then(parse_value).map(|(writer, _)| writer);
            ops.push(Op::Read { cell: *cell, writer });
        }
        self.world.book().views.push((view.timestamp(), ops));
        Ok(())
    }

    pub(crate) async fn begin(&self) -> Result<Tx> {
        let call = self.world.now();
        let tx = self.client.begin().await?;
        let times = (call, self.world.now());
        let log = Log::new(&self.world, &tx, times, Outcome::Aborted);
        Ok(Tx { tx, log, tables: self.tables.clone(), notified: Vec::new() })
    }
}

impl Tx {
    pub(crate) fn start_ts(&self) -> Timestamp {
        self.tx.start_ts()
    }

    pub(crate) async fn get(&mut self, cell: Cell) -> Result<Option<Bytes>> {
        self.log.get(&self.tx, &self.tables[usize::from(cell.table)], cell).await
    }

    pub(crate) async fn scan(
        &mut self,
        from: Cell,
        to: u16,
        limit: usize,
    ) -> Result<Vec<(u16, Bytes)>> {
        let table = &self.tables[usize::from(from.table)];
        self.log.scan(&self.tx, table, (from, to), limit).await
    }

    pub(crate) fn set(&mut self, cell: Cell, body: &[u8]) -> Result<()> {
        self.log.set(&mut self.tx, &self.tables[usize::from(cell.table)], cell, body)
    }

    pub(crate) fn delete(&mut self, cell: Cell) -> Result<()> {
        self.log.delete(&mut self.tx, &self.tables[usize::from(cell.table)], cell)
    }

    /// Sends a weak notification at the commit.
    pub(crate) fn notify(&mut self, cell: Cell) -> Result<()> {
        let table = &self.tables[usize::from(cell.table)];
        self.tx.notify(table, row_key(cell.row), &COLUMNS[usize::from(cell.column)])?;
        self.notified.push(cell);
        Ok(())
    }

    /// Commits, and records the outcome.
    pub(crate) async fn commit(self) -> Result<Timestamp> {
        let Tx { tx, mut log, notified, .. } = self;
        let start_ts = tx.start_ts();
        let wrote = tx.cells_written() > 0;
        // The outcome is unknown while the commit is in flight: the process may be killed
        // while it waits.
        log.txn.outcome = if wrote { Outcome::Unknown } else { Outcome::Aborted };
        let note = |world: &World, told: Option<Timestamp>| {
            let left = notified.iter().map(|cell| (start_ts, *cell, told));
            world.book().notified.extend(left);
        };
        if wrote {
            // The store shows whether the transaction committed, even if its client never
            // learns it.
            note(&log.world, None);
        }
        let result = log.world.patiently(tx.commit()).await;
        log.txn.commit_return = Some(log.world.now());
        match &result {
            Ok(commit_ts) if wrote => log.txn.outcome = Outcome::Committed(*commit_ts),
            Ok(commit_ts) => note(&log.world, Some(*commit_ts)),
            Err(Error::Unknown { .. }) => log.world.book().told_unknown.push(start_ts),
            Err(Error::Unavailable(why)) if why == HUNG_UP => {
                log.world.book().hung_up.push(start_ts)
            }
            Err(_) => log.txn.outcome = Outcome::Aborted,
        }
        result
    }
}
