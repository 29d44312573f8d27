//! Knows when the engine's write buffers hold no key beyond those that are cached, so that the
//! committer looks for other keys in files alone.
//!
//! The first write of a column asks for a key that is nowhere. Files have filters that answer this
//! at once. A write buffer has none: the engine compares some twenty keys to find that one is not
//! there. But `recent.rs` caches what was set last, with more bytes than buffers mostly have. It
//! knows since which batch it holds every key, and this file knows since which batch the buffers
//! of a keyspace were filled. If the cache goes back as far, a key that it lacks is in no buffer.
//!
//! Invariants:
//! * Every batch tells the cache which keys of these keyspaces it sets. A batch that does not makes
//!   the cache forget that it is whole (H80).
//! * The keys of a buffer that the engine recovered from its journal are unknown.
//! * A sealed buffer counts until it is written out. A file then has its keys, and the committer
//!   takes the list of files after it has asked here.

use fjall::{AbstractTree, Keyspace, Slice};
use lsm_tree::table::filter::standard_bloom::Builder;
use lsm_tree::{MemtableId, SeqNo, ValueType};
use smallvec::SmallVec;

use crate::mutants::{self, off};

/// The keys in some buffers were set after this many batches. The highest number stands for no
/// buffer, and `None` for a buffer with unknown keys.
type Since = Option<u64>;

const NO_BUFFER: Since = Some(u64::MAX);

/// The write buffers that the engine had for a keyspace at one moment.
#[derive(Debug)]
pub(crate) struct Seen {
    keyspace: u64,
    buffer: MemtableId,
    sealed: usize,
}

impl Seen {
    /// Takes locks of the engine, so a caller holds none that readers need.
    pub(crate) fn of(keyspace: &Keyspace) -> Self {
        // In this order. A buffer that is sealed in between is counted, and the next look finds
        // that another one is written to.
        let buffer = keyspace.tree.active_memtable().id();
        Self { keyspace: keyspace.id(), buffer, sealed: keyspace.sealed_memtable_count() }
    }
}

/// The write buffers of one keyspace.
#[derive(Debug)]
struct Buffered {
    keyspace: u64,
    /// The buffer that was written to at the last look.
    buffer: MemtableId,
    /// The number of batches at that look.
    batches: u64,
    active: Since,
    sealed: Since,
}

/// The write buffers of all keyspaces of newest versions. Only the holder of the commit lock uses
/// them.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    buffered: SmallVec<[Buffered; 2]>,
}

impl Buffers {
    /// Follows the buffers of a keyspace that was just opened, after this many batches.
    pub(crate) fn open(&mut self, keyspace: &Keyspace, batches: u64) {
        let buffer = keyspace.tree.active_memtable();
        let is_empty = buffer.is_empty() && keyspace.sealed_memtable_count() == 0;
        self.buffered.push(Buffered {
            keyspace: keyspace.id(),
            buffer: buffer.id(),
            batches,
            active: (is_empty || off(mutants::RECOVERED_IS_EMPTY)).then_some(batches),
            sealed: NO_BUFFER,
        });
    }

    /// Notes which buffers there were after this many batches. It may be called at any time.
    pub(crate) fn saw(&mut self, seen: &Seen, batches: u64) {
        let of = |known: &&mut Buffered| known.keyspace == seen.keyspace;
        let Some(known) = self.buffered.iter_mut().find(of) else { return };
        let is_new = seen.buffer != known.buffer;
        // The engine writes buffers out in their order. If one is left, it was sealed last.
        if seen.sealed <= usize::from(is_new) {
            known.sealed = NO_BUFFER;
        }
        if is_new {
            let sealed = known.sealed.min(known.active);
            known.sealed = if off(mutants::SEALED_IS_FORGOTTEN) { NO_BUFFER } else { sealed };
            // The batches up to the last look went into the buffer before.
            known.active = Some(known.batches);
            known.buffer = seen.buffer;
        }
        known.batches = batches;
    }

    /// Whether a buffer of the keyspace may hold a key that no batch after this number has set.
    pub(crate) fn may_hold_earlier(&self, keyspace: &Keyspace, number: u64) -> bool {
        let known = self.buffered.iter().find(|known| known.keyspace == keyspace.id());
        let since = known.and_then(|known| known.active.min(known.sealed));
        since.is_none_or(|since| since < number)
    }
}

/// The value under a key that no buffer holds.
pub(crate) fn get_in_files(keyspace: &Keyspace, key: &[u8]) -> fjall::Result<Option<Slice>> {
    let (files, hash) = (keyspace.tree.current_version(), Builder::get_hash(key));
    let runs = files.iter_levels().flat_map(|level| level.iter());
    for file in runs.filter_map(|run| run.get_for_key(key)) {
        let Some(found) = file.get(key, SeqNo::MAX, hash)? else { continue };
        return match found.key.value_type {
            ValueType::Value => Ok(Some(found.value)),
            ValueType::Tombstone | ValueType::WeakTombstone => Ok(None),
            ValueType::Indirection => keyspace.get(key),
        };
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bigtable::sync::locked;
    use bigtable::{ConditionalMutation, Family, Layout, LocalityGroup, Mutation, Probe};
    use bigtable::{RowMutation, Table, TableSchema, TimeRange, Timestamp};
    use futures::executor::block_on;

    use super::*;
    use crate::held::wait_until;
    use crate::upkeep::seal::rotate;
    use crate::{FjallStore, FjallTable, Options};

    const FAMILY: Family = Family::from_static("newest");
    const RECENT_BYTES: usize = 8 << 10;
    /// So many rows that the cache keeps only a few of them.
    const ROWS: usize = RECENT_BYTES / 64;

    fn open(dir: &Path) -> FjallTable {
        let options = Options { recent_bytes: RECENT_BYTES, ..Options::default() };
        let store = FjallStore::open(dir, options).unwrap();
        let groups = vec![LocalityGroup::on_disk("newest", Layout::NewestFirst)];
        block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap()
    }

    fn set(table: &FjallTable, row: &str) {
        let set = Mutation::set(FAMILY, "q", Timestamp::ZERO, "value");
        block_on(table.mutate_row(RowMutation::new(row.to_owned()).mutation(set))).unwrap();
    }

    fn delete(table: &FjallTable, row: &str) {
        let delete = Mutation::delete(FAMILY, "q", TimeRange::ALL);
        block_on(table.mutate_row(RowMutation::new(row.to_owned()).mutation(delete))).unwrap();
    }

    /// Writes so many other rows that the cache forgets all that came before. Then looks which
    /// buffers there are.
    fn forget(table: &FjallTable) {
        (0..ROWS).for_each(|n| set(table, &format!("other {n}")));
        look(table);
    }

    /// The rows among "a" to "e" that the committer finds, and whether it searches write buffers
    /// for keys that are not cached.
    fn found(table: &FjallTable) -> (String, bool) {
        look(table);
        let finds = |row: &&str| {
            let predicate = vec![Probe::new(FAMILY, "q", TimeRange::ALL)];
            let asked = ConditionalMutation { predicate, ..ConditionalMutation::new(*row) };
            block_on(table.check_and_mutate_row(asked)).unwrap()
        };
        let rows = ["a", "b", "c", "d", "e"].into_iter().filter(finds).collect();
        let (engine, info) = table.opened();
        (rows, locked(&engine.recent).may_be_buffered(&info.groups[0].cells))
    }

    fn look(table: &FjallTable) {
        let (engine, info) = table.opened();
        let _lead = engine.wait_to_lead().unwrap();
        locked(&engine.recent).saw_buffers(&Seen::of(&info.groups[0].cells));
    }

    fn seal(table: &FjallTable) {
        let (engine, info) = table.opened();
        let _lead = engine.wait_to_lead().unwrap();
        assert!(rotate(&engine, &info.groups[0].cells).unwrap());
    }

    fn wait_until_written(table: &FjallTable) {
        let (_, info) = table.opened();
        let cells = &info.groups[0].cells;
        wait_until("all is written out", || cells.sealed_memtable_count() == 0);
    }

    #[test]
    fn h80_the_committer_sees_what_write_buffers_hold() {
        crate::mutants::switch_off_named_mutant();
        let dir = tempfile::tempdir().unwrap();
        let table = open(dir.path());
        let rows = |rows: &str, searched: bool| (rows.to_owned(), searched);
        set(&table, "a");
        assert_eq!(found(&table), rows("a", false), "a new store, whose rows are all cached");
        forget(&table);
        assert_eq!(found(&table), rows("a", true));
        let (_, info) = table.opened();
        {
            // The engine writes nothing out while somebody holds this lock.
            let _writing = info.groups[0].cells.tree.get_flush_lock();
            forget(&table);
            seal(&table);
            assert_eq!(found(&table), rows("a", true), "a sealed buffer waits");
            set(&table, "b");
            forget(&table);
            seal(&table);
            assert_eq!(found(&table), rows("ab", true), "two of them wait");
            delete(&table, "a");
            set(&table, "c");
            assert_eq!(found(&table), rows("bc", true));
        }
        drop(info);
        wait_until_written(&table);
        assert_eq!(found(&table), rows("bc", false), "what was set since is cached");
        forget(&table);
        assert_eq!(found(&table), rows("bc", true));
        set(&table, "d");
        seal(&table);
        wait_until_written(&table);
        assert_eq!(found(&table), rows("bcd", true), "of batches after the last look");
        forget(&table);
        seal(&table);
        wait_until_written(&table);
        look(&table);
        assert_eq!(found(&table), rows("bcd", false), "all is in files, and nothing is cached");
        set(&table, "e");
        drop(table);
        let table = open(dir.path());
        assert_eq!(found(&table), rows("bcde", true), "a buffer recovered from a journal");
        seal(&table);
        wait_until_written(&table);
        found(&table);
        assert_eq!(found(&table), rows("bcde", false));
    }
}
