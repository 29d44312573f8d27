//! Locks every row of a transaction: prewrite, phase one of commit (paper section 2.2, Figure
//! 6 `Prewrite`).
//!
//! All rows are locked at once, the primary's row among them, with one conditional mutation
//! each. That is the read-modify-write request that the paper's authors added to Bigtable's
//! interface (section 2.5).
//!
//! Invariants:
//! * No lock is placed on a cell that has another transaction's lock, a write record at or
//!   above `start_ts`, or this transaction's tomb. For a hinted acknowledgement the bound is
//!   lower than `start_ts`.
//! * Prewrite never waits for a living owner while it holds locks, or two transactions could
//!   wait for each other (H19).

use std::collections::BTreeSet;
use std::time::Duration;

use bigtable::{ConditionalMutation, Selection, TimeRange};

use crate::mutants::{self, off};
use crate::records::branch::{Branch, change, change_each};
use crate::records::column::Cell;
use crate::records::layout::{LOCK, ROLLBACK, WRITE};
use crate::records::write::Write;
use crate::resolve::{FoundLock, Resolved, resolve};
use crate::runtime::Backoff;
use crate::shared::Shared;
use crate::txn::plan::Plan;
use crate::txn::row_plan::RowPlan;
use crate::txn::rows;
use crate::{AbortReason, Column, Conflict, Error, Result, Timestamp};

/// How often one row is tried: again after a dead lock was removed, or after the store was
/// busy.
const TRIES_MAX: u32 = 12;

/// Locks every row of the plan.
///
/// # Errors
/// The [`AbortReason`] of the first row that could not be locked. Other rows may be locked by
/// then, so the caller must abort.
pub(crate) async fn prewrite(shared: &Shared, plan: &Plan) -> Result<(), AbortReason> {
    let request = |row: &RowPlan| {
        let mut request = prewrite_of(shared, plan, row);
        if off(mutants::CLEARS_IN_PREWRITE) {
            request.otherwise.extend(row.handled.iter().cloned());
        }
        request
    };
    let results = mutate_rows(&plan.rows, request).await;
    let unlocked = plan.rows.iter().zip(results).filter(|(_, result)| !is_locked(result));
    let retries = unlocked.map(|(row, result)| retry_prewrite(shared, plan, row, result));
    futures::future::try_join_all(retries).await?;
    Ok(())
}

fn prewrite_of(shared: &Shared, plan: &Plan, row: &RowPlan) -> ConditionalMutation {
    rows::prewrite(&row.row, plan.start_ts, &row.cells, |cell| plan.lock_of(shared, cell))
}

/// Sends one conditional mutation for each row, batched by table.
pub(crate) async fn mutate_rows(
    rows: &[RowPlan],
    request: impl Fn(&RowPlan) -> ConditionalMutation,
) -> Vec<bigtable::Result<Branch>> {
    if let [row] = rows {
        return vec![change(row.table.store(), request(row)).await];
    }
    let tables = rows.chunk_by(|a, b| a.table == b.table);
    let batches = tables.map(|rows| {
        let requests = rows.iter().map(&request).collect();
        change_each(rows[0].table.store(), requests)
    });
    let results: Vec<_> = futures::future::join_all(batches).await.into_iter().flatten().collect();
    assert_eq!(results.len(), rows.len(), "the store gave each mutation one result");
    results
}

/// Repeats the prewrite of a row whose first request did not succeed.
async fn retry_prewrite(
    shared: &Shared,
    plan: &Plan,
    row: &RowPlan,
    mut result: bigtable::Result<Branch>,
) -> Result<(), AbortReason> {
    let start_ts = plan.start_ts;
    let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(100));
    for _ in 1..TRIES_MAX {
        match result {
            Ok(Branch::Otherwise) => return Ok(()),
            Ok(Branch::Then) if clear_dead_locks(shared, start_ts, row).await? => return Ok(()),
            Ok(Branch::Then) => {}
            Err(bigtable::Error::TooOld { .. }) => return Err(AbortReason::TooOld),
            Err(error) if is_final(&error) => return Err(AbortReason::Store(error)),
            // Prewrite can be repeated whether or not the first request was applied (H23).
            Err(_) => shared.runtime().sleep(backoff.step(&**shared.runtime())).await,
        }
        result = change(row.table.store(), prewrite_of(shared, plan, row)).await;
    }
    match result {
        Ok(Branch::Otherwise) => Ok(()),
        Ok(Branch::Then) if clear_dead_locks(shared, start_ts, row).await? => Ok(()),
        Ok(Branch::Then) => Err(AbortReason::Store(bigtable::Error::Unavailable {
            why: format!("other clients kept changing row {}", row.row),
        })),
        Err(error) => Err(AbortReason::Store(error)),
    }
}

/// Finds out why a row rejected its prewrite. Gives up on a conflict, and resolves a dead
/// owner's lock (H25). Returns whether this very transaction has locked the row, by an earlier
/// request whose reply was lost (H23).
pub(crate) async fn clear_dead_locks(
    shared: &Shared,
    start_ts: Timestamp,
    row: &RowPlan,
) -> Result<bool, AbortReason> {
    let mut select = Selection::default();
    for cell in &row.cells {
        let q = || cell.column.to_bytes();
        select = select
            .column(LOCK, q(), TimeRange::ALL, u32::MAX)
            .column(ROLLBACK, q(), TimeRange::at(start_ts), 1)
            .column(WRITE, q(), TimeRange::since(cell.unwritten_since), 1);
    }
    let read = row.table.store().read_row(&row.row, &select).await;
    let read = read.map_err(AbortReason::Store)?;
    // Check this before the locks: a primary that was rolled back leaves the other locks of
    // its row behind.
    if read.cells.iter().any(|found| found.family == ROLLBACK) {
        return Err(AbortReason::RolledBack);
    }
    // A row is locked in one mutation, so one lock shows that all were placed.
    let own = |found: &bigtable::Cell| found.family == LOCK && found.timestamp == start_ts;
    if read.cells.iter().any(own) && !off(mutants::OWN_LOCK_IS_A_CONFLICT) {
        return Ok(true);
    }
    let mut gone = BTreeSet::new();
    for found in &read.cells {
        // Resolving one lock has removed all other locks of its transaction in the row.
        if found.family == LOCK && gone.contains(&found.timestamp) {
            continue;
        }
        let column = Column::from_stored(found.qualifier.clone());
        let cell = Cell::new(&row.table, &row.row, &column);
        if found.family == WRITE {
            let write = Write::decode(&found.value).map_err(failed)?;
            return Err(conflict(&cell, write.start_ts, Some(found.timestamp), None));
        }
        let met = FoundLock::decode(&row.table, &row.row, found).map_err(failed)?;
        // A newer lock means a newer transaction. It may have read the value that this
        // transaction overwrites.
        let newer = met.start_ts > start_ts || off(mutants::WRITER_CLEANS_NOTHING);
        if newer || resolve(shared, &met).await.map_err(failed)? == Resolved::Alive {
            return Err(conflict(&cell, met.start_ts, None, Some(met.lock.owner)));
        }
        gone.insert(met.start_ts);
    }
    Ok(false)
}

/// Whether a prewrite placed its locks, because its predicate found nothing.
fn is_locked(result: &bigtable::Result<Branch>) -> bool {
    matches!(result, Ok(Branch::Otherwise))
}

/// Whether repeating the request is of no use.
pub(crate) fn is_final(error: &bigtable::Error) -> bool {
    !error.is_retryable() && !matches!(error, bigtable::Error::Unknown { .. })
}

fn conflict(
    cell: &Cell,
    winner_start_ts: Timestamp,
    winner_commit_ts: Option<Timestamp>,
    winner_owner: Option<crate::Incarnation>,
) -> AbortReason {
    let cell = cell.location();
    let conflict = Conflict { cell, winner_start_ts, winner_commit_ts, winner_owner };
    AbortReason::Conflict(Box::new(conflict))
}

/// Turns a failure to look into a conflict into the reason of the abort.
fn failed(error: Error) -> AbortReason {
    match error {
        Error::Store(error) => AbortReason::Store(error),
        Error::TooOld { .. } => AbortReason::TooOld,
        error => AbortReason::Store(bigtable::Error::Unavailable { why: error.to_string() }),
    }
}
