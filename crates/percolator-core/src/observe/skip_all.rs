//! Acknowledges the changes of a transaction that skips observers, in the transaction itself.
//!
//! The transaction writes the acknowledgement of each strong observer beside each observed cell.
//! The acknowledgement has an empty value, which stands for its own commit timestamp. Both have
//! the same commit timestamp *c*, so:
//!
//! * No observer has work on the cell as of *c*: the newest change is not above *c*.
//! * A later change of the cell has a timestamp above *c*, so its observers run (H50).
//! * Nobody else has changed the cell between the start and *c*, because the two transactions
//!   would have conflicted.
//! * An overlapping run of an observer conflicts over the acknowledgement. If the run loses, its
//!   next attempt finds the change acknowledged (H52).
//!
//! An earlier change that no observer has handled yet is overwritten, and skipped with it. An
//! observer that is registered later than the transaction's snapshot has no acknowledgement, so
//! it runs.

use bytes::Bytes;

use crate::mutants::{self, off};
use crate::options::TRANSACTION_CELLS_MAX;
use crate::records::column::Cell;
use crate::records::schema::{Schema, Strength};
use crate::txn::buffer::Writes;
use crate::txn::transaction::too_large;
use crate::{Result, Timestamp};

/// Adds the acknowledgements of all strong observers of the written cells.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) if the transaction has too many cells with them.
pub(crate) fn acknowledge_all(schema: &Schema, writes: Writes) -> Result<Writes> {
    let value = if off(mutants::SKIPS_FOR_EVER) {
        Bytes::copy_from_slice(&Timestamp::MAX.as_u64().to_be_bytes())
    } else {
        Bytes::new()
    };
    let mut all = Writes::default();
    for (cell, written) in writes {
        for entry in schema.of(cell.table.name(), &cell.column) {
            if entry.strength == Strength::Strong {
                let ack = Cell { column: cell.column.ack_of(&entry.observer), ..cell.clone() };
                all.insert(ack, Some(value.clone()));
            }
        }
        all.insert(cell, written);
    }
    if all.len() > TRANSACTION_CELLS_MAX {
        return Err(too_large("cells and acknowledgements", TRANSACTION_CELLS_MAX));
    }
    Ok(all)
}
