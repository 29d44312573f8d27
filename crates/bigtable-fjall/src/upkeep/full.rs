//! Decides which buffers to seal: full ones, and those with a large superseded part
//! (`churn.rs`). The committer looks for them after a batch.
//!
//! The engine syncs its journal before it writes a buffer out, and all batches wait meanwhile. In a
//! store that syncs no batch, a whole buffer's bytes are unsynced then. So the committer of such a
//! store syncs the journal several times a buffer. Batches wait more often, and less long (ADR-23).

use bigtable::sync::locked;
use fjall::{AbstractTree, Keyspace};

use crate::commit::buffers::Seen;
use crate::commit::write::persist;
use crate::engine::{Engine, Lead};
use crate::upkeep::churn::{BYTES_FOR_ONE, SUPERSEDED_MAX};
use crate::upkeep::old_journals::limit_journals;
use crate::upkeep::seal::{rotate, seal, sealed, writes_nothing_out};
use crate::waits::may_wait;

/// The committer looks for full buffers after one part in this many of a buffer was written. A
/// look takes a lock of the engine for each keyspace.
const LOOKED_FOR_PARTS: u64 = 16;
/// The committer syncs the journal after one part in this many of a buffer was written.
const SYNCED_PARTS: u64 = 8;

/// Seals the buffers that are full, after a batch put `bytes` bytes into them. That batch is
/// written in any case. If sealing fails, the next batch is refused.
pub(crate) fn seal_full(engine: &Engine, lead: &Lead, bytes: u64) {
    lead.unlooked.set(lead.unlooked.get() + bytes);
    if !is_look_due(engine, lead) {
        return;
    }
    sync_early(engine, lead, lead.unlooked.take());
    for group in &lead.groups {
        for keyspace in group.keyspaces() {
            if seal_if_full(engine, lead, keyspace)
                && let Some(mut churn) = group.churn()
            {
                churn.restart();
            }
        }
        if group.history.is_some() {
            let seen = Seen::of(&group.cells);
            locked(&engine.recent).saw_buffers(&seen);
        }
    }
    seal_if_full(engine, lead, &engine.catalog.0);
    limit_journals(engine, lead);
}

/// Whether it is time to look for full buffers.
pub(crate) fn is_look_due(engine: &Engine, lead: &Lead) -> bool {
    lead.unlooked.get() >= engine.options.write_buffer_bytes / LOOKED_FOR_PARTS
}

/// Syncs the journal of a store that syncs no batch, if enough was written. If that fails, the
/// engine is opened anew.
fn sync_early(engine: &Engine, lead: &Lead, bytes: u64) {
    let unsynced = lead.unsynced.get() + bytes;
    let is_due = unsynced >= engine.options.write_buffer_bytes / SYNCED_PARTS;
    lead.unsynced.set(if is_due { 0 } else { unsynced });
    if is_due && !engine.sync() {
        may_wait("syncing the journal early");
        // The engine has noted the error.
        let _ = persist(engine);
    }
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

#[cfg(test)]
mod tests {
    use bigtable::Timestamp;
    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Table, TableSchema};
    use futures::executor::block_on;

    use crate::held::syncers;
    use crate::{Durability, FjallStore, Options};

    const BUFFER_BYTES: u64 = 4 << 20;
    /// With so few writes each is long, so the committer thread takes it.
    const WRITES: u64 = 64;

    /// Writes a buffer's bytes, and returns which threads synced the journal meanwhile.
    fn synced_by(durability: Durability) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        syncers(dir.path());
        let options = Options { write_buffer_bytes: BUFFER_BYTES, ..Options::default() };
        let store = FjallStore::open(dir.path(), Options { durability, ..options }).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        let before = syncers(dir.path()).len();
        for _ in 0..WRITES {
            let cells = Family::from_static("cells");
            let value = vec![7; (BUFFER_BYTES / WRITES) as usize];
            let cell = Mutation::set(cells, "q", Timestamp::ZERO, value);
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
        }
        syncers(dir.path()).split_off(before)
    }

    #[test]
    fn a_store_that_syncs_no_batch_syncs_its_journal_eight_times_a_buffer() {
        assert_eq!(synced_by(Durability::Buffered), ["bigtable-commit"; 8]);
    }

    #[test]
    fn a_store_that_syncs_each_batch_syncs_nothing_more() {
        assert_eq!(synced_by(Durability::Sync).len() as u64, WRITES);
    }
}
