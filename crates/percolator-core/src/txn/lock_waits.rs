//! Lists the reads of this client that wait for a lock, at most 4,096. The list shows an
//! operator which readers a lock delays.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;

use crate::CellName;

/// How many waits are known; others wait unseen.
const WAITS_MAX: usize = 4_096;

/// A reader that waits for a lock.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// assert!(client.lock_waiters().await?.is_empty());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWaiter {
    /// The locked cell.
    pub cell: CellName,
    /// The start timestamp of the transaction that holds the lock.
    pub lock_ts: Timestamp,
    /// The timestamp that the waiter reads at: the start timestamp of its transaction.
    pub at: Timestamp,
    /// How long it has waited.
    pub waited: Duration,
}

/// The waits of a client.
#[derive(Debug, Default)]
pub(crate) struct LockWaits(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    waits: BTreeMap<u64, Wait>,
}

#[derive(Debug)]
struct Wait {
    cell: CellName,
    lock_ts: Timestamp,
    at: Timestamp,
    since: Duration,
}

/// A wait, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    waits: &'a LockWaits,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        locked(&self.waits.0).waits.remove(&self.number);
    }
}

impl LockWaits {
    /// Notes that a reader at `at` has waited since `since` for the lock of a transaction.
    pub(crate) fn begin(
        &self,
        cell: CellName,
        lock_ts: Timestamp,
        at: Timestamp,
        since: Duration,
    ) -> Waiting<'_> {
        let mut inner = locked(&self.0);
        inner.next += 1;
        let number = inner.next;
        if inner.waits.len() < WAITS_MAX {
            inner.waits.insert(number, Wait { cell, lock_ts, at, since });
        }
        Waiting { waits: self, number }
    }

    /// How many waits are known.
    pub(crate) fn len(&self) -> usize {
        locked(&self.0).waits.len()
    }

    /// At most so many waits, the oldest first.
    pub(crate) fn list(&self, now: Duration, limit: usize) -> Vec<LockWaiter> {
        let inner = locked(&self.0);
        let waiter = |wait: &Wait| LockWaiter {
            cell: wait.cell.clone(),
            lock_ts: wait.lock_ts,
            at: wait.at,
            waited: now.saturating_sub(wait.since),
        };
        inner.waits.values().take(limit).map(waiter).collect()
    }
}
