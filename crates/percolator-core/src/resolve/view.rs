//! Defines a lock and its fate, as programs see them.

use bigtable::Timestamp;
use bytes::Bytes;

use crate::{CellName, Incarnation};

/// A lock record.
///
/// See [`Moment`](crate::Moment) for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// The locked cell.
    pub cell: CellName,
    /// The start timestamp of the transaction that holds it.
    pub start_ts: Timestamp,
    /// The transaction's primary; `None` if this lock is the primary.
    pub primary: Option<CellName>,
    /// Whether commit will delete the cell.
    pub delete: bool,
    /// The client that placed it.
    pub owner: Incarnation,
    /// The owner's wall clock when it last wrote the lock, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The value that commit will make visible, if it is stored in the lock.
    pub short_value: Option<Bytes>,
}

/// The fate of a lock.
///
/// See [`Client::lock_fate`](crate::Client::lock_fate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockFate {
    /// Its transaction is committed. The next client that finds the lock rolls it forward.
    RollForward(Timestamp),
    /// Its transaction was rolled back. The next client that finds the lock removes it.
    RollBack,
    /// Its owner is dead. The next client that finds the lock decides by rolling the
    /// transaction back.
    OwnerDead,
    /// Its owner has a liveness token and may still commit.
    OwnerAlive,
}
