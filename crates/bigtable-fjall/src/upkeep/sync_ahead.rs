//! Syncs the newest journal ahead of the engine.
//!
//! The engine syncs its journal before it writes a buffer out, and holds up all batches meanwhile.
//! In a store that syncs no batch, that took 20 to 40 ms for the 16 MiB of a buffer, and longer for
//! several. So the thread of `freeing.rs` syncs the journal after every few megabytes. The engine
//! then finds little left. A batch is not held up by this thread's sync, which the thread makes
//! through a file of its own.
//!
//! Nobody relies on this sync: a batch is as durable as before.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use crate::waits::may_wait;

/// The thread syncs the journal after this many bytes of batches that nobody has synced.
const BYTES_MAX: u64 = 4 << 20;

/// The bytes of batches since the last sync, or since the thread was last asked to sync.
#[derive(Debug, Default)]
pub(crate) struct Unsynced(u64);

impl Unsynced {
    /// Counts a batch. Returns whether the journal is to be synced now.
    pub(crate) fn add(&mut self, batch_bytes: u64, synced: bool) -> bool {
        self.0 = if synced { 0 } else { self.0 + batch_bytes };
        let many = self.0 >= BYTES_MAX;
        if many {
            self.0 = 0;
        }
        many
    }
}

/// Syncs a journal, if the engine has not removed it. An error is only logged: the operating system
/// reports it to the engine, too, when the engine syncs its own open file.
pub(super) fn sync(journal: &Path) {
    may_wait("syncing a journal ahead");
    let synced = OpenOptions::new().write(true).open(journal).and_then(|file| file.sync_data());
    #[cfg(test)]
    crate::held::note_synced(journal);
    if let Err(error) = synced
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(
            target: "percolator::store", event = "journal_not_synced",
            file = %journal.display(), %error,
        );
    }
}

#[cfg(test)]
mod tests {
    use bigtable::{Family, Layout, LocalityGroup, Mutation, RowMutation};
    use bigtable::{Table, TableSchema, Timestamp};
    use futures::executor::block_on;

    use super::*;
    use crate::held::{synced, wait_until};
    use crate::{Durability, FjallStore, Options};

    #[test]
    fn only_batches_that_nobody_has_synced_are_counted() {
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.add(BYTES_MAX - 1, false));
        assert!(!unsynced.add(1, true), "this batch was synced, and all before it");
        assert!(!unsynced.add(BYTES_MAX - 1, false));
        assert!(unsynced.add(1, false));
        assert!(!unsynced.add(1, false), "the thread was asked a moment ago");
        assert!(unsynced.add(3 * BYTES_MAX, false));
    }

    #[test]
    fn the_journal_is_synced_long_before_a_buffer_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        assert!(2 * BYTES_MAX < options.write_buffer_bytes);
        let store = FjallStore::open(dir.path(), options).unwrap();
        let groups = vec![LocalityGroup::on_disk("cells", Layout::Versions)];
        let table = block_on(store.open_fjall_table("t", &TableSchema { groups })).unwrap();
        let write = |bytes: u64| {
            let cells = Family::from_static("cells");
            let cell = Mutation::set(cells, "q", Timestamp::ZERO, vec![7; bytes as usize]);
            block_on(table.mutate_row(RowMutation::new("row").mutation(cell))).unwrap();
        };
        (0..3).for_each(|_| write(BYTES_MAX / 4));
        assert_eq!(synced(dir.path()), 0);
        write(BYTES_MAX / 4);
        wait_until("the journal is synced", || synced(dir.path()) == 1);
    }

    #[test]
    fn a_journal_that_the_engine_has_removed_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        sync(&dir.path().join("0.jnl"));
    }
}
