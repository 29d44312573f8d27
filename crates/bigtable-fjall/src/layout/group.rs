//! Locality groups: which keyspaces hold their cells, and how those are tuned.
//!
//! * [`Layout::Versions`]: one keyspace, every version under its own key. Large values live apart
//!   from the keys, so that a compaction does not copy them.
//! * [`Layout::NewestApart`]: the newest versions of a column under the column's key, as one value
//!   (`pack.rs`), and older ones in a second keyspace, several to an entry, too (`history.rs`).
//!   Reading the newest version is one point lookup, where a seek over all sorted runs costs
//!   several times as much; writing one is mostly one insert.
//! * [`Layout::InMemory`]: as `Versions`, and the cells are in an ordered map besides
//!   (`memory.rs`).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use bigtable::sync::locked;
use bigtable::{Layout, LocalityGroup};
use fjall::config::{
    BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy, PartitioningPolicy,
};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, Readable};
use fjall::{Slice, Snapshot};

use crate::commit::recent::{Recent, using};
use crate::layout::memory::Memory;
use crate::layout::pack::Bounds;
use crate::options::Options;
use crate::read::published::Published;
use crate::upkeep::churn::Churn;
use crate::upkeep::seal::all_levels;

/// From this size on, values are kept apart from their keys in groups of [`Layout::Versions`]: what
/// merges runs does not copy them.
const VALUE_APART_BYTES_MIN: u32 = 4 * 1024;
/// Size of a file of values kept apart.
const VALUE_FILE_BYTES: u64 = 32 << 20;
/// A filter of this size errs for one key in a hundred.
const FILTER_BITS_PER_KEY: f32 = 10.0;
/// Slots of a block's hash index for each of its keys: the larger, the fewer binary searches.
const HASH_SLOTS_PER_KEY: f32 = 0.75;

/// A locality group, shared by all tables of the store that have it.
pub(crate) struct Group {
    /// What it was opened as.
    pub(crate) schema: LocalityGroup,
    pub(crate) cells: Keyspace,
    /// Older versions, in a group that keeps the newest apart.
    pub(crate) history: Option<Keyspace>,
    /// How many versions lie in one entry, in a group that keeps the newest apart.
    pub(crate) bounds: Bounds,
    /// Position among the in-memory groups.
    pub(crate) memory: Option<usize>,
    /// How many entries were removed or overwritten in the keyspace, and in that of the history,
    /// since their space was last given back.
    pub(crate) removed: [AtomicU64; 2],
    /// What was written to the keyspace's write buffer, in a group whose columns are read as ranges
    /// of keys.
    pub(crate) churn: Option<Mutex<Churn>>,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Group {
    /// Opens the group's keyspaces, creating them if need be.
    pub(crate) fn open(
        db: &Database,
        schema: &LocalityGroup,
        options: &Options,
    ) -> fjall::Result<Self> {
        let name = &schema.name;
        let bounds = Bounds::new(options);
        let cells = db.keyspace(name, || tuned(schema.layout, options))?;
        let history = match schema.layout {
            // A dot never occurs in a group's name, so this is no other group's keyspace.
            Layout::NewestApart => {
                // It is never asked for one key.
                let tuned =
                    || tuned(Layout::Versions, options).filter_policy(FilterPolicy::disabled());
                Some(db.keyspace(&format!("{name}.history"), tuned)?)
            }
            Layout::Versions | Layout::InMemory(_) => None,
        };
        let churn = (schema.layout == Layout::Versions).then(Mutex::default);
        let (schema, removed) = (schema.clone(), Default::default());
        Ok(Group { schema, cells, history, bounds, memory: None, removed, churn })
    }

    /// What was written to the write buffer, where that is counted. The holder of the commit lock
    /// alone asks.
    pub(crate) fn churn(&self) -> Option<MutexGuard<'_, Churn>> {
        self.churn.as_ref().map(locked)
    }

    /// The group's keyspace, or that of its history.
    pub(crate) fn keyspace(&self, history: bool) -> &Keyspace {
        match &self.history {
            Some(older) if history => older,
            _ => &self.cells,
        }
    }

    /// The group's keyspace, and that of its history.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        std::iter::once(&self.cells).chain(&self.history)
    }

    /// Where the group's cells are read, if not from memory.
    pub(crate) fn on_disk<'a>(&'a self, published: &'a Published) -> Stored<'a> {
        self.stored(|keyspace| Cells::Disk(&published.snapshot, keyspace))
    }

    /// As [`Group::on_disk`], for the reading of single columns.
    pub(crate) fn remembered<'a>(
        &'a self,
        published: &'a Published,
        recent: &'a Mutex<Recent>,
    ) -> Stored<'a> {
        match &self.history {
            None => self.on_disk(published),
            Some(history) => Stored::NewestApart(
                Cells::Remembered(recent, published, &self.cells),
                Cells::Disk(&published.snapshot, history),
            ),
        }
    }

    /// The published state on disk; for the holder of the commit lock only, because anybody else
    /// might read what a batch has inserted but not published yet.
    pub(crate) fn live<'a>(&'a self, recent: &'a Mutex<Recent>) -> Stored<'a> {
        match &self.history {
            None => Stored::Versions(Cells::Live(&self.cells)),
            Some(history) => {
                Stored::NewestApart(Cells::Recent(recent, &self.cells), Cells::Live(history))
            }
        }
    }

    fn stored<'a>(&'a self, cells: impl Fn(&'a Keyspace) -> Cells<'a>) -> Stored<'a> {
        match &self.history {
            None => Stored::Versions(cells(&self.cells)),
            Some(history) => Stored::NewestApart(cells(&self.cells), cells(history)),
        }
    }

    /// Where the group's cells are read in memory: `None` unless they are all there.
    pub(crate) fn in_memory<'a>(&self, memory: &'a Memory) -> Option<Stored<'a>> {
        let map = memory.group(self.memory?).whole()?;
        Some(Stored::Versions(Cells::Map(map)))
    }
}

fn tuned(layout: Layout, options: &Options) -> KeyspaceCreateOptions {
    let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(FILTER_BITS_PER_KEY));
    let tuned = KeyspaceCreateOptions::default()
        // The committer seals full buffers: `seal.rs`.
        .max_memtable_size(u64::MAX)
        .compaction_strategy(Arc::new(all_levels(options)))
        // The index of a large file lies in blocks, and the cache holds those that are read.
        // A whole index stays in memory: memory would grow with the store.
        .index_block_partitioning_policy(PartitioningPolicy::new([false, true]))
        .filter_policy(FilterPolicy::all(filter));
    match layout {
        // Whoever asks for an exact version has read a pointer to it, so it is there: the last and
        // largest level needs no filter.
        Layout::Versions => tuned.expect_point_read_hits(true).with_kv_separation(Some(
            KvSeparationOptions::default()
                .separation_threshold(VALUE_APART_BYTES_MIN)
                .file_target_size(VALUE_FILE_BYTES),
        )),
        // "Is there any version" is often answered by no.
        Layout::NewestApart => tuned
            .expect_point_read_hits(false)
            .data_block_hash_ratio_policy(HashRatioPolicy::all(HASH_SLOTS_PER_KEY)),
        Layout::InMemory(_) => tuned.expect_point_read_hits(true),
    }
}

/// The cells of a group, as one reader sees them.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    /// Each version under its own key.
    Versions(Cells<'a>),
    /// The newest versions under the column's key, and the history.
    NewestApart(Cells<'a>, Cells<'a>),
}

impl Stored<'_> {
    /// Whether all cells are in memory, and there are none: so it mostly is with locks.
    pub(crate) fn is_empty_map(&self) -> bool {
        matches!(self, Stored::Versions(Cells::Map(map)) if map.is_empty())
    }

    /// The last key between two bounds. A column with a history has a newest version, so the
    /// history need not be looked at.
    pub(crate) fn last_key(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> fjall::Result<Option<Slice>> {
        let (Stored::Versions(cells) | Stored::NewestApart(cells, _)) = self;
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
                if let Some(value) = using(lock(), |recent| recent.get(key)) {
                    return Ok(value);
                }
                let value = keyspace.get(key)?.map(|value| Slice::new(&value));
                using(lock(), |recent| recent.learn(key, &value));
                Ok(value)
            }
            Cells::Remembered(recent, published, keyspace) => {
                // It is not worth waiting for.
                let (lock, of) = (|| recent.try_lock().ok(), published.batches);
                let known = |recent| using(recent, |recent| recent.get_as_of(of, key));
                if let Some(value) = lock().and_then(known) {
                    return Ok(value);
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
