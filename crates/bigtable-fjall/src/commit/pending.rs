//! Holds the pending rows of one-step commits: a commit timestamp may have been taken for
//! them, and their writes are not visible yet.
//!
//! The committer places a row here before it takes the timestamp, and clears the row after the
//! batch is published. So a reader with a later timestamp finds the row here, or sees its
//! writes in the snapshot that it opens afterwards. A reader that finds a row here waits for
//! the group. One wait is enough, because later groups take timestamps above the reader's.
//!
//! Invariants: at most one group is being committed, and only the holder of the commit lock
//! places and clears rows. A reader waits at most once, so the number of waiters never exceeds
//! the number of reads in flight.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use bigtable::Timestamp;
use bigtable::sync::locked;
use futures::channel::oneshot;

use crate::layout::key::Key;
use crate::mutants::{self, off};

/// The capacity, in rows, that is kept from one group to the next.
const ROWS_KEPT: usize = 1024;

/// The rows of the group that is being committed.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Equal to `state.rows.len()`, so that readers can check it without the lock.
    len: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Rows in ascending order. The commit timestamp of each row will be above the timestamp
    /// beside it.
    rows: Vec<(Key, Timestamp)>,
    waiting: Vec<oneshot::Sender<()>>,
}

/// Completes when the group ends.
pub(crate) type GroupEnd = oneshot::Receiver<()>;

/// Clears the rows when dropped, however the commit ended.
pub(crate) struct Placed<'a>(&'a Pending);

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.rows.clear();
        state.rows.shrink_to(ROWS_KEPT);
        self.0.len.store(0, Ordering::SeqCst);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Dropping a sender wakes the reader that waits for it.
        drop(waiting);
    }
}

impl Pending {
    fn state(&self) -> MutexGuard<'_, State> {
        // The list is whole even if a thread panicked while it held this lock.
        locked(&self.state)
    }

    /// Makes readers wait for these rows. The caller holds the commit lock.
    pub(crate) fn place(&self, rows: impl Iterator<Item = (Key, Timestamp)>) -> Placed<'_> {
        let mut state = self.state();
        state.rows.extend(rows);
        state.rows.sort();
        self.len.store(state.rows.len(), Ordering::SeqCst);
        drop(state);
        Placed(self)
    }

    /// Returns the group end that a reader at `s` must wait for before it reads these rows.
    /// The bounds are the first key and the end, which is excluded.
    pub(crate) fn end_of_group(
        &self,
        s: Timestamp,
        bounds: impl FnOnce() -> (Key, Key),
    ) -> Option<GroupEnd> {
        let mut state = self.find(s, bounds)?;
        let (done, end) = oneshot::channel();
        state.waiting.push(done);
        Some(end)
    }

    /// Whether a reader at `s` must wait before it reads the rows between the bounds.
    pub(crate) fn blocks(&self, s: Timestamp, bounds: impl FnOnce() -> (Key, Key)) -> bool {
        self.find(s, bounds).is_some()
    }

    fn find(
        &self,
        s: Timestamp,
        bounds: impl FnOnce() -> (Key, Key),
    ) -> Option<MutexGuard<'_, State>> {
        if self.len.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let (from, end) = bounds();
        let state = self.state();
        let first = state.rows.partition_point(|(row, _)| *row < from);
        let first =
            (first + usize::from(off(mutants::FIRST_PENDING_IS_SKIPPED))).min(state.rows.len());
        let mut found = state.rows[first..].iter().take_while(|(row, _)| *row < end);
        // The commit timestamp will be above `after`, so the row can matter at `s` only if
        // `after < s`.
        found.any(|(_, after)| *after < s).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn ts(number: u64) -> Timestamp {
        Timestamp::new(number).unwrap()
    }

    fn key(row: &str) -> Key {
        Key::row(1, row.as_bytes())
    }

    #[test]
    fn a_reader_waits_for_the_rows_it_reads_and_for_no_others() {
        let pending = Pending::default();
        let row = |row: &'static str| move || (key(row), key(row).end());
        assert!(pending.end_of_group(ts(9), row("b")).is_none(), "nothing is under way");
        let placed = pending.place([(key("d"), ts(5)), (key("b"), ts(5))].into_iter());
        for (name, s, waits) in
            [("a", 9, false), ("b", 9, true), ("b", 5, false), ("c", 9, false), ("d", 6, true)]
        {
            assert_eq!(
                pending.end_of_group(ts(s), row(name)).is_some(),
                waits,
                "row {name} at {s}"
            );
        }
        let range = || (key("c"), key("z"));
        let mut published = pending.end_of_group(ts(9), range).unwrap();
        assert!((&mut published).now_or_never().is_none(), "the group is under way");
        drop(placed);
        assert!(published.now_or_never().is_some(), "the group has ended");
        assert!(pending.end_of_group(ts(9), range).is_none());
    }
}
