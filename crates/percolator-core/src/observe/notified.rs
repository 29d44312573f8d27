//! Reads the notifications of one cell, and clears those that a worker has seen.
//!
//! A version that nobody has seen must stay: it may belong to a change that no observer has
//! handled.
//!
//! In one case, the commit of an observer's run also removes the notification, which saves one
//! of two row operations. The column then has no other observer, and the notification lies in
//! the column's own row. A prewrite never removes a notification, because the prewrite may be
//! rolled back. A client that rolls the run forward leaves the notification, and a worker
//! finds it stale.

use bigtable::{ConditionalMutation, Limits, Selection, TimeRange, Timestamp};

use crate::Result;
use crate::records::column::Cell;
use crate::records::layout::NOTIFY;
use crate::txn::limits::in_requests;
use crate::txn::rows;

/// Reads the versions of a cell's notification, newest first.
pub(crate) async fn notifications(cell: &Cell) -> Result<Vec<Timestamp>> {
    let column = cell.column.to_bytes();
    let select = Selection::default().column(NOTIFY, column, TimeRange::ALL, u32::MAX);
    let key = cell.table.notify_key(&cell.row);
    let row = cell.table.notify_store().read_row(&key, &select).await?;
    Ok(row.cells.iter().map(|cell| cell.timestamp).collect())
}

/// Builds the requests that delete the seen versions of a notification, up to `bound`. There
/// are several requests if the cell was notified so often that one request cannot delete all
/// versions.
pub(crate) fn clear(
    limits: &Limits,
    cell: &Cell,
    seen: &[Timestamp],
    bound: Timestamp,
) -> Vec<ConditionalMutation> {
    let mutations = rows::clear_seen(&cell.column, seen, bound);
    in_requests(limits, &cell.table.notify_key(&cell.row), mutations)
}
