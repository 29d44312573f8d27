//! Reads the cells of a locality group for one reader. The source is memory, a snapshot of the
//! engine, or the engine's current state.
//!
//! Invariant: only the holder of the commit lock reads the current state.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;

use bigtable::sync::locked;
use fjall::{Keyspace, Readable, Slice, Snapshot};

use crate::commit::buffers::get_in_files;
use crate::commit::recent::{Recall, Recent};
use crate::layout::group::Group;
use crate::layout::memory::Memory;
use crate::layout::tally::Listed;
use crate::read::published::Published;

/// The cells of a group, as one reader sees them.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    /// Each version is under its own key.
    Versions(Cells<'a>),
    /// The newest versions are under the column's key, and older ones in the history.
    NewestFirst(Cells<'a>, Cells<'a>),
}

impl<'a> Stored<'a> {
    /// The cells of an in-memory group. `None` unless the map holds all of them.
    pub(crate) fn in_memory(group: &Group, memory: &'a Memory) -> Option<Self> {
        let map = memory.group(group.memory?).whole()?;
        Some(Stored::Versions(Cells::Map(map)))
    }

    /// The cells of a group on disk, in a published state.
    pub(crate) fn on_disk(group: &'a Group, published: &'a Published) -> Self {
        let cells = |keyspace| Cells::Disk(&published.snapshot, keyspace);
        match &group.history {
            None => Stored::Versions(cells(&group.cells)),
            Some(history) => Stored::NewestFirst(cells(&group.cells), cells(history)),
        }
    }

    /// Like [`Stored::on_disk`], for reads of single columns: cached values are not read from
    /// disk.
    pub(crate) fn remembered(
        group: &'a Group,
        published: &'a Published,
        recent: &'a Mutex<Recent>,
    ) -> Self {
        match &group.history {
            None => Stored::on_disk(group, published),
            Some(history) => Stored::NewestFirst(
                Cells::Remembered(recent, published, &group.cells),
                Cells::Disk(&published.snapshot, history),
            ),
        }
    }

    /// The published state on disk. Only the holder of the commit lock may use it, because
    /// other threads could read entries of a batch that is not published yet.
    pub(crate) fn live(group: &'a Group, recent: &'a Mutex<Recent>) -> Self {
        match &group.history {
            None => Stored::Versions(Cells::Live(&group.cells)),
            Some(history) => {
                Stored::NewestFirst(Cells::Recent(recent, &group.cells), Cells::Live(history))
            }
        }
    }

    /// Whether the group is in memory and empty, the usual case for locks.
    pub(crate) fn is_empty_map(&self) -> bool {
        matches!(self, Stored::Versions(Cells::Map(map)) if map.is_empty())
    }

    /// The last key between two bounds. Every column with a history also has a newest version,
    /// so this does not read the history.
    pub(crate) fn last_key(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> fjall::Result<Option<Slice>> {
        let (Stored::Versions(cells) | Stored::NewestFirst(cells, _)) = self;
        match cells.range(bounds.0, bounds.1) {
            Entries::Map(mut range) => Ok(range.next_back().map(|(key, _)| key.clone())),
            Entries::Listed(keys, _) => Ok(keys.last().cloned()),
            Entries::Disk(mut entries) => entries.next_back().map(|entry| entry.key()).transpose(),
        }
    }
}

/// Keys and values in order, in memory or on disk.
#[derive(Clone, Copy)]
pub(crate) enum Cells<'a> {
    Map(&'a BTreeMap<Slice, Slice>),
    Disk(&'a Snapshot, &'a Keyspace),
    Live(&'a Keyspace),
    /// Like `Live`, but takes cached values from memory.
    Recent(&'a Mutex<Recent>, &'a Keyspace),
    /// Like `Disk`, but takes values that are cached for the snapshot's state from memory.
    Remembered(&'a Mutex<Recent>, &'a Published, &'a Keyspace),
}

impl<'a> Cells<'a> {
    pub(crate) fn get(&self, key: &[u8]) -> fjall::Result<Option<Slice>> {
        match self {
            Cells::Map(map) => Ok(map.get(key).cloned()),
            Cells::Disk(snapshot, keyspace) => snapshot.get(*keyspace, key),
            Cells::Live(keyspace) => keyspace.get(key),
            Cells::Recent(recent, keyspace) => {
                let known = locked(recent).get(key);
                match known {
                    Recall::Pack(value) => return Ok(Some(value)),
                    Recall::Absent => return Ok(None),
                    Recall::Unknown => {}
                }
                let value = read(recent, keyspace, key)?;
                locked(recent).learn(key, &value);
                Ok(value)
            }
            Cells::Remembered(recent, published, keyspace) => {
                // A lookup in the cache is not worth waiting for its lock.
                let (lock, of) = (|| recent.try_lock().ok(), published.batches);
                let known = lock().map_or(Recall::Unknown, |mut recent| recent.get_as_of(of, key));
                match known {
                    Recall::Pack(value) => return Ok(Some(value)),
                    Recall::Absent => return Ok(None),
                    Recall::Unknown => {}
                }
                let value = published.snapshot.get(*keyspace, key)?;
                if let Some(mut recent) = lock() {
                    recent.learn_as_of(of, key, value.as_deref());
                }
                Ok(value)
            }
        }
    }

    /// Like [`Cells::get`], for a caller that keeps the value until it writes the key. A value
    /// that is read from disk is not cached, because the write will be.
    pub(crate) fn get_to_keep(&self, key: &[u8]) -> fjall::Result<Option<Slice>> {
        let Cells::Recent(recent, keyspace) = self else { return self.get(key) };
        let known = locked(recent).get(key);
        match known {
            Recall::Pack(value) => Ok(Some(value)),
            Recall::Absent => Ok(None),
            Recall::Unknown => read(recent, keyspace, key),
        }
    }

    /// The entries between two keys, in order. `from` must not be above `to`.
    pub(crate) fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Entries<'a> {
        match self {
            Cells::Map(map) => Entries::Map(map.range::<[u8], _>((from, to))),
            Cells::Disk(snapshot, keyspace) => {
                Entries::Disk(Box::new(snapshot.range::<&[u8], _>(*keyspace, (from, to))))
            }
            Cells::Remembered(_, published, keyspace) => {
                Entries::Disk(Box::new(published.snapshot.range::<&[u8], _>(*keyspace, (from, to))))
            }
            Cells::Live(keyspace) | Cells::Recent(_, keyspace) => {
                Entries::Disk(Box::new(keyspace.range::<&[u8], _>((from, to))))
            }
        }
    }
}

/// The engine's current value of a key that is not cached.
fn read(recent: &Mutex<Recent>, keyspace: &Keyspace, key: &[u8]) -> fjall::Result<Option<Slice>> {
    let may_be_buffered = locked(recent).may_be_buffered(keyspace);
    let value = if may_be_buffered { keyspace.get(key)? } else { get_in_files(keyspace, key)? };
    debug_assert!(may_be_buffered || value == keyspace.get(key)?, "a buffer holds the key (H80)");
    // A slice of the read block would keep the whole block in memory.
    Ok(value.map(|value| Slice::new(&value)))
}

/// Iterates over [`Cells`].
pub(crate) enum Entries<'a> {
    Map(std::collections::btree_map::Range<'a, Slice, Slice>),
    /// The listed keys of a map.
    Listed(Box<Listed<'a>>, &'a BTreeMap<Slice, Slice>),
    Disk(Box<fjall::Iter>),
}

impl Entries<'_> {
    /// Returns the next entry. Reads its value only if `wants` returns true for the key.
    pub(crate) fn next(
        &mut self,
        mut wants: impl FnMut(&[u8]) -> bool,
    ) -> fjall::Result<Option<(Slice, Option<Slice>)>> {
        match self {
            Entries::Map(range) => Ok(range.next().map(|(key, value)| {
                let value = wants(key).then(|| value.clone());
                (key.clone(), value)
            })),
            Entries::Listed(keys, map) => Ok(keys.next().map(|key| {
                let value = wants(key).then(|| map.get(key).cloned());
                (key.clone(), value.flatten())
            })),
            Entries::Disk(iter) => {
                let Some(entry) = iter.next() else { return Ok(None) };
                // The engine calls the closure once, but its signature does not guarantee
                // that.
                let wants = std::cell::RefCell::new(wants);
                entry.into_inner_if(|key| wants.borrow_mut()(key)).map(Some)
            }
        }
    }
}
