//! Writes notifications, into the row or into the table beside it (see
//! [`placement`](crate::records::placement)).
//!
//! All of them must be written before the transaction's commit point, so a failed request is
//! repeated. Repeating is harmless: a notification is the same cell at the same timestamp.

use std::collections::BTreeSet;
use std::time::Duration;

use bigtable::{ConditionalMutation, Mutation, RowKey, TimeRange};
use futures::future::join_all;

use crate::records::column::{Cell, Table};
use crate::records::layout::NOTIFY;
use crate::runtime::Backoff;
use crate::shared::Shared;
use crate::txn::limits::in_requests;
use crate::txn::prewrite::is_final;
use crate::txn::rows;
use crate::{Column, Error, Result, Timestamp};

/// How often one request is tried.
const TRIES_MAX: u32 = 12;

/// Builds the request that writes notifications on columns of a row. In a table of their own,
/// it also deletes older notifications: the newest one is enough there.
pub(crate) fn notify(
    table: &Table,
    row: &RowKey,
    columns: &[Column],
    at: Timestamp,
) -> ConditionalMutation {
    let mut request = rows::notify(&table.notify_key(row), columns, at);
    if table.notifies_apart() {
        let below = TimeRange::below(at);
        let older = |column: &Column| Mutation::delete(NOTIFY, column.to_bytes(), below);
        request.otherwise.extend(columns.iter().map(older));
    }
    request
}

/// Writes notifications at `at` on cells, and returns once all of them are written. A failed
/// request is sent again, even if its outcome is unknown: writing twice is harmless.
///
/// # Errors
/// Errors of the store. Some notifications may be written then. If their transaction does not
/// commit, workers find them stale and clear them.
pub(crate) async fn leave_notifications(
    shared: &Shared,
    cells: &BTreeSet<Cell>,
    at: Timestamp,
) -> Result<()> {
    let cells: Vec<&Cell> = cells.iter().collect();
    let limits = shared.limits();
    let mut left: Vec<(&Table, ConditionalMutation)> = Vec::new();
    for cells in cells.chunk_by(|a, b| a.table == b.table && a.row == b.row) {
        let columns: Vec<_> = cells.iter().map(|cell| cell.column.clone()).collect();
        let request = notify(&cells[0].table, &cells[0].row, &columns, at);
        let requests = in_requests(&limits, &request.row, request.otherwise);
        left.extend(requests.into_iter().map(|request| (&cells[0].table, request)));
    }
    let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(100));
    for last in (0..TRIES_MAX).rev().map(|more| more == 0) {
        let tables = left.chunk_by(|a, b| a.0 == b.0);
        let batches = tables.map(|rows| {
            let requests = rows.iter().map(|(_, request)| request.clone()).collect();
            rows[0].0.notify_store().check_and_mutate_rows(requests)
        });
        let results = join_all(batches).await.into_iter().flatten();
        let mut failed = Vec::new();
        for (row, result) in left.into_iter().zip(results) {
            match result {
                Ok(_) => {}
                Err(error) if last || is_final(&error) => return Err(Error::Store(error)),
                Err(_) => failed.push(row),
            }
        }
        if failed.is_empty() {
            break;
        }
        left = failed;
        shared.runtime().sleep(backoff.step(&**shared.runtime())).await;
    }
    Ok(())
}
