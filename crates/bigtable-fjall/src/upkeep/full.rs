//! Which buffers are sealed: full ones, and those of which much is superseded (`churn.rs`). The
//! committer looks for them after a batch.

use fjall::{AbstractTree, Keyspace};

use crate::engine::{Engine, Lead};
use crate::upkeep::churn::{BYTES_FOR_ONE, SUPERSEDED_MAX};
use crate::upkeep::old_journals::limit_journals;
use crate::upkeep::seal::{rotate, seal, sealed, writes_nothing_out};

/// Full buffers are looked for when so large a part of one may have been filled: a look takes a
/// lock of the engine for each keyspace.
const LOOKED_FOR_PARTS: u64 = 16;

/// Seals the buffers that are full, now that a batch put so many bytes into them. The batch is
/// written whatever comes of it; if it fails, the next one is not.
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

/// Seals the buffers of which much is superseded (`churn.rs`), but waits for nothing: a buffer
/// that is being written out comes first. A write that fails shows at the next batch, as in
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
        sealed(engine, rotate(&engine.calm, &group.cells));
    }
}

/// Whether the buffer was full, and was sealed. While the engine writes another buffer out this
/// one may become larger: it would wait, and the store would not be calm meanwhile.
fn seal_if_full(engine: &Engine, lead: &Lead, keyspace: &Keyspace) -> bool {
    let (size, full) = (keyspace.tree.active_memtable().size(), engine.options.write_buffer_bytes);
    let is_due = size >= full.saturating_add(full / 2)
        || (size >= full && writes_nothing_out(&engine.db, lead));
    is_due && seal(engine, keyspace)
}
