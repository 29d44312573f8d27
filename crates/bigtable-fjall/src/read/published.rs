//! The published state, as readers see it: all of every batch that was written, and nothing of the
//! one that is being written.
//!
//! The engine shows a batch by raising the number below which entries are visible. It raises the
//! same number when a flush or a compaction ends, mostly on a thread of its own; so a snapshot that
//! is opened while a batch is being inserted may show a part of it. Batches are counted here, and a
//! snapshot that might is not given to readers.
//!
//! Invariants: only the holder of the commit lock begins a batch, one at a time; the state of a
//! [`Published`] is the one after `batches` of them, and no other.

use std::sync::atomic::{AtomicU64, Ordering};

use fjall::{Database, Snapshot};

/// A state that was published.
pub(crate) struct Published {
    pub(crate) snapshot: Snapshot,
    /// How many batches it shows since the store was opened.
    pub(crate) batches: u64,
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Published").field("batches", &self.batches).finish_non_exhaustive()
    }
}

/// Counts the batches of a store.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// Begun and ended ones: odd while one is being written.
    count: AtomicU64,
    /// The engine's number before the batch that is being written.
    before: AtomicU64,
}

/// A batch that is being written; it ends with this.
pub(crate) struct OpenBatch<'a>(&'a Batches);

impl Drop for OpenBatch<'_> {
    fn drop(&mut self) {
        // A panic may have left a part of it: nobody shall see that.
        if !std::thread::panicking() {
            self.0.count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Batches {
    /// Begins a batch. To be called under the commit lock, before the engine is given the batch.
    pub(crate) fn begin(&self, db: &Database) -> OpenBatch<'_> {
        self.before.store(db.visible_seqno(), Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        OpenBatch(self)
    }

    /// How many have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.count.load(Ordering::SeqCst) / 2
    }

    /// Opens a snapshot; `None` if it might show a part of a batch. Then one is being written, or
    /// just was.
    pub(crate) fn open(&self, db: &Database) -> Option<Published> {
        let count = self.count.load(Ordering::SeqCst);
        let before = self.before.load(Ordering::SeqCst);
        let snapshot = db.snapshot();
        let undisturbed = self.count.load(Ordering::SeqCst) == count;
        let whole = count.is_multiple_of(2) || snapshot.seqno() <= before;
        (undisturbed && whole).then_some(Published { snapshot, batches: count / 2 })
    }
}

#[cfg(test)]
mod tests {
    use fjall::{KeyspaceCreateOptions, Readable};

    use super::*;

    #[test]
    fn a_snapshot_never_shows_a_part_of_a_batch() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::builder(dir.path()).worker_threads(1).open().unwrap();
        let keyspace = db.keyspace("cells", KeyspaceCreateOptions::default).unwrap();
        let batches = Batches::default();
        let shows = |published: Option<Published>| {
            published.map(|p| (p.batches, p.snapshot.get(&keyspace, "half").unwrap().is_some()))
        };
        assert_eq!(shows(batches.open(&db)), Some((0, false)));
        let open_batch = batches.begin(&db);
        assert_eq!(shows(batches.open(&db)), Some((0, false)), "nothing of it is there yet");
        // Half of the batch is inserted, and something raises the engine's number: here a write of
        // its own, otherwise the end of a flush.
        keyspace.insert("half", "of a batch").unwrap();
        assert_eq!(shows(batches.open(&db)), None);
        drop(open_batch);
        assert_eq!(shows(batches.open(&db)), Some((1, true)));
        // What was raised between two batches disturbs none.
        db.keyspace("another", KeyspaceCreateOptions::default).unwrap();
        let _open_batch = batches.begin(&db);
        assert_eq!(shows(batches.open(&db)), Some((1, true)));
    }
}
