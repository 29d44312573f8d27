//! Abort by the owner: the primary first, with its tomb, then the others (H01, H24).
//!
//! The tomb stays even if no row was locked: a prewrite that a network delays must find it. Garbage
//! collection removes the tomb.

use crate::records::branch::{Branch, change};
use crate::shared::Shared;
use crate::txn::plan::Plan;
use crate::txn::prewrite::mutate_rows;
use crate::txn::row_plan::RowPlan;
use crate::txn::rows;

/// What an abort came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abort {
    /// The transaction will never commit.
    Done,
    /// A commit request whose reply was lost had been faster.
    AlreadyCommitted,
    /// The primary could not be reached, and nothing else was touched.
    Unreachable,
}

/// Takes back what prewrite may have placed: the primary decides, the rest is best effort, and
/// whatever stays is cleaned up by the next who meets it.
pub(crate) async fn abort(shared: &Shared, plan: &Plan) -> Abort {
    let (primary, start_ts) = (&plan.primary, plan.start_ts);
    let lock = plan.primary_lock();
    let request = rows::abort_primary(&primary.row, &primary.column, start_ts, lock);
    match change(primary.table.store(), request).await {
        Ok(Branch::Otherwise) => {}
        Ok(Branch::Then) => return Abort::AlreadyCommitted,
        // Undecided: removing the secondaries now could halve a transaction (H10).
        Err(_) => return Abort::Unreachable,
    }
    abort_secondaries(shared, plan).await;
    Abort::Done
}

/// Takes the locks back whose transaction the primary says was rolled back.
pub(crate) async fn abort_secondaries(shared: &Shared, plan: &Plan) {
    let request = |row: &RowPlan| rows::roll_back(&row.row, plan.start_ts, &row.locked());
    mutate_rows(shared, &plan.rows, request).await;
}
