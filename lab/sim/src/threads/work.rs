//! Does the work of a threaded run: transactions, views of the past, and observers. Each is
//! recorded as its client sees it.

use std::sync::Arc;
use std::time::Duration;

use bigtable::{RowRange, Timestamp};
use bytes::Bytes;
use percolator_core::{
    AbortReason, Change, Client, Error, Observer, Registration, Result, Table, Transaction,
};

use super::recorded::Events;
use crate::history::{Cell, Op, Outcome, Run, Txn};
use crate::names::{
    ACK, COLUMNS, OBSERVERS, TABLES, cell, parse_value, row_key, row_number, value,
};
use crate::random::Rng;

/// The tables: how many have cells of any kind, which one is observed, and which one observers
/// copy to.
const PLAIN: u8 = 3;
const OBSERVED: u8 = 3;
const COPIED: u8 = 2;
const ROWS: u64 = 24;
/// The longest value in bytes, so that some values are stored in blobs.
const BODY_MAX: u64 = 5000;

/// The observers, each with the table and the column that it observes.
pub(super) const OBSERVERS_OF: [(u8, (u8, u8)); 3] =
    [(0, (OBSERVED, 0)), (1, (OBSERVED, 0)), (2, (COPIED, 3))];

/// A client with its tables open, on a thread of its own.
pub(super) struct Session {
    pub(super) client: Client,
    tables: Vec<Table>,
    events: Arc<Events>,
    rng: Rng,
}

/// The record of one transaction while it runs.
struct Log {
    events: Arc<Events>,
    txn: Txn,
}

impl Drop for Log {
    fn drop(&mut self) {
        let fresh = Txn { ops: Vec::new(), ..self.txn };
        let txn = std::mem::replace(&mut self.txn, fresh);
        self.events.noted().txns.push(txn);
    }
}

impl Log {
    fn new(events: Arc<Events>, tx: &Transaction, begin_call: Duration) -> Self {
        let (start_ts, begin_return) = (tx.start_ts(), events.tick());
        let (commit_return, ops, outcome) = (None, Vec::new(), Outcome::Aborted);
        let txn = Txn { start_ts, begin_call, begin_return, commit_return, ops, outcome };
        Log { events, txn }
    }

    fn read(&mut self, cell: Cell, value: Option<Bytes>) -> Option<Bytes> {
        let writer = writer(&self.events, value.as_ref());
        self.txn.ops.push(Op::Read { cell, writer });
        value.map(|value| value.slice(8.min(value.len())..))
    }

    async fn get(&mut self, tx: &Transaction, table: &Table, cell: Cell) -> Result<Option<Bytes>> {
        let read = tx.get(table, row_key(cell.row), &COLUMNS[usize::from(cell.column)]).await?;
        Ok(self.read(cell, read))
    }

    fn set(&mut self, tx: &mut Transaction, table: &Table, cell: Cell, body: &[u8]) -> Result<()> {
        let value = value(tx.start_ts(), body);
        tx.set(table, row_key(cell.row), &COLUMNS[usize::from(cell.column)], value)?;
        self.writes(cell, false);
        Ok(())
    }

    fn delete(&mut self, tx: &mut Transaction, table: &Table, cell: Cell) -> Result<()> {
        tx.delete(table, row_key(cell.row), &COLUMNS[usize::from(cell.column)])?;
        self.writes(cell, true);
        Ok(())
    }

    fn writes(&mut self, cell: Cell, delete: bool) {
        self.txn.ops.push(Op::Write { cell, delete });
    }
}

/// Returns the writer that a value names.
fn writer(events: &Events, value: Option<&Bytes>) -> Option<Timestamp> {
    let value = value?;
    let parsed = parse_value(value);
    if parsed.is_none() {
        events.find("values", format!("a reader got {value:?}"));
    }
    Some(parsed.map_or(Timestamp::ZERO, |(writer, _)| writer))
}

impl Session {
    pub(super) async fn open(client: Client, events: &Arc<Events>, seed: u64) -> Result<Self> {
        let mut tables = Vec::new();
        for name in &TABLES[..=usize::from(PLAIN)] {
            tables.push(client.table(name).await?);
        }
        Ok(Session { client, tables, events: events.clone(), rng: Rng::new(seed) })
    }

    fn table(&self, cell: Cell) -> &Table {
        &self.tables[usize::from(cell.table)]
    }

    fn any_cell(&mut self) -> Cell {
        let table = self.rng.below(u64::from(PLAIN)) as u8;
        // Plain work keeps to the first three columns, because observers write to others.
        let column = self.rng.below(3) as u8;
        Cell { table, row: self.rng.below(ROWS) as u16, column }
    }

    fn body(&mut self) -> Vec<u8> {
        let longest = *self.rng.pick(&[20, 300, BODY_MAX]).unwrap_or(&20);
        vec![b'x'; self.rng.below(longest) as usize]
    }

    /// Does one piece of work. A conflict with another client is expected; any other error is
    /// a finding.
    pub(super) async fn step(&mut self) {
        let done = match self.rng.below(10) {
            0..=3 => self.mixed().await,
            4 => self.blind().await,
            5..=6 => self.source().await,
            7 => self.count().await,
            8 => self.view().await,
            _ => self.reader().await,
        };
        match done {
            Ok(()) => {}
            Err(Error::TooOld { .. } | Error::Aborted { reason: AbortReason::TooOld, .. }) => {
                self.events.noted().too_old += 1;
            }
            Err(error) if error.is_retryable() => {}
            Err(error) => self.events.find("no errors", error.to_string()),
        }
    }

    async fn begin(&self) -> Result<(Transaction, Log)> {
        let call = self.events.tick();
        let tx = self.client.begin().await?;
        let log = Log::new(self.events.clone(), &tx, call);
        Ok((tx, log))
    }

    async fn mixed(&mut self) -> Result<()> {
        let (mut tx, mut log) = self.begin().await?;
        for _ in 0..self.rng.between(1, 6) {
            let at = self.any_cell();
            match self.rng.below(10) {
                0..=3 => drop(log.get(&tx, self.table(at), at).await?),
                4..=6 => {
                    let body = self.body();
                    log.set(&mut tx, self.table(at), at, &body)?;
                }
                7 => log.delete(&mut tx, self.table(at), at)?,
                _ => {
                    let to = at.row + self.rng.between(1, ROWS) as u16;
                    let limit = *self.rng.pick(&[2, usize::MAX]).unwrap_or(&2);
                    self.scan(&tx, &mut log, (at, to), limit).await?;
                }
            }
        }
        commit(tx, log).await
    }

    async fn scan(
        &self,
        tx: &Transaction,
        log: &mut Log,
        (from, to): (Cell, u16),
        limit: usize,
    ) -> Result<()> {
        let range = RowRange::between(row_key(from.row), row_key(to));
        let column = COLUMNS[usize::from(from.column)].clone();
        let scan = tx.scan(self.table(from)).range(range).columns([&column]).limit(limit);
        let mut found = Vec::new();
        for row in scan.collect().await? {
            let value = row.cells.into_iter().next().map(|(_, value)| value);
            let number = row_number(&row.row).unwrap_or(u16::MAX);
            let writer = writer(&self.events, value.as_ref()).unwrap_or_default();
            found.push((Cell { row: number, ..from }, writer));
        }
        log.txn.ops.push(Op::Scan { from, to, limit, found });
        Ok(())
    }

    /// Writes cells of several tables without reading them.
    async fn blind(&mut self) -> Result<()> {
        let (mut tx, mut log) = self.begin().await?;
        for _ in 0..self.rng.between(1, 4) {
            let (at, body) = (self.any_cell(), self.body());
            log.set(&mut tx, self.table(at), at, &body)?;
        }
        commit(tx, log).await
    }

    /// Writes observed cells.
    async fn source(&mut self) -> Result<()> {
        let (mut tx, mut log) = self.begin().await?;
        for _ in 0..self.rng.between(1, 3) {
            let at = Cell { table: OBSERVED, row: self.rng.below(8) as u16, column: 0 };
            let body = self.body();
            match self.rng.below(5) {
                0 => log.delete(&mut tx, self.table(at), at)?,
                _ => log.set(&mut tx, self.table(at), at, &body)?,
            }
        }
        commit(tx, log).await
    }

    /// Adds one to a counter.
    async fn count(&mut self) -> Result<()> {
        let at = Cell { table: 0, row: self.rng.below(2) as u16, column: 5 };
        let (mut tx, mut log) = self.begin().await?;
        let old = log.get(&tx, self.table(at), at).await?;
        let old = old.and_then(|body| Some(u64::from_be_bytes(body.first_chunk().copied()?)));
        log.set(&mut tx, self.table(at), at, &(old.unwrap_or(0) + 1).to_be_bytes())?;
        commit(tx, log).await
    }

    /// Reads cells without a transaction.
    async fn view(&mut self) -> Result<()> {
        let view = self.client.snapshot().await?;
        let mut ops = Vec::new();
        for _ in 0..4 {
            let at = self.any_cell();
            let column = &COLUMNS[usize::from(at.column)];
            let read = view.get(self.table(at), row_key(at.row), column).await?;
            let writer = writer(&self.events, read.as_ref());
            ops.push(Op::Read { cell: at, writer });
        }
        self.events.noted().views.push((view.timestamp(), ops));
        Ok(())
    }

    /// Reads the same cells again and again, by single reads, by reads of many cells, and by scans.
    async fn reader(&mut self) -> Result<()> {
        let (tx, mut log) = self.begin().await?;
        let cells: Vec<Cell> = (0..4).map(|_| self.any_cell()).collect();
        for _ in 0..self.rng.between(2, 30) {
            for at in &cells {
                log.get(&tx, self.table(*at), *at).await?;
            }
            let at = cells[0];
            let rows = [row_key(at.row), row_key(at.row + 1)];
            let many = tx.get_many(self.table(at), &rows, &COLUMNS[..3]).await?;
            for (row, values) in (at.row..).zip(many) {
                for (column, value) in (0..).zip(values) {
                    log.read(Cell { row, column, ..at }, value);
                }
            }
            self.scan(&tx, &mut log, (Cell { row: 0, ..at }, u16::MAX), usize::MAX).await?;
        }
        commit(tx, log).await
    }
}

/// Commits, and records the outcome.
async fn commit(tx: Transaction, mut log: Log) -> Result<()> {
    let wrote = tx.cells_written() > 0;
    let result = tx.commit().await;
    log.txn.commit_return = Some(log.events.tick());
    log.txn.outcome = match &result {
        Ok(commit_ts) if wrote => Outcome::Committed(*commit_ts),
        Ok(_) | Err(Error::Aborted { .. }) => Outcome::Aborted,
        Err(_) => Outcome::Unknown,
    };
    result.map(drop)
}

/// An observer that copies the observed cell within its row, or to another table.
struct Copying {
    number: u8,
    events: Arc<Events>,
}

impl Observer for Copying {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let column = change.column.as_bytes();
        let Some(from) = cell(change.table.name().as_bytes(), &change.row, column) else {
            return Err(Error::application(format!("a change of nothing: {change:?}")));
        };
        // The time of `begin` is unknown here, so the run's order in real time is not checked.
        let mut log = Log::new(self.events.clone(), tx, Duration::ZERO);
        log.txn.outcome = Outcome::Unknown;
        log.writes(Cell { column: ACK + self.number, ..from }, false);
        let run = Run { observer: self.number, cell: from, start_ts: tx.start_ts() };
        self.events.noted().runs.push(run);
        let other = tx.client().table(TABLES[usize::from(COPIED)]).await?;
        let (table, to) = match self.number {
            0 => (&other, Cell { table: COPIED, column: 3, ..from }),
            1 => (&change.table, Cell { column: 1, ..from }),
            _ => (&change.table, Cell { column: 4, ..from }),
        };
        match log.get(tx, &change.table, from).await? {
            Some(body) => log.set(tx, table, to, &body),
            None => log.delete(tx, table, to),
        }
    }
}

/// Returns the observers of a process.
pub(super) fn registrations(events: &Arc<Events>) -> Vec<Registration> {
    let registration = |(number, (table, column)): (u8, (u8, u8))| {
        let observer = Copying { number, events: events.clone() };
        let (name, table) = (OBSERVERS[usize::from(number)], TABLES[usize::from(table)]);
        Registration::strong(name, table, &COLUMNS[usize::from(column)], observer)
    };
    OBSERVERS_OF.into_iter().map(registration).collect()
}
