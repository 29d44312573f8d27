//! Keeps the record of a run, and the transactions of its clients with their logs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigtable::Timestamp;
use bytes::Bytes;
use percolator_core::{Client, Error, Result, Table, Transaction};

use crate::history::{Cell, Finding, Op, Outcome, Run, Txn};
use crate::names::{COLUMNS, TABLES, row_key};
use crate::recording::{self, Recorder};
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
    /// The observers that are paused now, each with the latest timestamp when the pause was
    /// published. A later timestamp tells its process of the pause.
    pub(crate) paused: BTreeMap<u8, Timestamp>,
    /// Times in which an observer was paused.
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

/// The log of a transaction of this world.
pub(crate) type Log = recording::Log<World>;

impl Log {
    /// Opens the log of a transaction that other code commits, such as an observer's.
    pub(crate) fn of(world: &Arc<World>, tx: &Transaction) -> Self {
        let stamp = world.oracles.stamp(tx.start_ts());
        Log::new(world, tx, stamp.unwrap_or((Duration::ZERO, world.now())), Outcome::Unknown)
    }
}

impl Recorder for World {
    fn enter(&self, txn: Txn) {
        self.book().txns.push(txn);
    }

    fn find(&self, property: &'static str, facts: String) {
        self.book().findings.push(Finding { property, facts });
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
        let seen = recording::view(&*self.world, &self.client, &self.tables, cells).await?;
        self.world.book().views.push(seen);
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
            note(&log.recorder, None);
        }
        let result = log.recorder.patiently(tx.commit()).await;
        log.txn.commit_return = Some(log.recorder.now());
        match &result {
            Ok(commit_ts) if wrote => log.txn.outcome = Outcome::Committed(*commit_ts),
            Ok(commit_ts) => note(&log.recorder, Some(*commit_ts)),
            Err(Error::Unknown { .. }) => log.recorder.book().told_unknown.push(start_ts),
            Err(Error::Unavailable(why)) if why == HUNG_UP => {
                log.recorder.book().hung_up.push(start_ts)
            }
            Err(_) => log.txn.outcome = Outcome::Aborted,
        }
        result
    }
}
