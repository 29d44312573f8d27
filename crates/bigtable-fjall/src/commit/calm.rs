//! Tracks whether the store is calm. In a calm store an unsynced batch takes only a short
//! time, so a caller may write it on a thread that polls futures.
//!
//! The engine writes a sealed buffer out in three stages:
//!
//! | stage | what the engine does | what it holds |
//! |---|---|---|
//! | 1 | syncs the journal, or syncs it and begins another | the lock of the journal |
//! | 2 | writes the sorted run | nothing that a batch needs |
//! | 3 | syncs the keyspace's new list of files | the lock of that list |
//!
//! A batch that is written in stage 1 waits for the sync. So the store stops being calm when a
//! buffer is sealed. It becomes calm when the committer thread finds, after a group, that all of
//! these hold:
//!
//! * Stage 1 has ended for every sealed buffer.
//! * No keyspace has so many runs that writes wait for merges.
//! * The newest journal has its second name (`upkeep/journals.rs`).
//! * An unsynced batch was written before. So a store that syncs every batch is never calm.
//! * The engine has not failed.
//!
//! Stage 2 takes most of the time, and batches are short in it. In stage 3 the store counts as
//! calm, although a batch then waits for the sync of the list. Nothing announces stage 3: each
//! merge ends with the same sync, and readers wait for it too.
//!
//! Stage 1 has ended for every sealed buffer when two conditions hold. No sealed buffer waits
//! for a thread of the engine. Each keyspace with a sealed buffer has numbered a new file
//! since the seal. The engine numbers the file of the run when stage 2 begins. If a keyspace
//! was sealed twice in a row, the new file could belong to either buffer. Such a keyspace must
//! have written both buffers out. The engine never seals by itself (`seal.rs`,
//! `old_journals.rs`), so every stage 1 follows a seal that this file knows of.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use bigtable::sync::locked;
use fjall::{AbstractTree, Database, Keyspace};

/// Whether batches are short, and the sealed buffers that must be synced before they are
/// again.
#[derive(Debug, Default)]
pub(crate) struct Calm {
    is_calm: AtomicBool,
    sealed: Mutex<Vec<Sealed>>,
}

/// A keyspace whose buffer was sealed since the store was last calm.
#[derive(Debug, Clone, Copy)]
struct Sealed {
    tree: u64,
    /// The number of the keyspace's next file at the time of the seal. `None` if the keyspace
    /// had another sealed buffer then: a new number could belong to either buffer.
    next_file: Option<u64>,
}

impl Calm {
    pub(crate) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    fn sealed(&self) -> MutexGuard<'_, Vec<Sealed>> {
        locked(&self.sealed)
    }

    /// Notes that a buffer of the keyspace is about to be sealed. The caller holds the commit
    /// lock.
    pub(crate) fn ends(&self, keyspace: &Keyspace) {
        self.is_calm.store(false, Ordering::Relaxed);
        let mut sealed = self.sealed();
        let (tree, next_file) = (keyspace.tree.id(), keyspace.tree.next_table_id());
        match sealed.iter_mut().find(|known| known.tree == tree) {
            Some(known) => known.next_file = None,
            None => {
                let only = keyspace.sealed_memtable_count() == 0;
                sealed.push(Sealed { tree, next_file: only.then_some(next_file) });
            }
        }
    }

    /// Notes that batches are short from now on, until the next seal.
    pub(crate) fn begins(&self) {
        self.sealed().clear();
        self.is_calm.store(true, Ordering::Relaxed);
    }

    /// Whether the engine has synced the journal for each sealed buffer. This includes buffers
    /// of tables that are not open, which `old_journals.rs` seals.
    pub(crate) fn are_past_sync(&self, db: &Database) -> bool {
        let keyspaces = db.supervisor.keyspaces.read();
        keyspaces.is_ok_and(|all| all.values().all(|one| self.is_past_sync(one)))
    }

    /// Whether the keyspace has no sealed buffer, or the engine is in stage 2 or 3 of the only one.
    fn is_past_sync(&self, keyspace: &Keyspace) -> bool {
        let begun = |known: &Sealed| {
            known.tree == keyspace.tree.id()
                && known.next_file.is_some_and(|before| keyspace.tree.next_table_id() > before)
        };
        keyspace.sealed_memtable_count() == 0 || self.sealed().iter().any(begun)
    }
}

#[cfg(test)]
mod tests {
    use bigtable::Timestamp;
    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation, Table, TableSchema};
    use futures::executor::block_on;

    use crate::held::{CALM, UNOPENED, hold, wait_until};
    use crate::upkeep::seal::seal;
    use crate::{Durability, FjallStore, FjallTable, Options};

    #[test]
    fn callers_write_again_as_soon_as_the_engine_has_synced_the_journal() {
        let _over = hold(&CALM);
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let store = FjallStore::open(dir.path(), options).unwrap();
        let schema = TableSchema { groups: vec![LocalityGroup::on_disk("calm", Layout::Versions)] };
        let table = block_on(store.open_fjall_table("t", &schema)).unwrap();
        let engine = table.opened().0;
        let write = || {
            let cell = Mutation::set(Family::from_static("calm"), "q", Timestamp::ZERO, "value");
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
        };
        // Each write makes the committer check for calm, after it has answered.
        let wait_for_calm = || {
            wait_until("the store is calm", || {
                write();
                engine.calm.is_calm()
            });
        };
        wait_for_calm();
        let keyspace = &table.opened().1.groups[0].cells;
        {
            let _lead = engine.wait_to_lead().unwrap();
            assert!(seal(&engine, keyspace));
        }
        assert!(!engine.calm.is_calm());
        wait_until("the journal is synced", || CALM.synced.is_reached());
        for _ in 0..100 {
            write();
            assert!(!engine.calm.is_calm(), "nobody knows yet that the journal is synced");
        }
        CALM.synced.release();
        wait_until("the run is written", || CALM.written.is_reached());
        wait_for_calm();
        assert_eq!(keyspace.sealed_memtable_count(), 1, "the run is in the list of files already");
        {
            let _lead = engine.wait_to_lead().unwrap();
            assert!(seal(&engine, keyspace), "a second buffer, while the first is written out");
        }
        for _ in 0..100 {
            write();
            assert!(!engine.calm.is_calm(), "the engine will sync the journal for the second one");
        }
        CALM.written.release();
        wait_for_calm();
    }

    #[test]
    fn a_sealed_buffer_of_a_table_that_nobody_has_opened_counts() {
        let _over = hold(&UNOPENED);
        let dir = tempfile::tempdir().unwrap();
        let open = |group: &'static str| {
            let options = Options { durability: Durability::Buffered, ..Options::default() };
            let store = FjallStore::open(dir.path(), options).unwrap();
            let groups = vec![LocalityGroup::on_disk(group, Layout::Versions)];
            block_on(store.open_fjall_table(group, &TableSchema { groups })).unwrap()
        };
        let write = |table: &FjallTable, family| {
            let cell = Mutation::set(family, "q", Timestamp::ZERO, "value");
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
        };
        write(&open("unopened"), Family::from_static("unopened"));
        let table = open("open");
        let engine = table.opened().0;
        let write = || write(&table, Family::from_static("open"));
        let wait_for_calm = || {
            wait_until("the store is calm", || {
                write();
                engine.calm.is_calm()
            });
        };
        wait_for_calm();
        {
            let _lead = engine.wait_to_lead().unwrap();
            let all = engine.db.supervisor.keyspaces.read().unwrap();
            let unopened = all.values().find(|one| one.name().starts_with("unopened"));
            assert!(seal(&engine, unopened.unwrap()));
        }
        wait_until("the journal is synced", || UNOPENED.synced.is_reached());
        for _ in 0..100 {
            write();
            assert!(!engine.calm.is_calm(), "nobody knows yet that the journal is synced");
        }
        UNOPENED.synced.release();
        wait_for_calm();
        UNOPENED.written.release();
    }
}
