//! Running observers: finding dirty cells and handling them (paper section 2.4).
//!
//! ```text
//! register   stores the schema, raises its version, sweeps for changes made before
//! find       scans the notify family from random places; hints come first
//! handle     lock the row, begin, newest c > ack?, run, commit with ack := s, clear what was seen
//! batch      the same for many weak notifications at once
//! set_aside  failing observers: growing delay, then out of the way, durably, and back by replay
//! idle       nothing dirty, and no timestamp issued meanwhile
//! ```

mod batch;
mod find;
mod handle;
mod idle;
mod register;
mod set_aside;
mod workers;

pub(crate) use register::acknowledged;

pub use idle::{Backlog, IdleReport};
pub use set_aside::SetAside;
pub use workers::{WorkerOptions, Workers};

use bigtable::{ConditionalMutation, Mutation, RowKey, Selection, TimeRange, Timestamp};

use crate::column::{Cell, Table};
use crate::layout::NOTIFY;
use crate::mutants::{self, off};
use crate::{Column, Result};

/// The versions of a cell's notification, newest first.
pub(crate) async fn notifications(cell: &Cell) -> Result<Vec<Timestamp>> {
    let column = cell.column.to_bytes();
    let select = Selection::default().column(NOTIFY, column, TimeRange::ALL, u32::MAX);
    let row = cell.table.store().read_row(&cell.row, &select).await?;
    Ok(row.cells.iter().map(|cell| cell.timestamp).collect())
}

/// Deletes the versions of a notification that were seen and are not above `bound`, no others: a
/// newer one may stand for a change that nobody has handled (H47).
pub(crate) fn clear(
    row: &RowKey,
    column: &Column,
    seen: &[Timestamp],
    bound: Timestamp,
) -> ConditionalMutation {
    if off(mutants::CLEARS_UNSEEN) {
        let all = vec![Mutation::delete(NOTIFY, column.to_bytes(), TimeRange::ALL)];
        return ConditionalMutation { otherwise: all, ..ConditionalMutation::new(row) };
    }
    let otherwise = seen
        .iter()
        .filter(|version| **version <= bound)
        .map(|version| Mutation::delete(NOTIFY, column.to_bytes(), TimeRange::at(*version)))
        .collect();
    ConditionalMutation { otherwise, ..ConditionalMutation::new(row) }
}

/// The name of the advisory lock on a row.
pub(crate) fn row_lock(table: &Table, row: &RowKey) -> Vec<u8> {
    let mut name = Vec::with_capacity(table.name().len() + 1 + row.as_bytes().len());
    name.extend_from_slice(table.name().as_bytes());
    name.push(0);
    name.extend_from_slice(row.as_bytes());
    name
}
