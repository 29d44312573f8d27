//! Resolves a lock for an operator, by the rule of readers and writers: a lock whose owner
//! lives stays where it is.

use bigtable::{Selection, TimeRange, Timestamp};

use crate::Result;
use crate::records::layout::LOCK;
use crate::resolve::verdicts::Verdict;
use crate::resolve::view::LockView;
use crate::resolve::{FoundLock, Resolved, resolve};
use crate::shared::Shared;

/// The outcome of a request to resolve a lock.
///
/// See [`Client::resolve_lock`](crate::Client::resolve_lock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockEnd {
    /// Its transaction was committed at this timestamp, and the row now shows the commit.
    RolledForward(Timestamp),
    /// Its transaction was rolled back, and the lock is gone.
    RolledBack,
    /// The row no longer held the lock.
    Gone,
    /// The lock stays, because its owner lives and may still commit.
    OwnerAlive,
}

/// Resolves a lock, together with all other locks of its transaction in the same row.
pub(crate) async fn resolve_lock(shared: &Shared, lock: &LockView) -> Result<LockEnd> {
    shared.check_open()?;
    let table = shared.table(&lock.cell.table).await?;
    let column = lock.cell.column.to_bytes();
    let select = Selection::default().column(LOCK, column, TimeRange::at(lock.start_ts), 1);
    let found = table.store().read_row(&lock.cell.row, &select).await?;
    let Some(cell) = found.cells.first() else { return Ok(LockEnd::Gone) };
    let met = FoundLock::decode(&table, &lock.cell.row, cell)?;
    if resolve(shared, &met).await? == Resolved::Alive {
        return Ok(LockEnd::OwnerAlive);
    }
    Ok(match shared.verdicts().of(lock.start_ts) {
        Some(Verdict::Committed(commit_ts)) => LockEnd::RolledForward(commit_ts),
        // A lock from before the last collection has no verdict; it is removed.
        Some(Verdict::RolledBack) | None => LockEnd::RolledBack,
    })
}
