//! The row operations of the protocol: every change that a transaction makes to a row, as the one
//! conditional mutation that makes it.
//!
//! The owner and whoever cleans up after it use the *same* builders, so that a roll-forward leaves
//! exactly what the commit would have left, notification included (H49).
//!
//! # Which lock stands for a transaction in a row
//!
//! A commit, a roll-forward and a roll-back of a row ask for *any* lock at `s` in the row, whatever
//! its column. That is right and enough for three reasons (H69):
//!
//! * *A lock at `s` is a lock of this transaction.* Start timestamps are never given twice, and
//!   nothing but a prewrite of `s` places a lock at `s`: it places all locks of the row in one
//!   mutation. A heartbeat only replaces the primary lock that it found.
//! * *Locks of one row may leave apart from each other.* A roll-back of the primary and an abort by
//!   the owner take the primary lock alone, with its tomb; commit and roll-back take all that are
//!   left; a resolver takes a row too wide for one request in parts. So no single lock stands for
//!   the others, and who asks for one column would leave the rest locked. "Any lock at `s`" is true
//!   until the last one has left.
//! * *What is written twice is the same.* The builder of each mutation names exact versions: while
//!   a lock of `s` is left in the row, collection has not passed `s`, and a repeated part changes
//!   nothing.
//!
//! The condition has the same length however many columns a row has and however long their names
//! are. So has that of a heartbeat and of a roll-back *on this very lock*: they compare the head of
//! the lock, which names owner and wall time, and not what it carries. A longer one could not be
//! sent to a store that bounds its predicates, and the row would stay locked for ever. How large
//! the mutations can become is in [`size`]; prewrite asks before it places a lock whether the store
//! takes them (H70).

pub(crate) mod size;

use bigtable::{ConditionalMutation, Mutation, Probe, RowKey, TimeRange, Timestamp};
use bytes::Bytes;

use crate::mutants::{self, off};
use crate::records::column::Column;
use crate::records::layout::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE};
use crate::records::lock::{Kind, Lock, PRIMARY_PREFIX};
use crate::records::write::{Write, pointing_at};

/// A cell of the row that a transaction has locked, with what its lock says.
#[derive(Debug, Clone)]
pub(crate) struct LockedCell {
    pub(crate) column: Column,
    pub(crate) lock: Lock,
}

/// A cell of the row that a transaction is about to lock. `value` is what is too long to travel in
/// the lock.
#[derive(Debug, Clone)]
pub(crate) struct NewLock {
    pub(crate) column: Column,
    pub(crate) lock: Lock,
    pub(crate) long_value: Option<Bytes>,
    /// Whether the column is observed. The lock says so, too, if the row's own operations notify.
    pub(crate) observed: bool,
}

/// Prewrite of one row: locks its cells unless one of them has a write at or after `start_ts`, a
/// tomb of this transaction, or a lock (paper Figure 6, `Prewrite`).
///
/// A lock of this transaction that is already there makes a repeated request do nothing, so that a
/// late copy cannot undo a heartbeat; whoever sent it finds its own lock and goes on (H15, H23).
pub(crate) fn prewrite(
    row: &RowKey,
    start_ts: Timestamp,
    cells: &[NewLock],
) -> ConditionalMutation {
    let (above, predicate) = (Some(start_ts), prewrite_predicate(start_ts, cells));
    let mut request = ConditionalMutation { above, predicate, ..ConditionalMutation::new(row) };
    for NewLock { column, lock, long_value, .. } in cells {
        let q = || column.to_bytes();
        let effect = &mut request.otherwise;
        effect.push(Mutation::set(LOCK, q(), start_ts, lock.encode()));
        if let Some(value) = long_value {
            effect.push(Mutation::set(DATA, q(), start_ts, value.clone()));
        }
        if lock.notify {
            effect.push(Mutation::set(NOTIFY, q(), start_ts, Bytes::new()));
        }
    }
    request
}

/// What must not be on the row's cells for a transaction to lock them.
pub(crate) fn prewrite_predicate(start_ts: Timestamp, cells: &[NewLock]) -> Vec<Probe> {
    let mut predicate = Vec::with_capacity(3 * cells.len());
    for NewLock { column, .. } in cells {
        let q = || column.to_bytes();
        predicate.extend([
            Probe::new(LOCK, q(), TimeRange::ALL),
            Probe::new(ROLLBACK, q(), TimeRange::at(start_ts)),
            Probe::new(WRITE, q(), TimeRange::since(start_ts)),
        ]);
    }
    predicate
}

/// Commit of a row's cells without a prewrite before it: what prewrite and commit leave together.
pub(crate) fn commit_one_step(
    start_ts: Timestamp,
    commit_ts: Timestamp,
    cells: &[NewLock],
) -> Vec<Mutation> {
    let mut effect = Vec::with_capacity(4 * cells.len());
    for NewLock { column, lock, long_value, .. } in cells {
        if let Some(value) = long_value {
            effect.push(Mutation::set(DATA, column.to_bytes(), start_ts, value.clone()));
        }
        push_commit(&mut effect, column, lock, start_ts, commit_ts);
    }
    effect
}

/// The write record of a cell, and its notification.
fn push_commit(
    effect: &mut Vec<Mutation>,
    column: &Column,
    lock: &Lock,
    start_ts: Timestamp,
    commit_ts: Timestamp,
) {
    let q = || column.to_bytes();
    let write = Write { start_ts, kind: lock.kind, short_value: lock.short_value.clone() };
    effect.push(Mutation::set(WRITE, q(), commit_ts, write.encode()));
    if lock.notify {
        effect.push(Mutation::set(NOTIFY, q(), commit_ts, Bytes::new()));
        // No other writer is undecided: the row has, or had until now, no lock but this one's.
        effect.push(Mutation::delete(NOTIFY, q(), TimeRange::below(commit_ts)));
    }
}

/// Commit and roll-forward of one row: "if a lock of it is there: write, unlock, notify; else
/// nothing" (H12). The cells are all those of the row that the transaction locked, or the first of
/// them where there are too many for one request.
pub(crate) fn commit(
    row: &RowKey,
    start_ts: Timestamp,
    commit_ts: Timestamp,
    cells: &[LockedCell],
) -> ConditionalMutation {
    let predicate = any_lock(start_ts, cells);
    let mut request = ConditionalMutation { predicate, ..ConditionalMutation::new(row) };
    for LockedCell { column, lock } in cells {
        request.then.push(Mutation::delete(LOCK, column.to_bytes(), TimeRange::at(start_ts)));
        push_commit(&mut request.then, column, lock, start_ts, commit_ts);
    }
    request
}

/// Commit of the primary's row: as [`commit`], but the primary lock alone decides, and an owner
/// whose start timestamp fell below the store's floor is refused.
pub(crate) fn commit_primary(
    row: &RowKey,
    start_ts: Timestamp,
    commit_ts: Timestamp,
    cells: &[LockedCell],
) -> ConditionalMutation {
    ConditionalMutation {
        predicate: vec![primary_lock(start_ts)],
        above: Some(start_ts),
        ..commit(row, start_ts, commit_ts, cells)
    }
}

/// Removes one transaction's locks and data from a row, if they are there.
pub(crate) fn roll_back(
    row: &RowKey,
    start_ts: Timestamp,
    cells: &[LockedCell],
) -> ConditionalMutation {
    let predicate = any_lock(start_ts, cells);
    let mut request = ConditionalMutation { predicate, ..ConditionalMutation::new(row) };
    for LockedCell { column, lock } in cells {
        request.then.extend(undo(column, start_ts, lock));
    }
    request
}

/// Rolls the primary back *on this very lock*: whoever wins this row transaction decides (H16).
pub(crate) fn roll_back_primary_lock(
    row: &RowKey,
    primary: &Column,
    start_ts: Timestamp,
    lock: &Lock,
) -> ConditionalMutation {
    let predicate = vec![this_lock(start_ts, lock)];
    let mut request = ConditionalMutation { predicate, ..ConditionalMutation::new(row) };
    request.then.extend(undo(primary, start_ts, lock));
    request.then.push(tomb(primary, start_ts));
    request
}

/// Puts a tomb on a primary that holds nothing of the transaction, so that a prewrite still on its
/// way is rejected when it arrives (H02).
pub(crate) fn roll_back_missing_primary(
    row: &RowKey,
    primary: &Column,
    start_ts: Timestamp,
) -> ConditionalMutation {
    ConditionalMutation {
        predicate: vec![primary_lock(start_ts), committed(primary, start_ts)],
        otherwise: vec![tomb(primary, start_ts)],
        ..ConditionalMutation::new(row)
    }
}

/// The owner gives up: unlocks its primary and leaves a tomb, unless it is committed already.
pub(crate) fn abort_primary(
    row: &RowKey,
    primary: &Column,
    start_ts: Timestamp,
    lock: &Lock,
) -> ConditionalMutation {
    let mut otherwise: Vec<_> = undo(primary, start_ts, lock).collect();
    if !off(mutants::NO_TOMB_ON_ABORT) {
        otherwise.push(tomb(primary, start_ts));
    }
    ConditionalMutation {
        predicate: vec![committed(primary, start_ts)],
        otherwise,
        ..ConditionalMutation::new(row)
    }
}

/// How many values the primary lock may have before its owner stops renewing it.
pub(crate) const HEARTBEAT_VALUES_MAX: usize = 16;

/// Replaces the primary lock by one with a newer wall time, if it is one that its owner wrote since
/// the last reply; a late or repeated request finds another lock and does nothing (H15).
pub(crate) fn heartbeat(
    row: &RowKey,
    primary: &Column,
    start_ts: Timestamp,
    old: &[Lock],
    new: &Lock,
) -> ConditionalMutation {
    ConditionalMutation {
        predicate: old.iter().map(|old| this_lock(start_ts, old)).collect(),
        then: vec![Mutation::set(LOCK, primary.to_bytes(), start_ts, new.encode())],
        ..ConditionalMutation::new(row)
    }
}

/// Deletes the versions of a notification that were seen and are not above `bound`, no others: a
/// newer one may stand for a change that nobody has handled (H47).
pub(crate) fn clear_seen(column: &Column, seen: &[Timestamp], bound: Timestamp) -> Vec<Mutation> {
    let delete = |time| Mutation::delete(NOTIFY, column.to_bytes(), time);
    if off(mutants::CLEARS_UNSEEN) {
        return vec![delete(TimeRange::ALL)];
    }
    let handled = seen.iter().filter(|version| **version <= bound);
    handled.map(|version| delete(TimeRange::at(*version))).collect()
}

/// A notification at `commit_ts` that no lock stands for: a weak one, or one for an observer that
/// was registered while the transaction ran.
pub(crate) fn notify(
    row: &RowKey,
    columns: &[Column],
    commit_ts: Timestamp,
) -> ConditionalMutation {
    let set = |column: &Column| Mutation::set(NOTIFY, column.to_bytes(), commit_ts, Bytes::new());
    let otherwise = columns.iter().map(set).collect();
    ConditionalMutation { otherwise, ..ConditionalMutation::new(row) }
}

/// Finds any lock that a transaction has in the row.
fn any_lock(start_ts: Timestamp, cells: &[LockedCell]) -> Vec<Probe> {
    let at = TimeRange::at(start_ts);
    let named = |cell: &LockedCell| Probe::new(LOCK, cell.column.to_bytes(), at);
    if off(mutants::A_PROBE_FOR_EACH_LOCK) {
        return cells.iter().map(named).collect();
    }
    if off(mutants::ONE_LOCK_STANDS_FOR_ALL) {
        let shortest = cells.iter().min_by_key(|cell| cell.column.as_bytes().len());
        return shortest.map(named).into_iter().collect();
    }
    vec![Probe::family(LOCK, at)]
}

/// Finds the transaction's primary lock, in the row that has it: no other lock at `s` begins so.
fn primary_lock(start_ts: Timestamp) -> Probe {
    Probe::family(LOCK, TimeRange::at(start_ts)).with_value_prefix(PRIMARY_PREFIX)
}

/// Finds exactly this lock, and none that its owner has put in its place.
fn this_lock(start_ts: Timestamp, lock: &Lock) -> Probe {
    let value = if off(mutants::WHOLE_LOCK_IS_COMPARED) { lock.encode() } else { lock.head() };
    Probe::family(LOCK, TimeRange::at(start_ts)).with_value_prefix(value)
}

fn committed(cell: &Column, start_ts: Timestamp) -> Probe {
    Probe::new(WRITE, cell.to_bytes(), TimeRange::since(start_ts))
        .with_value_prefix(pointing_at(start_ts))
}

fn tomb(primary: &Column, start_ts: Timestamp) -> Mutation {
    Mutation::set(ROLLBACK, primary.to_bytes(), start_ts, Bytes::new())
}

/// Takes back what prewrite wrote. The data too: a read of the newest data must not meet a value
/// that never was committed (H32).
fn undo(column: &Column, start_ts: Timestamp, lock: &Lock) -> impl Iterator<Item = Mutation> {
    let long = lock.short_value.is_none() && lock.kind == Kind::Put;
    let families = [Some(LOCK), long.then_some(DATA), lock.notify.then_some(NOTIFY)];
    let column = column.to_bytes();
    families
        .into_iter()
        .flatten()
        .map(move |family| Mutation::delete(family, column.clone(), TimeRange::at(start_ts)))
}
