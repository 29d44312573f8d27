//! Opens snapshots of the published state: all of every finished batch, and nothing of the
//! batch that is being written.
//!
//! The engine publishes a batch by raising the number below which entries are visible. It also
//! raises this number when a flush or a compaction ends, usually on its own thread. So a
//! snapshot that is opened while a batch is inserted may show a part of the batch. This file
//! counts batches, and withholds such a snapshot from readers.
//!
//! Invariants: only the holder of the commit lock begins a batch, one at a time. A
//! [`Published`] shows the state after exactly `batches` batches.

use std::sync::atomic::{AtomicU64, Ordering};

use fjall::{Database, Snapshot};

/// A state that was published.
pub(crate) struct Published {
    pub(crate) snapshot: Snapshot,
    /// The number of batches since the store was opened that the snapshot shows.
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
    /// Batches begun plus batches ended: odd while a batch is being written.
    count: AtomicU64,
    /// The engine's visible number before the batch that is being written.
    before: AtomicU64,
}

/// A batch that is being written. Dropping this ends the batch.
pub(crate) struct OpenBatch<'a>(&'a Batches);

impl Drop for OpenBatch<'_> {
    fn drop(&mut self) {
        // After a panic a part of the batch may be inserted. Leave the count odd, so that no
        // reader sees that part.
        if !std::thread::panicking() {
            self.0.count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Batches {
    /// Begins a batch. The caller holds the commit lock and has not given the batch to the
    /// engine yet.
    pub(crate) fn begin(&self, db: &Database) -> OpenBatch<'_> {
        self.before.store(db.visible_seqno(), Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        OpenBatch(self)
    }

    /// The number of ended batches.
    pub(crate) fn ended(&self) -> u64 {
        self.count.load(Ordering::SeqCst) / 2
    }

    /// Opens a snapshot. Returns `None` if it might show a part of a batch, because a batch is
    /// being written or has just been.
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
        // Half of the batch is inserted, and something raises the engine's number: a separate
        // write in this test, otherwise the end of a flush.
        keyspace.insert("half", "of a batch").unwrap();
        assert_eq!(shows(batches.open(&db)), None);
        drop(open_batch);
        assert_eq!(shows(batches.open(&db)), Some((1, true)));
        // A number that was raised between two batches does no harm.
        db.keyspace("another", KeyspaceCreateOptions::default).unwrap();
        let _open_batch = batches.begin(&db);
        assert_eq!(shows(batches.open(&db)), Some((1, true)));
    }
}
