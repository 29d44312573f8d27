//! Reads ahead (paper section 2.5). A read of one column also fetches, in the same request,
//! the columns that earlier transactions read after it. The transaction keeps them.
//!
//! Invariants:
//! * Every fetched column passes the same lock check at the same `s` (H28). A locked column is
//!   not kept, and no task waits for its lock before the transaction reads it.
//! * A value that was read without a lock at or below `s` stays right for the whole
//!   transaction, because any later lock commits above `s`.
//! * The transaction's own writes hide the kept values.
//! * Reading ahead pauses after a first column when the bytes fetched in vain exceed 4 KiB and
//!   twice the bytes used.

use std::collections::BTreeSet;

use bigtable::{Row, RowKey, Selection, TimeRange, Timestamp};
use bytes::Bytes;

use crate::mutants::{self, off};
use crate::records::layout::{LOCK, WRITE};
use crate::shared::Shared;
use crate::txn::get::{read_cell, selection, versions};
use crate::txn::predictor::Cache;
use crate::watch::Access;
use crate::{Column, Result, Table};

/// Reads a cell at `s`. Returns the kept value if the transaction has it. Otherwise reads the
/// cell together with the columns that the transaction may read next.
pub(crate) async fn read_ahead(
    shared: &Shared,
    cache: &Cache,
    at: (Table, RowKey),
    column: &Column,
    s: Timestamp,
) -> Result<Option<Bytes>> {
    if let Some(value) = cache.get(&at, column) {
        shared.counters().reads_saved.bump();
        return Ok(value);
    }
    let ahead = cache.ahead(&at, column);
    let mut found = Vec::new();
    if !ahead.is_empty() {
        // If this fails because of a column that the transaction has not read, a read of its
        // own column alone may succeed.
        found = fetch(shared, &at, column, &ahead, s).await.unwrap_or_default();
    }
    let own = found.iter().find(|(of, _)| of == column).map(|(_, value)| value.clone());
    let value = match own {
        Some(value) => value,
        // The column is fetched alone, or it was locked.
        None => {
            let value = read_cell(shared, &at.0, &at.1, column, s).await?;
            found.push((column.clone(), value.clone()));
            value
        }
    };
    cache.keep(at, column, found);
    Ok(value)
}

/// Reads several columns of a row in one request, and leaves out locked columns.
async fn fetch(
    shared: &Shared,
    (table, row): &(Table, RowKey),
    column: &Column,
    ahead: &[Column],
    s: Timestamp,
) -> Result<Vec<(Column, Option<Bytes>)>> {
    let columns: BTreeSet<Column> = ahead.iter().chain([column]).cloned().collect();
    let columns: Vec<Column> = columns.into_iter().collect();
    let select = if off(mutants::UNLOCKED_AHEAD) {
        without_locks(selection(std::slice::from_ref(column), s), ahead, s)
    } else {
        selection(&columns, s)
    };
    shared.take_turn(0).await;
    shared.counters().reads.bump();
    let read = table.store().read_row(row, &select).await.map_err(crate::txn::get::too_old)?;
    shared.sample(Access::Read, 1, |_| (table.name(), row));
    let locks = read.cells.iter().filter(|cell| cell.family == LOCK);
    let locked: BTreeSet<Column> =
        locks.map(|cell| Column::from_stored(cell.qualifier.clone())).collect();
    if locked.contains(column) {
        return Ok(Vec::new());
    }
    let free = |column: &Column| !locked.contains(column);
    let written = read
        .cells
        .into_iter()
        .filter(|cell| cell.family == WRITE && free(&Column::from_stored(cell.qualifier.clone())));
    let written = Row::new(row.clone(), written.collect());
    let versions = versions(shared, table, &written, s, |_| true).await?;
    let value = |column: &Column| {
        let of = versions.iter().find(|version| version.column == *column);
        of.and_then(|version| version.value.clone())
    };
    Ok(columns.into_iter().filter(free).map(|c| (c.clone(), value(&c))).collect())
}

fn without_locks(select: Selection, ahead: &[Column], s: Timestamp) -> Selection {
    let upto = TimeRange::up_to(s);
    ahead.iter().fold(select, |select, c| select.column(WRITE, c.to_bytes(), upto, 1))
}
