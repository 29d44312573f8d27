//! How much of a write buffer is superseded: values and removals under keys that were written
//! again.
//!
//! A write buffer keeps every value that was ever put under a key, and every removal. Reading a
//! range of keys steps over all of them. A cell that is overwritten or deleted several times a
//! second therefore makes each look at its column, and each scan across it, cost more than the
//! last, until the buffer is full; a buffer of small cells takes 100,000 of them. Writing the
//! buffer out as a sorted run keeps the last value of each key alone. So the committer also seals a
//! buffer when enough of it is superseded (`seal.rs`).
//!
//! Writes are counted by a bit for each hash of a key, not by the keys themselves: that takes some
//! nanoseconds and 8 KiB for each group. Bits are cleared every [`ROUND`] writes, so that different
//! keys seldom share one.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

/// So many superseded entries make a buffer worth sealing, at least. A look at a column steps over
/// no more than about so many.
pub(crate) const SUPERSEDED_MAX: u64 = 1024;
/// For each so many bytes on disk, one more: a merge may have to rewrite them all.
pub(crate) const BYTES_FOR_ONE: u64 = 64 << 10;
/// The part of a buffer that must be superseded: one entry in so many.
const SUPERSEDED_PART: u64 = 4;
/// After so many writes the bits are cleared.
const ROUND: u32 = 4096;
/// Sixteen for each write of a round.
const BITS: usize = 16 * ROUND as usize;

/// Counts the entries written to a buffer since it was begun.
pub(crate) struct Churn {
    hasher: RandomState,
    /// One for each hash of a key that was written in this round.
    seen: Box<[u64; BITS / 64]>,
    /// Writes of this round.
    round: u32,
    written: u64,
    superseded: u64,
    /// So many superseded entries are much.
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

    /// How many entries are superseded, if a good part of the buffer is.
    pub(crate) fn much(&self) -> Option<u64> {
        let much = self.superseded >= self.due && self.superseded >= self.written / SUPERSEDED_PART;
        much.then_some(self.superseded)
    }

    /// It is not much before so many entries are superseded.
    pub(crate) fn put_off(&mut self, superseded: u64) {
        self.due = superseded;
    }

    /// Begins anew, with a new buffer.
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

    /// What is superseded in the buffer, and in runs of which the engine took a snapshot to be
    /// still in use.
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
            // Nothing but this cell is there, so a look at its column steps over all that is kept.
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
