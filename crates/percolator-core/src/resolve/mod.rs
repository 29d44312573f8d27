//! Resolves a lock that another client left behind (paper section 2.2).
//!
//! Readers, writers, scanners and workers all call [`resolve`]. Only the row transaction on
//! the primary decides. Clocks and the lock service say only when to *try* a rollback, so a
//! wrong answer of theirs cannot break a commit.
//!
//! ```text
//! primary's row holds ...      then
//! write pointing at s          Committed(c)       -> roll the found row forward
//! tomb(s)                      RolledBack         -> roll the found row back
//! primary lock of s            owner suspect?     -> roll it back on that very lock, else Alive
//! nothing of s                 owner suspect?     -> put tomb(s) there, else Alive
//! ```
//!
//! `suspects` watches locks whose owner may be dead, and `verdicts` caches the outcomes of
//! other transactions. `inspect` shows records and locks without changing anything; `view` has
//! the types that it returns. `explain` says what the records of a cell mean. `on_request`
//! resolves a lock for an operator.
//!
//! On a store without a floor, [`is_late`] finds locks from below the last collection. They
//! are rolled back without these steps, because the records of their primary may have been
//! collected.

pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod on_request;
pub(crate) mod suspects;
pub(crate) mod verdicts;
pub(crate) mod view;

use std::time::Duration;

use bigtable::{RowKey, Selection, TimeRange, Timestamp};
use futures::future::{Either, select};

use crate::gc::unfenced::{is_late, verdict_on_locks_seen};
use crate::mutants::{self, off};
use crate::observe::hints::Hint;
use crate::records::branch::{Branch, change};
use crate::records::column::{Cell, Table};
use crate::records::layout::{LOCK, ROLLBACK, WRITE};
use crate::records::lock::Lock;
use crate::records::write::Write;
use crate::resolve::verdicts::Verdict;
use crate::shared::Shared;
use crate::txn::rows::{self, LockedCell, size};
use crate::watch::Event;
use crate::{Column, LockFate, Result};

/// How long a task waits for another one of this client that decides the same transaction.
const FLIGHT_MAX: Duration = Duration::from_secs(1);

/// The result of resolving a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// The row no longer holds the lock.
    Gone,
    /// The owner may still commit: wait, or give way.
    Alive,
}

/// A lock of another transaction that this client found.
#[derive(Debug, Clone)]
pub(crate) struct FoundLock {
    pub(crate) cell: Cell,
    pub(crate) start_ts: Timestamp,
    pub(crate) lock: Lock,
}

impl FoundLock {
    /// The lock in a cell of the store's family `lock`.
    pub(crate) fn decode(table: &Table, row: &RowKey, cell: &bigtable::Cell) -> Result<Self> {
        let column = Column::from_stored(cell.qualifier.clone());
        let lock = Lock::decode(&cell.value)?;
        Ok(FoundLock { cell: Cell::new(table, row, &column), start_ts: cell.timestamp, lock })
    }
}

/// The state of a transaction, as its primary's row shows it.
enum Status {
    Decided(Verdict),
    /// The row has the primary lock.
    Locked(Lock),
    Nothing,
}

/// Finds the outcome of the lock's transaction, decides it if its owner is dead, and applies
/// the outcome to the row of the lock.
pub(crate) async fn resolve(shared: &Shared, met: &FoundLock) -> Result<Resolved> {
    resolve_since(shared, met, None).await
}

/// Works like [`resolve`], for a caller that has waited since `since`.
pub(crate) async fn resolve_since(
    shared: &Shared,
    met: &FoundLock,
    since: Option<Duration>,
) -> Result<Resolved> {
    shared.counters().locks_met.bump();
    if is_late(shared, met.start_ts).await? {
        emit_found(shared, met, since, LockFate::RollBack);
        // The records that decide its transaction may be collected, some or all of them.
        apply(shared, met, Verdict::RolledBack).await?;
        return Ok(Resolved::Gone);
    }
    let flight = shared.verdicts().flight(met.start_ts);
    let Decision { fate, removed } = {
        let _alone = alone(shared, &flight).await;
        match shared.verdicts().of(met.start_ts) {
            Some(verdict) => verdict.into(),
            None => decide(shared, met).await?,
        }
    };
    emit_found(shared, met, since, fate);
    if removed > 0 {
        emit_resolved(shared, met.start_ts, Verdict::RolledBack, removed);
    }
    let Some(verdict) = verdict_of(fate) else {
        if off(mutants::ALIVE_IS_REMEMBERED) {
            shared.verdicts().remember(met.start_ts, Verdict::RolledBack);
        }
        return Ok(Resolved::Alive);
    };
    shared.verdicts().remember(met.start_ts, verdict);
    shared.suspects().forget(met.start_ts);
    apply(shared, met, verdict).await?;
    Ok(Resolved::Gone)
}

/// Waits until no other task of this client decides the transaction, but only for a while. A task
/// that nobody polls would never end (H77). Two that decide at a time are like two clients.
async fn alone<'a>(
    shared: &Shared,
    flight: &'a futures::lock::Mutex<()>,
) -> Option<futures::lock::MutexGuard<'a, ()>> {
    if let Some(alone) = flight.try_lock() {
        return Some(alone);
    }
    let longest = if off(mutants::FLIGHT_WITHOUT_END) { 3600 * FLIGHT_MAX } else { FLIGHT_MAX };
    match select(flight.lock(), shared.runtime().sleep(longest)).await {
        Either::Left((alone, _)) => Some(alone),
        Either::Right(_) => None,
    }
}

/// The decision about a transaction.
struct Decision {
    fate: LockFate,
    /// How many locks the decision has removed: one if it removed the primary lock, otherwise
    /// none.
    removed: usize,
}

impl From<Verdict> for Decision {
    fn from(verdict: Verdict) -> Self {
        let fate = match verdict {
            Verdict::Committed(commit_ts) => LockFate::RollForward(commit_ts),
            Verdict::RolledBack => LockFate::RollBack,
        };
        Decision { fate, removed: 0 }
    }
}

/// The verdict that follows from a fate; `None` while the owner may still commit.
fn verdict_of(fate: LockFate) -> Option<Verdict> {
    match fate {
        LockFate::RollForward(commit_ts) => Some(Verdict::Committed(commit_ts)),
        LockFate::RollBack | LockFate::OwnerDead => Some(Verdict::RolledBack),
        LockFate::OwnerAlive => None,
    }
}

fn emit_found(shared: &Shared, met: &FoundLock, since: Option<Duration>, fate: LockFate) {
    let waited = |since| shared.runtime().now().saturating_sub(since);
    shared.emit(|| Event::LockFound {
        cell: (&met.cell).into(),
        lock_ts: met.start_ts,
        owner: met.lock.owner,
        waited: since.map_or(Duration::ZERO, waited),
        fate,
    });
}

fn emit_resolved(shared: &Shared, start_ts: Timestamp, verdict: Verdict, cells: usize) {
    let commit_ts = match verdict {
        Verdict::Committed(commit_ts) => Some(commit_ts),
        Verdict::RolledBack => None,
    };
    shared.emit(|| Event::Resolved { start_ts, commit_ts, cells });
}

/// Finds the fate of a lock. Its owner counts as alive unless it is suspect. It counts as dead
/// once this function has rolled the transaction back.
async fn decide(shared: &Shared, met: &FoundLock) -> Result<Decision> {
    let alive = || Ok(Decision { fate: LockFate::OwnerAlive, removed: 0 });
    let primary = match &met.lock.primary {
        Some(name) => {
            let table = shared.table(&name.table).await?;
            Cell { table, row: name.row.clone(), column: name.column.clone() }
        }
        None => met.cell.clone(),
    };
    loop {
        let (request, wins) = match status(shared, &primary, met.start_ts).await? {
            Status::Decided(verdict) => return Ok(verdict.into()),
            Status::Locked(lock) => {
                if !is_suspect(shared, met.start_ts, true, &lock).await? {
                    return alive();
                }
                let (row, column) = (&primary.row, &primary.column);
                (rows::roll_back_primary_lock(row, column, met.start_ts, &lock), Branch::Then)
            }
            Status::Nothing => {
                // A parallel prewrite of the primary may be in flight, so do not roll back yet
                // (H02). But a suspect owner is not waited for, or its locks would stay
                // forever (H03).
                let waits = off(mutants::MISSING_PRIMARY_WAITS);
                if waits || !is_suspect(shared, met.start_ts, false, &met.lock).await? {
                    return alive();
                }
                let (row, column) = (&primary.row, &primary.column);
                (rows::roll_back_missing_primary(row, column, met.start_ts), Branch::Otherwise)
            }
        };
        if change(primary.table.store(), request).await? == wins {
            shared.counters().rolled_back.bump();
            tracing::debug!(
                target: "percolator::resolve", event = "rolled_back",
                start_ts = met.start_ts.as_u64(), primary = %primary.location(),
            );
            let removed = usize::from(wins == Branch::Then);
            return Ok(Decision { fate: LockFate::OwnerDead, removed });
        }
    }
}

/// Reads the state of the transaction from its primary's row. Another transaction's lock does
/// not belong to it, nor does a lock whose primary is elsewhere (H11).
async fn status(_shared: &Shared, primary: &Cell, start_ts: Timestamp) -> Result<Status> {
    let q = || primary.column.to_bytes();
    let at = TimeRange::at(start_ts);
    let locks = if off(mutants::ANY_LOCK_IS_THE_PRIMARY) { TimeRange::ALL } else { at };
    let select = Selection::default()
        .column(LOCK, q(), locks, 1)
        .column(ROLLBACK, q(), at, 1)
        .column(WRITE, q(), TimeRange::since(start_ts), u32::MAX);
    let row = primary.table.store().read_row(&primary.row, &select).await?;
    for cell in row.versions(&WRITE, &primary.column.to_bytes()) {
        if Write::decode(&cell.value)?.start_ts == start_ts {
            return Ok(Status::Decided(Verdict::Committed(cell.timestamp)));
        }
    }
    if row.newest(&ROLLBACK, &primary.column.to_bytes()).is_some() {
        return Ok(Status::Decided(Verdict::RolledBack));
    }
    let lock = row.newest(&LOCK, &primary.column.to_bytes());
    let lock = lock.map(|cell| Lock::decode(&cell.value)).transpose()?;
    Ok(match lock {
        Some(lock) if lock.primary.is_none() => Status::Locked(lock),
        _ => Status::Nothing,
    })
}

/// Whether the owner of a lock may be taken for dead. Either its liveness token is gone, or
/// the lock has stayed unchanged for longer than its lifetime on this client's clock.
async fn is_suspect(
    shared: &Shared,
    start_ts: Timestamp,
    primary: bool,
    lock: &Lock,
) -> Result<bool> {
    let expired = shared.suspects().expired(start_ts, primary, lock, shared.runtime().now());
    let expired = expired && !off(mutants::EXPIRY_FOR_TOKENS_ONLY);
    Ok(expired || !shared.locks().is_alive(lock.owner).await?)
}

/// Applies a verdict to every cell of the found row that holds a lock of the transaction. No
/// lock of the transaction may be left in the row, because a sweep counts the row as clean.
async fn apply(shared: &Shared, met: &FoundLock, verdict: Verdict) -> Result<()> {
    while !apply_to_locks_seen(shared, met, verdict).await? {}
    Ok(())
}

/// Applies the verdict to the locks that are in the row now. Returns `false` if the caller
/// must repeat it: too much time has passed since the read, or one request cannot take all
/// locks.
async fn apply_to_locks_seen(shared: &Shared, met: &FoundLock, verdict: Verdict) -> Result<bool> {
    let Cell { table, row, .. } = &met.cell;
    let select = Selection::default().family(LOCK, TimeRange::at(met.start_ts), 1);
    let looked = shared.runtime().now();
    let found = table.store().read_row(row, &select).await?;
    let mut cells = Vec::with_capacity(found.cells.len());
    for cell in &found.cells {
        let column = Column::from_stored(cell.qualifier.clone());
        cells.push(LockedCell { column, intent: Lock::decode(&cell.value)?.intent });
    }
    if cells.is_empty() {
        return Ok(true);
    }
    let locked = cells.len();
    let mut part = |of| cells.truncate(size::fitting(&shared.limits(), row, &cells, of));
    match verdict_on_locks_seen(shared, met.start_ts, verdict, looked).await? {
        None => return Ok(off(mutants::TOO_LATE_IS_DONE)),
        Some(Verdict::RolledBack) => {
            part(size::roll_back_of_cell);
            let request = rows::roll_back(row, met.start_ts, &cells);
            if table.store().check_and_mutate_row(request).await? {
                emit_resolved(shared, met.start_ts, Verdict::RolledBack, cells.len());
            }
        }
        Some(Verdict::Committed(commit_ts)) => {
            part(size::commit_of_cell);
            if off(mutants::ROLL_FORWARD_FORGETS_NOTIFY) {
                cells.iter_mut().for_each(|cell| cell.intent.notify = false);
            }
            let request = rows::commit(row, met.start_ts, commit_ts, &cells);
            if change(table.store(), request).await? == Branch::Then {
                shared.counters().rolled_forward.bump();
                tracing::debug!(
                    target: "percolator::resolve", event = "rolled_forward",
                    start_ts = met.start_ts.as_u64(), commit_ts = commit_ts.as_u64(),
                    table = table.name(), row = %row,
                );
                for LockedCell { column, .. } in cells.iter().filter(|c| c.intent.notify) {
                    let cell = Cell::new(table, row, column);
                    shared.hint(&Hint::new(cell, None));
                }
                emit_resolved(shared, met.start_ts, verdict, cells.len());
            }
        }
    }
    Ok(cells.len() == locked)
}

/// Reads the verdict from the primary's row, for an owner that lost the reply of its commit.
pub(crate) async fn own_status(
    shared: &Shared,
    primary: &Cell,
    start_ts: Timestamp,
) -> Result<OwnStatus> {
    Ok(match status(shared, primary, start_ts).await? {
        Status::Decided(verdict) => OwnStatus::Decided(verdict),
        Status::Locked(_) => OwnStatus::Locked,
        Status::Nothing => OwnStatus::Nothing,
    })
}

/// The state of an owner's own transaction, as its primary's row shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnStatus {
    Decided(Verdict),
    Locked,
    Nothing,
}
