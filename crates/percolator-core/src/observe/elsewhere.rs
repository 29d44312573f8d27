//! Cells that wait for observers which no worker of this process runs.
//!
//! A cell that waits for a paused observer rests in the same way, until the schema changes.
//!
//! A notification goes when no observer that the schema names has anything to do for it (H53).
//! Where other workers run some of them, their acknowledgements are in the row, and the worker that
//! comes last clears. An observer that nobody runs any more keeps its cells notified: a new version
//! of the program has renamed it, or left it out. The program is told of it, and its workers visit
//! such cells ever more rarely, until somebody calls
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

/// Whether a scan that has found this notification leaves the cell alone for now.
pub(super) fn rests(context: &Context, cell: &Cell, found: Timestamp) -> bool {
    let schema = context.shared.known_schema().version;
    context.elsewhere.rests(cell, found, schema, context.runtime().now())
}

/// The cell waits for others: scans leave it alone for a while.
pub(super) fn waits_for_others(context: &Context, cell: &Cell, newest: Timestamp) {
    let schema = context.shared.known_schema().version;
    context.elsewhere.waits(cell, newest, schema, context.runtime().now());
}

/// The observers of a cell's column that this process does not run here.
fn others_of(context: &Context, cell: &Cell, own: &[Arc<Registration>]) -> Vec<Observed> {
    let schema = context.shared.known_schema();
    let others = schema.of(cell.table.name(), &cell.column);
    let runs = |entry: &Observed| own.iter().any(|r| r.observed.observer == entry.observer);
    others.filter(|entry| !runs(entry)).cloned().collect()
}

/// Up to when nothing of the cell is left to do for all its other observers; `None` while
/// something is. Weak ones never say.
pub(super) async fn handled_elsewhere(
    context: &Context,
    cell: &Cell,
    own: &[Arc<Registration>],
) -> Result<Option<Timestamp>> {
    // First: with its timestamp comes the schema.
    let tx = begin(&context.shared, None).await?;
    let others = others_of(context, cell, own);
    if others.iter().any(|other| other.strength == Strength::Weak) {
        return Ok(None);
    }
    let s = tx.start_ts();
    let handled = match is_handled(&tx.shared, cell, &others, s).await {
        // One of them, or a writer, is at work.
        Err(Error::Locked { .. }) => return Ok(None),
        handled => handled?,
    };
    if off(mutants::OTHERS_HAVE_ACKNOWLEDGED) {
        return Ok(Some(Timestamp::MAX));
    }
    Ok(handled.then_some(s))
}

/// Tells of observers that the schema names for a column of these workers, and that no worker
/// of this client runs.
pub(super) fn warn_of_missing(context: &Context) {
    for Observed { table, column, observer, .. } in missing_observers(&context.shared) {
        if context.has_column(&table, &column) {
            tracing::warn!(
                target: "percolator::observer", event = "observer_missing", observer, table, %column,
                "the schema names an observer that no worker of this process runs: changes wait for it; if \
                 no other process runs it, retire it with `Client::retire_observer`"
            );
        }
    }
}
