//! Says whether the next round of collection can wait, because stores drop nearly all of the
//! garbage by themselves.

use crate::gc::report::GcCounts;

/// Garbage that stores do not drop by themselves is little if at most one in so many rows had some.
const LITTLE: u64 = 16;

/// The findings of a round: the counts of its report, and what decides when the next one begins.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) counts: GcCounts,
    /// The rows that were read.
    pub(super) rows: u64,
    /// Cells whose last version, a deletion, was dropped.
    pub(super) gone: u64,
    /// Versions whose records are larger than stores drop by themselves.
    pub(super) large: u64,
    /// Tables whose stores do not drop superseded versions by themselves.
    pub(super) kept: u64,
}

impl Tally {
    /// Whether the next round can wait for longer than usual.
    pub(super) fn can_wait(&self) -> bool {
        let GcCounts { values, tombs, notifications, .. } = self.counts;
        let left = values + tombs + notifications + self.gone + self.large;
        self.kept == 0 && LITTLE * left <= self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_wait_only_if_stores_drop_nearly_all_by_themselves() {
        let counts = |values, tombs, notifications| GcCounts {
            values,
            tombs,
            notifications,
            writes: 1000,
            ..GcCounts::default()
        };
        let tally = Tally { rows: 160, ..Tally::default() };
        assert!(Tally::default().can_wait());
        assert!(Tally { counts: counts(5, 2, 1), gone: 1, large: 1, ..tally }.can_wait());
        for (counts, gone, large, kept) in [
            (counts(11, 0, 0), 0, 0, 0),
            (counts(0, 11, 0), 0, 0, 0),
            (counts(0, 0, 11), 0, 0, 0),
            (counts(0, 0, 0), 11, 0, 0),
            (counts(0, 0, 0), 0, 11, 0),
            (counts(0, 0, 0), 0, 0, 1),
        ] {
            let tally = Tally { counts, gone, large, kept, ..tally };
            assert!(!tally.can_wait(), "{tally:?}");
        }
    }
}
