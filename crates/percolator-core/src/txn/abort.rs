//! Aborts a transaction of this client: first the primary, with a rollback record, then the
//! other rows.
//!
//! The primary decides, so a secondary lock may go only after the primary can no longer
//! commit. The rollback record refuses a late prewrite of the transaction (H01, H24).
//!
//! The tomb stays even if no row was locked: a prewrite that a network delays must find it. Garbage
//! collection removes the tomb.

use crate::records::branch::{Branch, change};
use crate::txn::plan::Plan;
use crate::txn::prewrite::mutate_rows;
use crate::txn::row_plan::RowPlan;
use crate::txn::rows;

/// The result of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abort {
    /// The transaction will never commit.
    Done,
    /// An earlier commit request, whose reply was lost, has committed the transaction.
    AlreadyCommitted,
    /// The primary could not be reached, so no other row was changed.
    Unreachable,
}

/// Removes the locks that prewrite may have placed. The primary decides. The other rows are
/// best effort: clients that find remaining locks remove them.
pub(crate) async fn abort(plan: &Plan) -> Abort {
    let (primary, start_ts) = (&plan.primary, plan.start_ts);
    let intent = &plan.primary_cell().intent;
    let request = rows::abort_primary(&primary.row, &primary.column, start_ts, intent);
    match change(primary.table.store(), request).await {
        Ok(Branch::Otherwise) => {}
        Ok(Branch::Then) => return Abort::AlreadyCommitted,
        // The transaction is undecided. If it has committed, removing the secondaries now
        // would lose half of it (H10).
        Err(_) => return Abort::Unreachable,
    }
    abort_secondaries(plan).await;
    Abort::Done
}

/// Removes the secondary locks of a transaction whose primary is rolled back.
pub(crate) async fn abort_secondaries(plan: &Plan) {
    let request = |row: &RowPlan| rows::roll_back(&row.row, plan.start_ts, &row.locked());
    mutate_rows(&plan.rows, request).await;
}
