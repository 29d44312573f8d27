//! Remembers which cells rest, because they wait for observers of other processes.
//!
//! A rest only delays: scans skip the cell for a while. It ends early when the cell has a
//! newer notification or the schema has changed, since then this process may have work there.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;

use crate::records::column::Cell;

/// How long a cell rests: the first time, and at most.
const RESTS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// Most cells whose rests are remembered.
const CELLS_MAX: usize = 20_000;

/// The cells that wait for observers of other processes.
#[derive(Debug, Default)]
pub(super) struct Elsewhere(Mutex<BTreeMap<Cell, Rest>>);

/// The rest of one cell.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// The cell's newest notification. A newer one belongs to a change that this process has
    /// not handled.
    newest: Timestamp,
    /// The version of the schema that names the other observers. In a newer version they may
    /// be retired.
    schema: u64,
    length: Duration,
    until: Duration,
}

impl Elsewhere {
    fn cells(&self) -> MutexGuard<'_, BTreeMap<Cell, Rest>> {
        locked(&self.0)
    }

    /// Whether a scan that has found this notification skips the cell for now.
    pub(super) fn rests(&self, cell: &Cell, found: Timestamp, schema: u64, now: Duration) -> bool {
        let cells = self.cells();
        let Some(rest) = cells.get(cell) else { return false };
        found <= rest.newest && schema == rest.schema && now < rest.until
    }

    /// Notes that the cell waits for other observers. It rests for twice as long as the last
    /// time.
    pub(super) fn waits(&self, cell: &Cell, newest: Timestamp, schema: u64, now: Duration) {
        let mut cells = self.cells();
        if cells.len() >= CELLS_MAX && !cells.contains_key(cell) {
            // Cells that still wait will be noted again.
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

    /// Notes that the cell no longer waits for other observers.
    pub(super) fn forget(&self, cell: &Cell) {
        self.cells().remove(cell);
    }
}
