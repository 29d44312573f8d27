//! Does the work of a threaded run: transactions, views of the past, and observers. Each is
//! recorded as its client sees it.

use std::sync::Arc;
use std::time::Duration;

use percolator_core::{
    AbortReason, Change, Client, Error, Observer, Registration, Result, Table, Transaction,
};

use super::recorded::Events;
use crate::history::{Cell, Outcome, Run};
use crate::names::{ACK, COLUMNS, OBSERVERS, TABLES, cell, row_key};
use crate::random::Rng;
use crate::recording::{self, Log, Recorder};

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

    async fn begin(&self) -> Result<(Transaction, Log<Events>)> {
        let call = self.events.tick();
        let tx = self.client.begin().await?;
        let log = Log::new(&self.events, &tx, (call, self.events.tick()), Outcome::Aborted);
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
                    log.scan(&tx, self.table(at), (at, to), limit).await?;
                }
            }
        }
        commit(tx, log).await
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
        let cells: Vec<Cell> = (0..4).map(|_| self.any_cell()).collect();
        let seen = recording::view(&*self.events, &self.client, &self.tables, &cells).await?;
        self.events.noted().views.push(seen);
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
            let all = (Cell { row: 0, ..at }, u16::MAX);
            log.scan(&tx, self.table(at), all, usize::MAX).await?;
        }
        commit(tx, log).await
    }
}

/// Commits, and records the outcome.
async fn commit(tx: Transaction, mut log: Log<Events>) -> Result<()> {
    let wrote = tx.cells_written() > 0;
    let result = tx.commit().await;
    log.txn.commit_return = Some(log.recorder.tick());
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
        let times = (Duration::ZERO, self.events.tick());
        let mut log = Log::new(&self.events, tx, times, Outcome::Unknown);
        log.writes(Cell { column: ACK + self.number, ..from }, false);
        let run = Run { observer: self.number, cell: from, start_ts: tx.start_ts() };
        self.events.noted().runs.push(run);
        let other = tx.client().table(TABLES[usize::from(COPIED)]).await?;
        let (table, to) = match self.number {
            0 => (&other, Cell { table: COPIED, column: 3, ..from }),
            1 => (&change.table, Cell { column: 1, ..from }),
            _ => (&change.table, Cell { column: 4, ..from }),
        };
        log.copy(tx, (&change.table, from), (table, to)).await
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
