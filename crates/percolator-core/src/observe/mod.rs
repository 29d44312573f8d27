//! Running observers: finding dirty cells and handling them (paper section 2.4).
//!
//! ```text
//! observer   the traits that an application implements
//! hints      cells that this process has made dirty, for its own workers
//! admit      those who bring in new work wait for those who handle it
//! register   stores the schema, raises its version, sweeps for changes made before
//! find       scans the notify family from random places; hints come first
//! crew       the tasks that do all this, and how they end
//! handle     lock the row, begin, newest c > ack?, run, commit with ack := s, clear what was seen
//!            (in the commit itself where the column has no other observer)
//! batch      the same for many weak notifications at once
//! set_aside  failing observers: growing delay, then out of the way, durably, and back by replay
//! row_lock   the advisory lock on what a worker is at, renewed while its observers run
//! placement  where notify cells lie: in the row, or in a table of their own
//! idle       nothing dirty, and no timestamp issued meanwhile
//! ```

pub(crate) mod admit;
mod batch;
pub(crate) mod crew;
mod elsewhere;
mod find;
mod handle;
pub(crate) mod hints;
mod idle;
pub(crate) mod observer;
pub(crate) mod placement;
mod register;
mod row_lock;
mod set_aside;
mod workers;

pub(crate) use register::acknowledged;

pub use idle::{Backlog, IdleReport};
pub use set_aside::SetAside;
pub use workers::{WorkerOptions, Workers};

use bigtable::{ConditionalMutation, Limits, Selection, TimeRange, Timestamp};

use crate::Result;
use crate::records::column::Cell;
use crate::records::layout::NOTIFY;
use crate::txn::limits::in_requests;
use crate::txn::rows;

/// The versions of a cell's notification, newest first.
pub(crate) async fn notifications(cell: &Cell) -> Result<Vec<Timestamp>> {
    let column = cell.column.to_bytes();
    let select = Selection::default().column(NOTIFY, column, TimeRange::ALL, u32::MAX);
    let key = cell.table.notify_key(&cell.row);
    let row = cell.table.notify_store().read_row(&key, &select).await?;
    Ok(row.cells.iter().map(|cell| cell.timestamp).collect())
}

/// Deletes the versions of a notification that were seen and are not above `bound`. A cell that is
/// notified while nobody works has more versions than one request can delete.
pub(crate) fn clear(
    limits: &Limits,
    cell: &Cell,
    seen: &[Timestamp],
    bound: Timestamp,
) -> Vec<ConditionalMutation> {
    let mutations = rows::clear_seen(&cell.column, seen, bound);
    in_requests(limits, &cell.table.notify_key(&cell.row), mutations)
}
