//! The cells of a locality group as one reader sees them: in memory, in a snapshot of the engine,
//! or as they are now.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Mutex;

use bigtable::sync::locked;
use fjall::{Keyspace, Readable, Slice, Snapshot};

use crate::commit::recent::{Recall, Recent, using};
use crate::layout::group::Group;
use crate::layout::memory::Memory;
use crate::read::published::Published;

/// The cells of a group, as one reader sees them.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    /// Each version under its own key.
    Versions(Cells<'a>),
    /// The newest versions under the column's key, and the history.
    NewestFirst(Cells<'a>, Cells<'a>),
}

impl<'a> Stored<'a> {
    /// The cells of a group in memory: `None` unless they are all there.
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

    /// As [`Stored::on_disk`], for the reading of single columns.
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

    /// The published state on disk; for the holder of the commit lock only, because anybody else
    /// might read what a batch has inserted but not published yet.
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

    /// The last key between two bounds. A column with a history has a newest version, so the
    /// history need not be looked at.
    pub(crate) fn last_key(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> fjall::Result<Option<Slice>> {
        let (Stored::Versions(cells) | Stored::NewestFirst(cells, _)) = self;
        match cells.range(bounds.0, bounds.1) {
            Entries::Map(mut range) => Ok(range.next_back().map(|(key, _)| key.clone())),
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
    /// As `Live`, but what is remembered is not looked for.
    Recent(&'a Mutex<Recent>, &'a Keyspace),
    /// As `Disk`, but what is remembered of this state is not looked for.
    Remembered(&'a Mutex<Recent>, &'a Published, &'a Keyspace),
}

impl<'a> Cells<'a> {
    pub(crate) fn get(&self, key: &[u8]) -> fjall::Result<Option<Slice>> {
        match self {
            Cells::Map(map) => Ok(map.get(key).cloned()),
            Cells::Disk(snapshot, keyspace) => snapshot.get(*keyspace, key),
            Cells::Live(keyspace) => keyspace.get(key),
            Cells::Recent(recent, keyspace) => {
                let lock = || locked(recent);
                match using(lock(), |recent| recent.get(key)) {
                    Recall::Pack(value) => return Ok(Some(value)),
                    Recall::Absent => return Ok(None),
                    Recall::Unknown => {}
                }
                let value = keyspace.get(key)?.map(|value| Slice::new(&value));
                using(lock(), |recent| recent.learn(key, &value));
                Ok(value)
            }
            Cells::Remembered(recent, published, keyspace) => {
                // It is not worth waiting for.
                let (lock, of) = (|| recent.try_lock().ok(), published.batches);
                let known = |recent| using(recent, |recent| recent.get_as_of(of, key));
                match lock().map_or(Recall::Unknown, known) {
                    Recall::Pack(value) => return Ok(Some(value)),
                    Recall::Absent => return Ok(None),
                    Recall::Unknown => {}
                }
                let value = published.snapshot.get(*keyspace, key)?;
                if let Some(recent) = lock() {
                    using(recent, |recent| recent.learn_as_of(of, key, value.as_deref()));
                }
                Ok(value)
            }
        }
    }

    /// The entries between two keys, in order. `from` must not lie above `to`.
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

/// An iteration over [`Cells`].
pub(crate) enum Entries<'a> {
    Map(std::collections::btree_map::Range<'a, Slice, Slice>),
    Disk(Box<fjall::Iter>),
}

impl Entries<'_> {
    /// The next entry; its value is read only if `wants` says so when shown the key.
    pub(crate) fn next(
        &mut self,
        mut wants: impl FnMut(&[u8]) -> bool,
    ) -> fjall::Result<Option<(Slice, Option<Slice>)>> {
        match self {
            Entries::Map(range) => Ok(range.next().map(|(key, value)| {
                let value = wants(key).then(|| value.clone());
                (key.clone(), value)
            })),
            Entries::Disk(iter) => {
                let Some(entry) = iter.next() else { return Ok(None) };
                // The engine asks once, but its signature does not say so.
                let wants = std::cell::RefCell::new(wants);
                entry.into_inner_if(|key| wants.borrow_mut()(key)).map(Some)
            }
        }
    }
}
