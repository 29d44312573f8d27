//! Counts conflicts and waits by cell, and keeps the last conflicts with both transactions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator::Timestamp;
use percolator::store::sync::locked;

use crate::cells::Place;

/// The most cells that are counted. When there are more, all counts are halved, and cells at zero
/// are dropped.
const CELLS_MAX: usize = 4_096;
/// The most conflicts that are kept.
const CONFLICTS_MAX: usize = 1_024;

/// Conflicts and waits at one cell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Heat {
    /// Transactions that were aborted because of this cell.
    pub(crate) conflicts: u64,
    /// How often a client found a lock there.
    pub(crate) waits: u64,
    /// How long clients waited for locks there, all together.
    pub(crate) waited: Duration,
    /// The lock that was found last, and how long its finder had waited by then.
    last: Option<(Timestamp, Duration)>,
}

/// A conflict.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Clash {
    pub(crate) cell: Place,
    pub(crate) loser: Arc<str>,
    pub(crate) loser_start_ts: Timestamp,
    pub(crate) winner_start_ts: Timestamp,
    pub(crate) wall_ms: u64,
}

/// Counts by cell, and the last conflicts.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    cells: Mutex<BTreeMap<Place, Heat>>,
    clashes: Mutex<VecDeque<Clash>>,
}

impl Contention {
    fn heat(&self, cell: Place, change: impl FnOnce(&mut Heat)) {
        let mut cells = locked(&self.cells);
        if cells.len() >= CELLS_MAX && !cells.contains_key(&cell) {
            cells.retain(|_, heat| {
                heat.conflicts /= 2;
                heat.waits /= 2;
                heat.waited /= 2;
                heat.conflicts + heat.waits > 0
            });
            // No count fell to zero, because all cells were equally hot. The first cells in order
            // are dropped.
            while cells.len() >= CELLS_MAX {
                cells.pop_first();
            }
        }
        change(cells.entry(cell).or_default());
    }

    pub(crate) fn conflict(&self, clash: Clash) {
        self.heat(clash.cell.clone(), |heat| heat.conflicts += 1);
        let mut clashes = locked(&self.clashes);
        if clashes.len() >= CONFLICTS_MAX {
            clashes.pop_front();
        }
        clashes.push_back(clash);
    }

    /// Counts a lock that a client found, and that it has waited for during `waited` so far. A
    /// client that waits finds the same lock again and again. Returns the waiting time since the
    /// lock was last found.
    pub(crate) fn wait(&self, cell: Place, lock_ts: Timestamp, waited: Duration) -> Duration {
        let mut longer = waited;
        self.heat(cell, |heat| {
            if let Some((ts, before)) = heat.last
                && ts == lock_ts
            {
                longer = waited.saturating_sub(before);
            }
            heat.waits += u64::from(waited.is_zero());
            heat.waited += longer;
            heat.last = Some((lock_ts, waited));
        });
        longer
    }

    /// Returns the cells with the most conflicts and waits, the worst first.
    pub(crate) fn hottest(&self, limit: usize) -> Vec<(Place, Heat)> {
        let cells = locked(&self.cells);
        let mut all: Vec<_> = cells.iter().collect();
        all.sort_by_key(|(_, heat)| std::cmp::Reverse((heat.conflicts + heat.waits, heat.waited)));
        all.into_iter().take(limit).map(|(cell, heat)| (cell.clone(), *heat)).collect()
    }

    /// Returns the last conflicts, the newest first.
    pub(crate) fn clashes(&self, limit: usize) -> Vec<Clash> {
        locked(&self.clashes).iter().rev().take(limit).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use percolator::Column;

    use super::*;

    const BAL: Column = Column::literal("bal");

    #[test]
    fn a_wait_that_is_seen_several_times_counts_once() {
        let contention = Contention::default();
        let cell = Place::new("t", &"a".into(), &BAL);
        let ts = Timestamp::new(7).unwrap();
        let sum: Duration = [0, 1, 3, 7]
            .map(|ms| contention.wait(cell.clone(), ts, Duration::from_millis(ms)))
            .into_iter()
            .sum();
        assert_eq!(sum, Duration::from_millis(7));
        let (_, heat) = contention.hottest(1).remove(0);
        assert_eq!((heat.waits, heat.waited), (1, Duration::from_millis(7)));
    }

    #[test]
    fn a_hot_cell_stays_while_cold_ones_come_and_go() {
        let contention = Contention::default();
        let hot = Place::new("t", &"hot".into(), &BAL);
        for _ in 0..1_000 {
            contention.heat(hot.clone(), |heat| heat.conflicts += 1);
        }
        for n in 0..3 * CELLS_MAX {
            let cell = Place::new("t", &format!("cold{n}").into(), &BAL);
            contention.wait(cell, Timestamp::ZERO, Duration::ZERO);
        }
        assert!(locked(&contention.cells).len() <= CELLS_MAX);
        let (first, heat) = contention.hottest(1).remove(0);
        assert_eq!(first, hot);
        assert!(heat.conflicts >= 100, "{heat:?}");
    }
}
