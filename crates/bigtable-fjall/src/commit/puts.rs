//! Collects the puts of one commit, and gives them to the engine.
//!
//! A single put uses the engine's plain write, which is as atomic as a batch of one and costs
//! less to set up. Several puts are a batch. A single put that must survive a power cut is
//! also written as a batch. The engine syncs a batch before readers see it, but shows a plain
//! write before a sync.
//!
//! A plain write relies on two facts. The engine flushes it, because no keyspace sets
//! `manual_journal_persist`. Its key and value are within the engine's limits, because the
//! store's own limits are lower.

use fjall::{Database, Keyspace, OwnedWriteBatch, PersistMode, Slice};
use smallvec::SmallVec;

/// Bytes that the engine writes around a key and its value, with room to spare.
const ITEM_BYTES: u64 = 64;

/// A value to put under a key, or `None` to remove the key.
struct Put {
    keyspace: Keyspace,
    key: Slice,
    value: Option<Slice>,
}

/// Puts that become visible together. There is at most one for each key, because the engine
/// gives all of them the same number.
#[derive(Default)]
pub(crate) struct Puts {
    puts: SmallVec<[Put; 6]>,
    /// The most bytes that the puts take in the engine's journal.
    bytes: u64,
}

impl Puts {
    pub(crate) fn insert(
        &mut self,
        keyspace: &Keyspace,
        key: impl Into<Slice>,
        value: impl Into<Slice>,
    ) {
        self.put(keyspace, key.into(), Some(value.into()));
    }

    pub(crate) fn remove(&mut self, keyspace: &Keyspace, key: impl Into<Slice>) {
        self.put(keyspace, key.into(), None);
    }

    pub(crate) fn put(&mut self, keyspace: &Keyspace, key: Slice, value: Option<Slice>) {
        let value_bytes = value.as_ref().map_or(0, |value| value.len());
        // A value that cannot be compressed grows by one part in 255.
        self.bytes += (key.len() + value_bytes + value_bytes / 128) as u64 + ITEM_BYTES;
        self.puts.push(Put { keyspace: keyspace.clone(), key, value });
    }

    /// Reserves room for `more` more puts.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.puts.reserve(more);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.puts.is_empty()
    }

    /// The most bytes that the puts take in the engine's journal.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the puts through the engine. None is left then. The caller holds the commit lock.
    pub(crate) fn commit(&mut self, db: &Database, sync: bool) -> fjall::Result<()> {
        self.bytes = 0;
        if self.puts.len() == 1
            && !sync
            && let Some(Put { keyspace, key, value }) = self.puts.pop()
        {
            return match value {
                Some(value) => keyspace.insert(key, value),
                None => keyspace.remove(key),
            };
        }
        let mode = if sync { PersistMode::SyncData } else { PersistMode::Buffer };
        let batch = OwnedWriteBatch::with_capacity(db.clone(), self.puts.len());
        let mut batch = batch.durability(Some(mode));
        for Put { keyspace, key, value } in self.puts.drain(..) {
            match value {
                Some(value) => batch.insert(&keyspace, key, value),
                None => batch.remove(&keyspace, key),
            }
        }
        batch.commit()
    }
}

#[cfg(test)]
mod tests {
    use fjall::KeyspaceCreateOptions;

    use super::*;

    #[test]
    fn one_put_and_several_are_there_at_once_and_after_reopening() {
        for sync in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let open = || {
                let db = Database::builder(dir.path()).worker_threads(1).open().unwrap();
                let keyspace = db.keyspace("cells", KeyspaceCreateOptions::default).unwrap();
                (db, keyspace)
            };
            let (db, keyspace) = open();
            let commit = |puts: &[(&str, Option<&str>)]| {
                let mut all = Puts::default();
                assert!(all.is_empty());
                puts.iter().for_each(|(k, v)| all.put(&keyspace, (*k).into(), v.map(Slice::from)));
                let before = db.visible_seqno();
                all.commit(&db, sync).unwrap();
                assert_eq!(db.visible_seqno(), before + 1, "one step for all of them");
            };
            commit(&[("a", Some("1"))]);
            commit(&[("b", Some("1")), ("c", Some("1"))]);
            commit(&[("a", None)]);
            commit(&[("b", None), ("c", Some("2"))]);
            commit(&[("d", Some("1"))]);
            let shown = |keyspace: &Keyspace| {
                ["a", "b", "c", "d"]
                    .map(|key| keyspace.get(key).unwrap().map(|value| value.to_vec()))
                    .map(|value| value.map_or("-".to_owned(), |v| String::from_utf8(v).unwrap()))
            };
            assert_eq!(shown(&keyspace), ["-", "-", "2", "1"]);
            drop((db, keyspace));
            assert_eq!(shown(&open().1), ["-", "-", "2", "1"]);
        }
    }
}
