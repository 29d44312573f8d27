//! Estimates how much of a write buffer is superseded: values and removals under keys that
//! were written again.
//!
//! A write buffer keeps every value that was ever put under a key, and every removal. Reading
//! a range of keys steps over all of them. Suppose that a cell is overwritten or deleted
//! several times a second. Then each read of its column, and each scan across it, costs more
//! than the last, until the buffer is full. A buffer holds 100,000 small cells. Writing the
//! buffer out as a sorted run keeps only the last value of each key. So the committer also
//! seals a buffer when enough of it is superseded (`full.rs`).
//!
//! Writes are counted with one bit for each hash of a key, not with the keys themselves. This
//! takes some nanoseconds per write, and 8 KiB for each group. Bits are cleared every
//! [`ROUND`] writes, so that different keys rarely share one.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

/// The least number of superseded entries that makes a buffer worth sealing. A read of a
/// column steps over about this many entries at most.
pub(crate) const SUPERSEDED_MAX: u64 = 1024;
/// The bytes on disk that raise this number by one, because a merge may have to rewrite them
/// all.
pub(crate) const BYTES_FOR_ONE: u64 = 64 << 10;
/// The part of a buffer that must be superseded: one entry in this many.
const SUPERSEDED_PART: u64 = 4;
/// The number of writes after which the bits are cleared.
const ROUND: u32 = 4096;
/// Sixteen bits for each write of a round.
const BITS: usize = 16 * ROUND as usize;

/// Counts the entries written to the current buffer.
pub(crate) struct Churn {
    hasher: RandomState,
    /// One bit for each hash of a key that was written in this round.
    seen: Box<[u64; BITS / 64]>,
    /// The number of writes in this round.
    round: u32,
    written: u64,
    superseded: u64,
    /// The number of superseded entries from which the buffer is worth sealing.
    due: u64,
}

impl std::fmt::Debug for Churn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Churn { written, superseded, .. } = self;
        f.debug_struct("Churn")
            .field("written", written)
            .field("superseded", superseded)
            .finish_non_exhaustive()
    }
}

impl Default for Churn {
    fn default() -> Self {
        let (hasher, seen) = (RandomState::default(), Box::new([0; BITS / 64]));
        Churn { hasher, seen, round: 0, written: 0, superseded: 0, due: SUPERSEDED_MAX }
    }
}

impl Churn {
    /// Counts a write to a key.
    pub(crate) fn count(&mut self, key: &[u8]) {
        if self.round == ROUND {
            self.seen.fill(0);
            self.round = 0;
        }
        let bit = self.hasher.hash_one(key) as usize % BITS;
        let (word, mask) = (&mut self.seen[bit / 64], 1 << (bit % 64));
        self.superseded += u64::from(*word & mask != 0);
        *word |= mask;
        self.round += 1;
        self.written += 1;
    }

    /// Returns the number of superseded entries, if a large part of the buffer is superseded.
    pub(crate) fn much(&self) -> Option<u64> {
        let much = self.superseded >= self.due && self.superseded >= self.written / SUPERSEDED_PART;
        much.then_some(self.superseded)
    }

    /// Makes [`much`](Churn::much) return `None` until this many entries are superseded.
    pub(crate) fn put_off(&mut self, superseded: u64) {
        self.due = superseded;
    }

    /// Starts again with a new buffer.
    pub(crate) fn restart(&mut self) {
        self.seen.fill(0);
        (self.round, self.written, self.superseded) = (0, 0, 0);
        self.due = SUPERSEDED_MAX;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bigtable::{
        ConditionalMutation, Family, Layout, LocalityGroup, Mutation, Probe, Table, TableSchema,
        TimeRange, Timestamp,
    };
    use futures::executor::block_on;

    use super::*;
    use crate::{Durability, FjallStore, Options};

    /// An allowance for superseded entries in the buffer, and in runs that the engine kept for
    /// a snapshot.
    const STEPS_MAX: usize = 4 * SUPERSEDED_MAX as usize;
    const LONGEST: Duration = Duration::from_secs(60);

    #[test]
    fn a_cell_that_is_written_again_and_again_is_noticed_among_others() {
        let mut churn = Churn::default();
        let mut writes = 0u64;
        while churn.much().is_none() {
            churn.count(b"hot");
            churn.count(&writes.to_be_bytes());
            writes += 1;
            assert!(writes < 2 * SUPERSEDED_MAX, "{churn:?}");
        }
        assert!(writes >= SUPERSEDED_MAX - SUPERSEDED_MAX / 8, "{churn:?}");
        churn.put_off(2 * SUPERSEDED_MAX);
        assert_eq!(churn.much(), None);
        (0..2 * SUPERSEDED_MAX).for_each(|_| churn.count(b"hot"));
        assert!(churn.much().is_some());
        churn.restart();
        assert_eq!(churn.much(), None);
    }

    #[test]
    fn cells_that_are_written_once_are_not_taken_for_superseded() {
        let mut churn = Churn::default();
        for key in 0..50_000u64 {
            churn.count(&key.to_be_bytes());
            assert_eq!(churn.much(), None, "after {key} keys: {churn:?}");
        }
    }

    #[test]
    fn the_last_overwrite_of_a_cell_steps_over_no_more_than_one_of_the_first() {
        let family = Family::from_static("plain");
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let store = FjallStore::open(dir.path(), options).unwrap();
        let groups = vec![LocalityGroup::on_disk("plain", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        let any = || vec![Probe::new(family.clone(), "lock", TimeRange::ALL)];
        let set = || vec![Mutation::set(family.clone(), "lock", Timestamp::ZERO, "holder")];
        let delete = || vec![Mutation::delete(family.clone(), "lock", TimeRange::ALL)];
        let mutate = |then, otherwise| {
            let request = ConditionalMutation::new("row");
            let request = ConditionalMutation { predicate: any(), then, otherwise, ..request };
            block_on(table.check_and_mutate_row(request)).unwrap()
        };
        let info = table.opened().1;
        let keyspace = &info.groups[0].cells;
        for round in 0..3_000 {
            assert!(!mutate(Vec::new(), set()), "the lock is free");
            assert!(mutate(delete(), Vec::new()), "it is taken");
            // Only this cell exists, so a read of its column steps over every entry that is
            // kept.
            let begun = Instant::now();
            while keyspace.sealed_memtable_count() > 0 {
                assert!(begun.elapsed() < LONGEST, "a sealed buffer is not written out");
                std::thread::yield_now();
            }
            let steps = keyspace.approximate_len();
            assert!(steps <= STEPS_MAX, "{steps} steps for overwrite {round}");
        }
    }
}
