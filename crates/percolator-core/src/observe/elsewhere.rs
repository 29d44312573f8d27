//! Cells that wait for observers which no worker of this process runs.
//!
//! A notification may be cleared only when every observer that the schema names has handled it
//! (H53). Where other processes run some of these observers, the worker that finishes last
//! clears it: it reads the others' acknowledgements in the row. Until then the cell rests:
//! scans of this process skip it for a growing time. A cell that waits for a paused observer
//! rests until the schema changes.
//!
//! A column may also name an observer that no process runs any more, because a new version of
//! the program renamed or dropped it. Its cells stay notified. The workers log a warning, and
//! visit these cells more and more rarely, until an operator calls
//! [`retire_observer`](crate::Client::retire_observer).

use std::sync::Arc;

use bigtable::Timestamp;

use crate::mutants::{self, off};
use crate::observe::context::Context;
use crate::observe::idle::missing_observers;
use crate::observe::observer::Registration;
use crate::observe::pause::is_handled;
use crate::records::column::Cell;
use crate::records::schema::{Observed, Strength};
use crate::txn::begin::begin;
use crate::{Error, Result};

/// Whether a scan that has found this notification skips the cell for now.
pub(super) fn rests(context: &Context, cell: &Cell, found: Timestamp) -> bool {
    let schema = context.shared.known_schema().version;
    context.elsewhere.rests(cell, found, schema, context.runtime().now())
}

/// Notes that the cell waits for other observers, so that scans skip it for a while.
pub(super) fn waits_for_others(context: &Context, cell: &Cell, newest: Timestamp) {
    let schema = context.shared.known_schema().version;
    context.elsewhere.waits(cell, newest, schema, context.runtime().now());
}

/// The observers of a cell's column that are not among these workers' own.
fn others_of(context: &Context, cell: &Cell, own: &[Arc<Registration>]) -> Vec<Observed> {
    let schema = context.shared.known_schema();
    let others = schema.of(cell.table.name(), &cell.column);
    let runs = |entry: &Observed| own.iter().any(|r| r.observed.observer == entry.observer);
    others.filter(|entry| !runs(entry)).cloned().collect()
}

/// Returns the timestamp up to which all other observers of the cell have handled its changes.
/// `None` if one of them still has work, and for weak observers, which leave no
/// acknowledgement.
pub(super) async fn handled_elsewhere(
    context: &Context,
    cell: &Cell,
    own: &[Arc<Registration>],
) -> Result<Option<Timestamp>> {
    // Begin first: the schema arrives with the timestamp.
    let tx = begin(&context.shared, None).await?;
    let others = others_of(context, cell, own);
    if others.iter().any(|other| other.strength == Strength::Weak) {
        return Ok(None);
    }
    let s = tx.start_ts();
    let handled = match is_handled(&tx.shared, cell, &others, s).await {
        // A writer or another observer is at work on the cell.
        Err(Error::Locked { .. }) => return Ok(None),
        handled => handled?,
    };
    if off(mutants::OTHERS_HAVE_ACKNOWLEDGED) {
        return Ok(Some(Timestamp::MAX));
    }
    Ok(handled.then_some(s))
}

/// Logs a warning for each observer that the schema names for a column of these workers, and
/// that no worker of this client runs.
pub(super) fn warn_of_missing(context: &Context) {
    for Observed { table, column, observer, .. } in missing_observers(&context.shared) {
        if context.has_column(&table, &column) {
            tracing::warn!(
                target: "percolator::observer", event = "observer_missing", observer, table, %column,
                "no worker of this process runs an observer of the schema, and changes wait for \
                 it; if no other process runs the observer, retire it with \
                 `Client::retire_observer`"
            );
        }
    }
}
