//! Cells that wait for observers which no worker of this process runs.
//!
//! A notification goes when no observer that the schema names has anything to do for it (H53).
//! Where other workers run some of them, their acknowledgements are in the row, and the worker that
//! comes last clears. An observer that nobody runs any more keeps its cells notified: a new version
//! of the program has renamed it, or left it out. The program is told of it, and its workers visit
//! such cells ever more rarely, until somebody calls
//! [`retire_observer`](crate::Client::retire_observer).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;

use crate::mutants::{self, off};
use crate::observe::observer::Registration;
use crate::observe::register::acknowledged;
use crate::observe::workers::Context;
use crate::records::column::Cell;
use crate::records::schema::{Observed, Strength};
use crate::txn::get::Patience;
use crate::{Column, Error, Result};

/// How long a cell rests that waits for others: at first, and at most.
const RESTS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// Most cells whose rests are remembered.
const CELLS_MAX: usize = 20_000;

/// The cells that wait for others.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(Mutex<BTreeMap<Cell, Rest>>);

/// How a cell rests.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// Its newest notification. A newer one is of a change that this process has not handled.
    newest: Timestamp,
    /// The version of the schema that named the others. In a newer one they may be retired.
    schema: u64,
    length: Duration,
    until: Duration,
}

impl Elsewhere {
    fn cells(&self) -> MutexGuard<'_, BTreeMap<Cell, Rest>> {
        locked(&self.0)
    }

    /// Whether a scan that has found this notification leaves the cell alone for now.
    fn rests(&self, cell: &Cell, found: Timestamp, schema: u64, now: Duration) -> bool {
        let cells = self.cells();
        let Some(rest) = cells.get(cell) else { return false };
        found <= rest.newest && schema == rest.schema && now < rest.until
    }

    /// The cell waits for others, and rests for twice as long as the last time.
    fn waits(&self, cell: &Cell, newest: Timestamp, schema: u64, now: Duration) {
        let mut cells = self.cells();
        if cells.len() >= CELLS_MAX && !cells.contains_key(cell) {
            // Those that still wait are noted again.
            cells.clear();
        }
        let last = cells.get(cell).filter(|rest| newest <= rest.newest && schema == rest.schema);
        let length = last.map_or(RESTS.0, |last| (last.length * 2).min(RESTS.1));
        cells.insert(cell.clone(), Rest { newest, schema, length, until: now + length });
    }

    /// Whether no cell rests.
    pub(super) fn is_empty(&self) -> bool {
        self.cells().is_empty()
    }

    /// The cell waits for nobody else any more.
    pub(super) fn forget(&self, cell: &Cell) {
        self.cells().remove(cell);
    }
}

impl Context {
    /// Whether a scan that has found this notification leaves the cell alone for now.
    pub(super) fn rests(&self, cell: &Cell, found: Timestamp) -> bool {
        let schema = self.client.known_schema().version;
        self.elsewhere.rests(cell, found, schema, self.runtime().now())
    }

    /// The cell waits for others: scans leave it alone for a while.
    pub(super) fn waits_for_others(&self, cell: &Cell, newest: Timestamp) {
        let schema = self.client.known_schema().version;
        self.elsewhere.waits(cell, newest, schema, self.runtime().now());
    }

    /// The observers of a cell's column that this process does not run here.
    fn others_of(&self, cell: &Cell, own: &[Arc<Registration>]) -> Vec<Observed> {
        let schema = self.client.known_schema();
        let others = schema.of(cell.table.name(), &cell.column);
        let runs = |entry: &Observed| own.iter().any(|r| r.observed.observer == entry.observer);
        others.filter(|entry| !runs(entry)).cloned().collect()
    }

    /// Up to when nothing of the cell is left to do for all its other observers; `None` while
    /// something is. Weak ones never say.
    ///
    /// For an observer that has nothing to do, a missing or old acknowledgement means no more than
    /// that the cell has not changed since. It may be notified all the same: by a transaction that
    /// aborted, or by the sweep for a new observer.
    pub(super) async fn handled_elsewhere(
        &self,
        cell: &Cell,
        own: &[Arc<Registration>],
    ) -> Result<Option<Timestamp>> {
        // First: with its timestamp comes the schema.
        let tx = self.client.begin().await?;
        let others = self.others_of(cell, own);
        if others.iter().any(|other| other.strength == Strength::Weak) {
            return Ok(None);
        }
        let acks: Vec<_> = others.iter().map(|other| cell.column.ack_of(&other.observer)).collect();
        let all: Vec<_> = acks.iter().chain([&cell.column]).cloned().collect();
        let (table, row, s) = (&cell.table, &cell.row, tx.start_ts());
        let read = tx.client.read_acknowledged(table, row, &all, s, Patience::GiveUp).await;
        let versions = match read {
            // One of them, or a writer, is at work.
            Err(Error::Locked { .. }) => return Ok(None),
            read => read?,
        };
        if off(mutants::OTHERS_HAVE_ACKNOWLEDGED) {
            return Ok(Some(Timestamp::MAX));
        }
        let of = |column: &Column| versions.iter().find(|version| version.column == *column);
        let acked = |ack| of(ack).and_then(|version| acknowledged(version.value.as_deref()));
        let handled = of(&cell.column).is_none_or(|changed| {
            acks.iter().all(|ack| acked(ack).is_some_and(|acked| acked >= changed.commit_ts))
        });
        Ok(handled.then_some(s))
    }

    /// Tells of observers that the schema names for a column of these workers, and that no worker
    /// of this client runs.
    pub(super) fn warn_of_missing(&self) {
        for Observed { table, column, observer, .. } in self.client.missing_observers() {
            if self.has_column(&table, &column) {
                tracing::warn!(
                    target: "percolator::observer", event = "observer_missing", observer, table, %column,
                    "the schema names an observer that no worker of this process runs: changes wait for it; if \
                     no other process runs it, retire it with `Client::retire_observer`"
                );
            }
        }
    }
}
