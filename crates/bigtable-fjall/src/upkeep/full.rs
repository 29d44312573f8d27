//! Decides which buffers to seal: full ones, and those with a large superseded part
//! (`churn.rs`). The committer looks for them after a batch.

use fjall::{AbstractTree, Keyspace};

use crate::engine::{Engine, Lead};
use crate::upkeep::churn::{BYTES_FOR_ONE, SUPERSEDED_MAX};
use crate::upkeep::old_journals::limit_journals;
use crate::upkeep::seal::{rotate, seal, sealed, writes_nothing_out};

/// The committer looks for full buffers after one part in this many of a buffer was written. A
/// look takes a lock of the engine for each keyspace.
const LOOKED_FOR_PARTS: u64 = 16;

/// Seals the buffers that are full, after a batch put `bytes` bytes into them. That batch is
/// written in any case. If sealing fails, the next batch is refused.
pub(crate) fn seal_full(engine: &Engine, lead: &Lead, bytes: u64) {
    lead.unlooked.set(lead.unlooked.get() + bytes);
    if !is_look_due(engine, lead) {
        return;
    }
    lead.unlooked.set(0);
    for group in &lead.groups {
        for keyspace in group.keyspaces() {
            if seal_if_full(engine, lead, keyspace)
                && let Some(mut churn) = group.churn()
            {
                churn.restart();
            }
        }
    }
    seal_if_full(engine, lead, &engine.catalog.0);
    limit_journals(engine, lead);
}

/// Whether it is time to look for full buffers.
pub(crate) fn is_look_due(engine: &Engine, lead: &Lead) -> bool {
    lead.unlooked.get() >= engine.options.write_buffer_bytes / LOOKED_FOR_PARTS
}

/// Seals the buffers with a large superseded part (`churn.rs`), without waiting: a buffer that
/// is being written out goes first. If sealing fails, the next batch is refused, as in
/// [`seal_full`].
pub(crate) fn seal_churned(engine: &Engine, lead: &Lead) {
    for group in &lead.groups {
        let Some(mut churn) = group.churn() else { continue };
        let Some(superseded) = churn.much() else { continue };
        let bytes = group.cells.disk_space();
        let due = SUPERSEDED_MAX + bytes / BYTES_FOR_ONE;
        if superseded < due {
            churn.put_off(due);
            continue;
        }
        if group.cells.sealed_memtable_count() > 0 {
            churn.put_off(superseded + SUPERSEDED_MAX / 4);
            continue;
        }
        churn.restart();
        sealed(engine, rotate(engine, &group.cells));
    }
}

/// Seals a full buffer, and returns whether it did. While the engine writes another buffer
/// out, this one may grow by half. Sealed earlier, it would only wait, and the store would not
/// be calm meanwhile.
fn seal_if_full(engine: &Engine, lead: &Lead, keyspace: &Keyspace) -> bool {
    let (size, full) = (keyspace.tree.active_memtable().size(), engine.options.write_buffer_bytes);
    let is_due = size >= full.saturating_add(full / 2)
        || (size >= full && writes_nothing_out(&engine.db, lead));
    is_due && seal(engine, keyspace)
}
