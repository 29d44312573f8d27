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

use std::collections::BTreeSet;

use bigtable::{ConditionalMutation, Limits, RowKey, Selection, TimeRange, Timestamp};

use crate::records::column::Cell;
use crate::records::layout::NOTIFY;
use crate::txn::limits::in_requests;
use crate::txn::rows;
use crate::{Column, Result};

/// Reads the versions of a cell's notification, newest first.
pub(crate) async fn notifications(cell: &Cell) -> Result<Vec<Timestamp>> {
    let column = cell.column.to_bytes();
    let select = Selection::default().column(NOTIFY, column, TimeRange::ALL, u32::MAX);
    let key = cell.table.notify_key(&cell.row);
    let row = cell.table.notify_store().read_row(&key, &select).await?;
    Ok(row.cells.iter().map(|cell| cell.timestamp).collect())
}

/// Reads the versions of the notifications of several cells of one table, in one request.
pub(crate) async fn notifications_of(cells: &[Cell]) -> Result<Vec<Vec<Timestamp>>> {
    let Some(first) = cells.first() else { return Ok(Vec::new()) };
    let mut select = Selection::default();
    let columns: BTreeSet<&Column> = cells.iter().map(|cell| &cell.column).collect();
    for column in columns {
        select = select.column(NOTIFY, column.to_bytes(), TimeRange::ALL, u32::MAX);
    }
    let keys: Vec<RowKey> = cells.iter().map(|cell| cell.table.notify_key(&cell.row)).collect();
    let rows = first.table.notify_store().read_rows(&keys, &select).await?;
    let versions = cells.iter().zip(rows).map(|(cell, row)| {
        let own = row.cells.iter().filter(|read| read.qualifier == *cell.column.as_bytes());
        own.map(|read| read.timestamp).collect()
    });
    Ok(versions.collect())
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
