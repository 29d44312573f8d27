//! Explains a cell: what each of its records means, and what a reader at a timestamp would do.
//!
//! [`CellState`] is everything that decides this, read without changing anything.
//! [`CellState::explain`] is a pure function of it, so the command line and a page in a
//! browser say the same. The simulator compares this reader with the real one: for any records
//! in a store, both must return the same outcome at the same timestamp.
//!
//! Two outcomes are predictions, because another client decides them later:
//! * A lock whose owner lives may still be committed.
//! * An owner that lost its token may commit before the next reader rolls it back.

mod lines;
mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use bigtable::{RowKey, Timestamp};
use bytes::Bytes;

use crate::gc::unfenced::safe_point;
use crate::records::column::{Cell, CellName, Table};
use crate::records::schema::Observed;
use crate::resolve::inspect::{Moment, history, lock_fate};
use crate::resolve::view::LockFate;
use crate::shared::Shared;
use crate::txn::get::too_old;
use crate::{Column, Error, Result};

/// How often a cell is read again because garbage collection overtook the read.
const LOOKS_MAX: usize = 8;

/// Everything that decides what the records of a cell mean.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::Column;
/// use percolator::admin::ReadOutcome;
/// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
/// client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
/// let state = client.cell_state(&accounts, "Bob", &bal).await?;
/// let reader = state.explain(None).reader;
/// assert!(matches!(reader.outcome, ReadOutcome::Value { value, .. } if value == "$10"));
/// assert_eq!(state.explain(Some(Default::default())).reader.outcome, ReadOutcome::Absent);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellState {
    /// The cell.
    pub cell: CellName,
    /// Everything that Percolator stores for the cell, newest first.
    pub moments: Vec<Moment>,
    /// The fate of each lock in it, by start timestamp.
    pub fates: BTreeMap<Timestamp, LockFate>,
    /// The observers of its column.
    pub observers: Vec<Observed>,
    /// The observers among these that are paused.
    pub paused: Vec<Observed>,
    /// The safe point. Clients begin no read below it.
    pub floor: Timestamp,
    /// The latest timestamp issued.
    pub latest: Timestamp,
    /// The wall clock when the state was read, in milliseconds since 1970.
    pub wall_ms: u64,
    /// How long a reader waits for a lock whose owner lives.
    pub patience: Duration,
}

/// The meaning of a cell's records, and the steps of a reader.
///
/// See [`CellState`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The meaning of each record, newest first.
    pub lines: Vec<Explanation>,
    /// The steps of a reader, and their outcome.
    pub reader: ReaderView,
}

/// The meaning of one record.
///
/// See [`CellState`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The record's timestamp.
    pub timestamp: Timestamp,
    /// The kind of the record.
    pub kind: Meaning,
    /// The same in words.
    pub text: String,
}

macro_rules! names {
    ($(#[$of:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident $name:literal,)* }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $type { $($(#[$doc])* $variant,)* }

        impl $type {
            /// The name for programs. It never changes.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }
        }
    };
}

names! {
    /// The kind of a record.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// assert_eq!(percolator::admin::Meaning::Committed.name(), "committed");
    /// ```
    Meaning {
        /// A write record: a value is visible from its timestamp on.
        Committed "committed",
        /// A write record: the cell is deleted from its timestamp on.
        Deleted "deleted",
        /// A value that a write record, or a lock, points at.
        Value "value",
        /// A value that no record points at. No reader ever returns it.
        Leftover "leftover",
        /// A lock of a committed transaction.
        RollForward "lock_roll_forward",
        /// A lock of a transaction that was rolled back.
        RollBack "lock_roll_back",
        /// A lock of an undecided transaction whose owner is dead.
        OwnerDead "lock_owner_dead",
        /// A lock of an undecided transaction whose owner lives.
        OwnerAlive "lock_owner_alive",
        /// A rollback record.
        Tomb "rolled_back",
        /// A notification that came with a lock.
        WithLock "notified_by_lock",
        /// A notification of a change that observers have to handle.
        Dirty "dirty",
        /// A notification that no observer has to handle any more.
        Stale "stale",
        /// An acknowledgement of an observer.
        Acknowledged "acknowledged",
        /// A write record that garbage collection may drop.
        Collectable "collectable",
    }
}

names! {
    /// The step that a reader takes before it reads.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// assert_eq!(percolator::admin::FirstStep::RollForward.name(), "roll_forward");
    /// ```
    FirstStep {
        /// It turns the lock into a write record, because the transaction is committed.
        RollForward "roll_forward",
        /// It removes the lock, because the transaction was rolled back.
        RollBack "roll_back",
        /// It rolls the dead owner's transaction back, and then removes the lock.
        Decide "decide",
    }
}

/// A reader of the cell: its steps, and their outcome.
///
/// See [`CellState`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderView {
    /// The timestamp at which it reads.
    pub at: Timestamp,
    /// The step that it takes about a lock before it reads.
    pub first: Option<FirstStep>,
    /// The outcome of its read.
    pub outcome: ReadOutcome,
    /// Why, in words.
    pub because: String,
}

/// The outcome of a read.
///
/// See [`CellState`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// It returns a value.
    Value {
        /// The value.
        value: Bytes,
        /// The transaction that wrote it.
        start_ts: Timestamp,
        /// From when on the value is visible.
        commit_ts: Timestamp,
    },
    /// It returns nothing, because the cell was not written yet or was deleted.
    Absent,
    /// It waits for the lock of this transaction, whose owner lives. If the wait lasts too
    /// long, it fails with [`Error::Locked`].
    Waits {
        /// The transaction.
        lock_ts: Timestamp,
    },
    /// It fails with [`Error::TooOld`].
    TooOld,
    /// It fails with [`Error::NotIssued`].
    NotIssued,
    /// It fails with [`Error::Corrupt`], because a write record points at a missing value.
    Damaged,
}

impl ReadOutcome {
    /// The name for programs. It never changes.
    pub fn name(&self) -> &'static str {
        match self {
            ReadOutcome::Value { .. } => "value",
            ReadOutcome::Absent => "absent",
            ReadOutcome::Waits { .. } => "waits",
            ReadOutcome::TooOld => "too_old",
            ReadOutcome::NotIssued => "not_issued",
            ReadOutcome::Damaged => "damaged",
        }
    }
}

impl CellState {
    /// Explains the cell, and what a reader at timestamp `at` would do. Without `at`, the
    /// reader reads at the latest timestamp. Reads nothing from the store and changes nothing.
    pub fn explain(&self, at: Option<Timestamp>) -> Explained {
        let reader = reader::reader(self, at.unwrap_or(self.latest));
        Explained { lines: lines::lines(self), reader }
    }

    /// The commit timestamp of the cell's newest change. Locks of committed transactions
    /// count.
    fn newest_commit(&self) -> Option<Timestamp> {
        let written = self.moments.iter().filter(|moment| moment.write.is_some());
        let forward = self.fates.values().filter_map(|fate| match fate {
            LockFate::RollForward(commit_ts) => Some(*commit_ts),
            _ => None,
        });
        written.map(|moment| moment.timestamp).chain(forward).max()
    }

    /// The timestamp up to which an observer has acknowledged changes.
    fn acknowledged(&self, observer: &str) -> Option<Timestamp> {
        let acks = self.moments.iter().flat_map(|moment| &moment.acks);
        acks.filter(|(name, _)| name == observer).map(|(_, upto)| *upto).max()
    }
}

/// Reads the state of a cell. The history is as of a timestamp that was the latest one before
/// the read. The read waits for pending one-step commits below that timestamp.
pub(crate) async fn cell_state(
    shared: &Shared,
    table: &Table,
    row: impl Into<RowKey>,
    column: &Column,
) -> Result<CellState> {
    let row = row.into();
    let (latest, moments) = look(shared, table, &row, column).await?;
    let mut fates = BTreeMap::new();
    for lock in moments.iter().filter_map(|moment| moment.lock.as_ref()) {
        fates.insert(lock.start_ts, lock_fate(shared, lock).await?);
    }
    let schema = shared.known_schema();
    let of_column = || schema.of(table.name(), column);
    Ok(CellState {
        cell: Cell::new(table, &row, column).location(),
        moments,
        fates,
        observers: of_column().cloned().collect(),
        paused: of_column().filter(|observed| schema.is_paused(observed)).cloned().collect(),
        // Read the floor last. Everything above it was still there when the history was read.
        floor: safe_point(shared).await?,
        latest,
        wall_ms: shared.runtime().wall_ms(),
        patience: shared.options().read_wait_max,
    })
}

async fn look(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    column: &Column,
) -> Result<(Timestamp, Vec<Moment>)> {
    let mut looks = 0;
    loop {
        let latest = shared.oracle().peek().await?;
        match history(shared, table, row, column, Some(latest)).await {
            Ok(moments) => return Ok((latest, moments)),
            // Collection has passed this timestamp since. Take a newer one.
            Err(Error::Store(error)) if looks < LOOKS_MAX => match too_old(error) {
                Error::TooOld { .. } => looks += 1,
                error => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
}
