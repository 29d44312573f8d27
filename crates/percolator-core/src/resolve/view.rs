//! A lock, and what will become of it, as programs see them.

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
    /// Where its primary is; `None` when this is it.
    pub primary: Option<CellName>,
    /// Whether commit will delete the cell.
    pub delete: bool,
    /// The client that holds it.
    pub owner: Incarnation,
    /// The owner's wall clock when it last wrote the lock, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The value that commit will make visible, if it travels in the lock.
    pub short_value: Option<Bytes>,
}

/// The fate of a lock.
///
/// See [`Client::lock_fate`](crate::Client::lock_fate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockFate {
    /// Its transaction is committed: the next who meets it rolls it forward.
    RollForward(Timestamp),
    /// Its transaction was rolled back: the next who meets it removes it.
    RollBack,
    /// Its owner is dead: the next who meets it decides, by rolling back.
    OwnerDead,
    /// Its owner has a liveness token and may still commit.
    OwnerAlive,
}
