//! Resolving a lock because somebody asks for it, by the rule that readers and writers go by: the
//! lock of an owner who lives stays where it is.

use bigtable::{Selection, TimeRange, Timestamp};

use crate::Result;
use crate::records::layout::LOCK;
use crate::resolve::verdicts::Verdict;
use crate::resolve::view::LockView;
use crate::resolve::{MetLock, Resolved, resolve};
use crate::shared::Shared;

/// The end of a lock that was to be resolved.
///
/// See [`Client::resolve_lock`](crate::Client::resolve_lock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockEnd {
    /// Its transaction was committed at this time, and the row shows that now.
    RolledForward(Timestamp),
    /// Its transaction was rolled back, and the lock is gone.
    RolledBack,
    /// It was not there any more.
    Gone,
    /// It stays: its owner lives and may still commit.
    OwnerAlive,
}

/// Resolves a lock, and with it all others of its transaction in the same row.
pub(crate) async fn resolve_lock(shared: &Shared, lock: &LockView) -> Result<LockEnd> {
    shared.check_open()?;
    let table = shared.table(&lock.cell.table).await?;
    let column = lock.cell.column.to_bytes();
    let select = Selection::default().column(LOCK, column, TimeRange::at(lock.start_ts), 1);
    let found = table.store().read_row(&lock.cell.row, &select).await?;
    let Some(cell) = found.cells.first() else { return Ok(LockEnd::Gone) };
    let met = MetLock::decode(&table, &lock.cell.row, cell)?;
    if resolve(shared, &met).await? == Resolved::Alive {
        return Ok(LockEnd::OwnerAlive);
    }
    Ok(match shared.verdicts().of(lock.start_ts) {
        Some(Verdict::Committed(commit_ts)) => LockEnd::RolledForward(commit_ts),
        // Of a lock from before the last collection there is no verdict: it is removed.
        Some(Verdict::RolledBack) | None => LockEnd::RolledBack,
    })
}
