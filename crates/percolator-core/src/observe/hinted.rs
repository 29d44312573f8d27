//! Acknowledges the change that a hint names, without reading what the store knows about it.
//!
//! A hint names a cell, and the timestamp `c` at which this process has committed a change of it.
//! The usual way reads the notification, the cell and the acknowledgement, and then decides whether
//! the observer runs. A hinted run reads the cell alone. Its commit fails if an acknowledgement was
//! committed at or above `c`. Other commits look for writes at or above their start timestamp `s`.
//!
//! At most one run commits for each change (H51, H52). Each acknowledgement that the commit passes
//! was committed below `c`, so it holds a start timestamp below `c`. Then the usual way, too, would
//! find the cell dirty. If the commit fails, the usual way decides. It decides exactly, so no
//! change is lost.
//!
//! A run is hinted only under these conditions:
//!
//! * At `s`, the newest write of the cell is the one at `c`. So `s` is above `c` (H60), and the run
//!   handles no other change. Its commit clears the notification at `c` alone (H47).
//! * The schema at `s` names this observer for the column, and no other one (H53).
//! * The write is no deletion. Collection drops a deletion together with its acknowledgements, and
//!   may do so before the run commits, which would then find none. It keeps the newest
//!   acknowledgement of a cell that has a value.
//! * The store is in this process: it offers one-step commits, and returns the cell without
//!   waiting. With other stores, one request reads the cell and the acknowledgement, and nothing
//!   would be saved.
//!
//! A hint may be stale, because another worker has handled the change, or has set it aside. Then
//! the observer runs in vain, and its transaction has no effect, or it runs once more on what was
//! set aside. That happens once for a hint: repeated visits go the usual way.

use bigtable::{Glanced, Timestamp};
use bytes::Bytes;

use crate::mutants::{self, off};
use crate::observe::change::Change;
use crate::observe::observer::{Registration, Runner};
use crate::records::column::Cell;
use crate::records::lock::Kind;
use crate::records::schema::Strength;
use crate::records::write::Write;
use crate::shared::Shared;
use crate::txn::get::{Seen, glance};
use crate::txn::held::check_held;
use crate::{Result, Transaction};

/// Whether the only observer of these workers for a cell's column may have a hinted run.
pub(super) fn may_be_hinted(shared: &Shared, cell: &Cell, registration: &Registration) -> bool {
    matches!(registration.runner, Runner::Each(_))
        && registration.observed.strength == Strength::Strong
        && !cell.table.notifies_apart()
        && shared.services().store.commits_rows()
}

/// Writes the observer's acknowledgement of the change at `at` into the transaction, and returns
/// the change. `None` if the usual way must decide. Then the transaction is of no use any more.
pub(super) fn acknowledge_hinted(
    tx: &mut Transaction,
    cell: &Cell,
    registration: &Registration,
    at: Timestamp,
) -> Result<Option<Change>> {
    let Cell { table, row, column } = cell;
    let schema = tx.shared.known_schema();
    let mut of = schema.of(table.name(), column);
    let is_alone = of.next() == Some(&registration.observed)
        && (of.next().is_none() || off(mutants::HINTED_FOR_OTHERS));
    if !is_alone {
        return Ok(None);
    }
    let s = tx.start_ts();
    let Glanced::Newest(commit_ts, record) = glance(&tx.shared, table, row, column, s)? else {
        return Ok(None);
    };
    check_held(&tx.shared, s)?;
    let Write { kind, short_value, start_ts, .. } = Write::of(record)?;
    let deleted = kind == Kind::Delete;
    if commit_ts != at || deleted && !off(mutants::DELETION_IS_HINTED) {
        return Ok(None);
    }
    // A long value is read when the observer asks for it.
    let seen = short_value.map_or(Seen::Apart(start_ts), Seen::Here);
    tx.observing.get_or_insert_default().looked_at = (!deleted).then(|| (cell.clone(), seen));
    if !off(mutants::NO_ACK) {
        let ack = Cell::new(table, row, &registration.ack);
        tx.put(ack.clone(), Some(Bytes::copy_from_slice(&s.as_u64().to_be_bytes())))?;
        let observing = tx.observing.get_or_insert_default();
        (observing.ack, observing.acknowledged_below) = (Some(ack), Some(at));
    }
    let Cell { table, row, column } = cell.clone();
    Ok(Some(Change { table, row, column, commit_ts, deleted }))
}
