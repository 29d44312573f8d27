//! Cells that rest, because they wait for observers of other processes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;

use crate::records::column::Cell;

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
    pub(super) fn rests(&self, cell: &Cell, found: Timestamp, schema: u64, now: Duration) -> bool {
        let cells = self.cells();
        let Some(rest) = cells.get(cell) else { return false };
        found <= rest.newest && schema == rest.schema && now < rest.until
    }

    /// The cell waits for others, and rests for twice as long as the last time.
    pub(super) fn waits(&self, cell: &Cell, newest: Timestamp, schema: u64, now: Duration) {
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
