//! Builds the row operations of the protocol. Every change of a row is one conditional
//! mutation, except in a one-step commit, which changes several rows at once.
//!
//! The owner and a client that cleans up after it use the *same* builders. So a roll-forward
//! leaves exactly the records that the commit would have left, notification included (H49).
//!
//! # Which lock stands for a transaction in a row
//!
//! A commit of a secondary row, a roll-forward and a roll-back probe for *any* lock at `s` in
//! the row, whatever its column. A commit of the primary's row probes for the primary lock.
//! This is right and sufficient for three reasons (H69):
//!
//! * *A lock at `s` is a lock of this transaction*: Start timestamps are never issued twice,
//!   and only a prewrite of `s` places a lock at `s`. It places all locks of the row in one
//!   mutation. A heartbeat only replaces the primary lock that it found.
//! * *The locks of one row may be removed separately*: A roll-back of the primary, and an
//!   abort by the owner, remove only the primary lock and leave its tomb. Commit and roll-back
//!   remove all remaining locks. A resolver handles a row that is too wide for one request in
//!   parts. So no single lock stands for the others. If a request probed for one column whose
//!   lock is gone already, the other locks would stay. A probe for any lock at `s` finds one
//!   until the last lock is removed.
//! * *Repeated writes are equal*: The builder of each mutation names exact versions, except
//!   that a commit deletes all older notifications. While a lock of `s` is left in the row,
//!   collection has not passed `s`, so a repeated part changes nothing.
//!
//! The condition has the same length however many columns a row has and however long their
//! names are. This also holds for a heartbeat and for a roll-back *on this very lock*. They
//! compare the head of the lock, which has its owner and wall time, and not the primary's name
//! or the value.
//!
//! A store may bound its predicates. A longer condition could then not be sent, and the row
//! would stay locked forever. [`size`] computes how large the mutations can become. Before
//! prewrite places a lock, it checks that the store takes them (H70).

pub(crate) mod size;

use bigtable::{ConditionalMutation, Mutation, Probe, RowKey, TimeRange, Timestamp};
use bytes::Bytes;

use crate::mutants::{self, off};
use crate::records::column::Column;
use crate::records::layout::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE};
use crate::records::lock::{Intent, Kind, Lock, PRIMARY_PREFIX};
use crate::records::write::{Write, pointing_at};

/// A cell that a transaction has locked.
#[derive(Debug, Clone)]
pub(crate) struct LockedCell {
    pub(crate) column: Column,
    pub(crate) intent: Intent,
}

/// A cell that a transaction is about to write. `long_value` is a value that is too long for a
/// lock.
#[derive(Debug, Clone)]
pub(crate) struct PlannedCell {
    pub(crate) column: Column,
    pub(crate) intent: Intent,
    pub(crate) long_value: Option<Bytes>,
    pub(crate) is_primary: bool,
    /// No write of the cell may lie at or above this timestamp. It is the start timestamp, except
    /// for the acknowledgement of a hinted run, where it is lower (`observe/hinted.rs`).
    pub(crate) unwritten_since: Timestamp,
    /// Whether the column is observed. If the row's own operations notify, the lock says so,
    /// too.
    pub(crate) observed: bool,
}

impl PlannedCell {
    /// Whether no row operation leaves the cell's notification, because it lies apart.
    pub(crate) fn is_notified_apart(&self) -> bool {
        self.observed && !self.intent.notify
    }
}

/// Builds the prewrite of one row (paper Figure 6, `Prewrite`). It locks the cells unless one
/// of them has a write at or after `start_ts`, a tomb of this transaction, or a lock. For the
/// acknowledgement of a hinted run, it looks for earlier writes, too.
///
/// If this transaction's lock is already there, a repeated request does nothing, so a late
/// copy cannot undo a heartbeat (H15). The sender of the repeated request finds its own lock
/// and goes on (H23).
pub(crate) fn prewrite(
    row: &RowKey,
    start_ts: Timestamp,
    cells: &[PlannedCell],
    lock_of: impl Fn(&PlannedCell) -> Lock,
) -> ConditionalMutation {
    let (above, predicate) = (Some(start_ts), prewrite_predicate(start_ts, cells));
    let mut request = ConditionalMutation { above, predicate, ..ConditionalMutation::new(row) };
    for cell in cells {
        let PlannedCell { column, intent, long_value, .. } = cell;
        let q = || column.to_bytes();
        let effect = &mut request.otherwise;
        effect.push(Mutation::set(LOCK, q(), start_ts, lock_of(cell).encode()));
        if let Some(value) = long_value {
            effect.push(Mutation::set(DATA, q(), start_ts, value.clone()));
        }
        if intent.notify {
            effect.push(Mutation::set(NOTIFY, q(), start_ts, Bytes::new()));
        }
    }
    request
}

/// Probes for the records that prevent a transaction from locking the row's cells.
pub(crate) fn prewrite_predicate(start_ts: Timestamp, cells: &[PlannedCell]) -> Vec<Probe> {
    let mut predicate = Vec::with_capacity(3 * cells.len());
    for PlannedCell { column, unwritten_since, .. } in cells {
        let q = || column.to_bytes();
        predicate.push(Probe::new(LOCK, q(), TimeRange::ALL));
        predicate.push(Probe::new(ROLLBACK, q(), TimeRange::at(start_ts)));
        predicate.push(Probe::new(WRITE, q(), TimeRange::since(*unwritten_since)));
    }
    predicate
}

/// Commit of a row's cells without a prewrite: writes the records that prewrite and commit
/// together leave. Only a value that is too long for a lock may lie elsewhere: in the write record
/// if it has at most `record_value_bytes_max` bytes.
pub(crate) fn commit_one_step(
    start_ts: Timestamp,
    commit_ts: Timestamp,
    cells: &[PlannedCell],
    record_value_bytes_max: usize,
) -> Vec<Mutation> {
    let mut effect = Vec::with_capacity(4 * cells.len());
    for PlannedCell { column, intent, long_value, .. } in cells {
        let value = match long_value {
            Some(value) if value.len() > record_value_bytes_max => {
                effect.push(Mutation::set(DATA, column.to_bytes(), start_ts, value.clone()));
                &None
            }
            Some(_) => long_value,
            None => &intent.short_value,
        };
        push_commit(&mut effect, column, intent, value, start_ts, commit_ts);
    }
    effect
}

/// Adds the write record of a cell, with the value if it lies there, and the notification.
fn push_commit(
    effect: &mut Vec<Mutation>,
    column: &Column,
    intent: &Intent,
    value: &Option<Bytes>,
    start_ts: Timestamp,
    commit_ts: Timestamp,
) {
    let q = || column.to_bytes();
    let write = Write::encode(start_ts, intent.kind, value.as_deref());
    effect.push(Mutation::set(WRITE, q(), commit_ts, write));
    if intent.notify {
        effect.push(Mutation::set(NOTIFY, q(), commit_ts, Bytes::new()));
        // Older notifications can go: no other writer of the cell is undecided, because this
        // transaction holds its only lock, or held it until now.
        effect.push(Mutation::delete(NOTIFY, q(), TimeRange::below(commit_ts)));
    }
}

/// Commit and roll-forward of one row: if a lock of the transaction is there, write, unlock
/// and notify; otherwise do nothing (H12). The cells are all those of the row that the
/// transaction locked. If they are too many for one request, they are the first of them.
pub(crate) fn commit(
    row: &RowKey,
    start_ts: Timestamp,
    commit_ts: Timestamp,
    cells: &[LockedCell],
) -> ConditionalMutation {
    let predicate = any_lock(start_ts, cells);
    let mut request = ConditionalMutation { predicate, ..ConditionalMutation::new(row) };
    for LockedCell { column, intent } in cells {
        request.then.push(Mutation::delete(LOCK, column.to_bytes(), TimeRange::at(start_ts)));
        push_commit(&mut request.then, column, intent, &intent.short_value, start_ts, commit_ts);
    }
    request
}

/// Commit of the primary's row. It is as [`commit`], except that the primary lock alone
/// decides. If the owner's start timestamp fell below the store's floor, the store refuses it.
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

/// Removes one transaction's locks and data from a row, if the locks are there.
pub(crate) fn roll_back(
    row: &RowKey,
    start_ts: Timestamp,
    cells: &[LockedCell],
) -> ConditionalMutation {
    let predicate = any_lock(start_ts, cells);
    let mut request = ConditionalMutation { predicate, ..ConditionalMutation::new(row) };
    for LockedCell { column, intent } in cells {
        request.then.extend(undo(column, start_ts, intent));
    }
    request
}

/// Rolls the primary back *on this very lock*. A heartbeat or a commit that comes first makes
/// it do nothing (H16).
pub(crate) fn roll_back_primary_lock(
    row: &RowKey,
    primary: &Column,
    start_ts: Timestamp,
    lock: &Lock,
) -> ConditionalMutation {
    let predicate = vec![this_lock(start_ts, lock)];
    let mut request = ConditionalMutation { predicate, ..ConditionalMutation::new(row) };
    request.then.extend(undo(primary, start_ts, &lock.intent));
    request.then.push(tomb(primary, start_ts));
    request
}

/// Puts a tomb on a primary that holds nothing of the transaction. A prewrite that is still in
/// flight is then rejected when it arrives (H02).
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

/// Abort by the owner: unlocks its primary and leaves a tomb, unless the transaction is
/// already committed.
pub(crate) fn abort_primary(
    row: &RowKey,
    primary: &Column,
    start_ts: Timestamp,
    intent: &Intent,
) -> ConditionalMutation {
    let mut otherwise: Vec<_> = undo(primary, start_ts, intent).collect();
    if !off(mutants::NO_TOMB_ON_ABORT) {
        otherwise.push(tomb(primary, start_ts));
    }
    ConditionalMutation {
        predicate: vec![committed(primary, start_ts)],
        otherwise,
        ..ConditionalMutation::new(row)
    }
}

/// How many values the primary lock may have before its owner stops renewing it. The owner
/// does not know which of them is in the store.
pub(crate) const HEARTBEAT_VALUES_MAX: usize = 16;

/// Replaces the primary lock by one with a newer wall time, if it is a lock that its owner
/// wrote since the last reply. A late or repeated request finds another lock and does nothing
/// (H15).
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

/// Deletes the versions of a notification that were seen and are not above `bound`, and no
/// others. A newer version may stand for a change that no observer has handled (H47).
pub(crate) fn clear_seen(column: &Column, seen: &[Timestamp], bound: Timestamp) -> Vec<Mutation> {
    let delete = |time| Mutation::delete(NOTIFY, column.to_bytes(), time);
    if off(mutants::CLEARS_UNSEEN) {
        return vec![delete(TimeRange::ALL)];
    }
    let handled = seen.iter().filter(|version| **version <= bound);
    handled.map(|version| delete(TimeRange::at(*version))).collect()
}

/// A notification at `commit_ts` without a lock: a weak one, or one for an observer that was
/// registered while the transaction ran.
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

/// Finds the transaction's primary lock in its row. No other lock at `s` begins with this
/// prefix.
fn primary_lock(start_ts: Timestamp) -> Probe {
    Probe::family(LOCK, TimeRange::at(start_ts)).with_value_prefix(PRIMARY_PREFIX)
}

/// Finds exactly this lock, and no lock that its owner has written over it.
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

/// Removes the records that prewrite wrote. The data goes too, because a read of the newest
/// data must not find a value that was never committed (H32).
fn undo(column: &Column, start_ts: Timestamp, intent: &Intent) -> impl Iterator<Item = Mutation> {
    let long = intent.short_value.is_none() && intent.kind == Kind::Put;
    let families = [Some(LOCK), long.then_some(DATA), intent.notify.then_some(NOTIFY)];
    let column = column.to_bytes();
    families
        .into_iter()
        .flatten()
        .map(move |family| Mutation::delete(family, column.clone(), TimeRange::at(start_ts)))
}
