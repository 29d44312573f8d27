//! Caches the newest versions of columns, so that neither the committer nor readers look for
//! them on disk.
//!
//! A write in the layout `NewestFirst` puts a version before the existing ones, and most
//! conditions ask for the newest version. Both begin by reading the value under the column's
//! own key. A new column has no value, and the cache remembers that as well. A writer of a
//! column has usually read it just before, and observers soon read what was just written. All
//! changes pass through the committer, so the cache holds the values that the committer read
//! or wrote last.
//!
//! Invariants:
//! * Every entry reflects the store as of batch `as_of`. Only the holder of the commit lock
//!   advances `as_of`, after it has published the batch. The holder may always trust an entry;
//!   a reader only if `as_of` is the number of batches that have ended, or that its snapshot
//!   shows.
//! * A reader adds values that it read at batch `as_of`. It may also add a value that it read
//!   at an earlier batch, if no later batch has set the key. The cache shows that as long as
//!   it still holds every key that those later batches have set. Entries may be evicted, but
//!   no key that a batch after `whole_since` has set. So a value from a batch before
//!   `whole_since` is not added.
//! * The cache is bounded. Entries live in two generations; when the younger is full, the
//!   older is evicted.
//! * No call frees many entries, because freeing a whole generation takes 20 to 30 ms. Each
//!   added entry frees evicted ones of twice its size, so all are freed before the next generation
//!   is full. Meanwhile they and the two generations take no more than two full ones. The evicted
//!   map is freed after its last entry.

use std::hash::BuildHasher;

use fjall::{Keyspace, Slice};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::IntoIter;

use crate::commit::buffers::{Buffers, Seen};
use crate::mutants::{self, off};

/// The approximate bytes that an entry costs besides its key and value.
const ENTRY_BYTES: usize = 96;
/// Larger values are not cached: one of them would evict many small ones. A write record with a
/// value of 1,024 bytes is cached.
const VALUE_BYTES_MAX: usize = 1280;

/// Each added byte frees this many evicted ones.
const FREED_TIMES: usize = 2;

#[derive(Debug)]
struct Entry {
    key: Slice,
    /// The pack under the key; `None` if the key has none.
    value: Option<Slice>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.key.len() + bytes(&self.value) + ENTRY_BYTES
    }
}

#[derive(Debug)]
pub(crate) struct Recent {
    hasher: RandomState,
    young: HashTable<Entry>,
    old: HashTable<Entry>,
    /// The entries of the evicted generation that are not freed yet.
    forgotten: Option<IntoIter<Entry>>,
    young_bytes: usize,
    /// The most bytes of keys and values in one generation. Zero switches the cache off.
    generation_bytes_max: usize,
    /// The number of batches that the entries reflect.
    as_of: u64,
    /// Every key that a batch after number `whole_since` has set is cached: none of them was
    /// evicted.
    whole_since: u64,
    /// The same for the younger generation alone.
    young_since: u64,
    buffers: Buffers,
}

/// The cached state of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recall {
    /// The key has this pack.
    Pack(Slice),
    /// The key has no pack.
    Absent,
    /// The cache has no entry: the caller must read the store.
    Unknown,
}

impl From<Option<Slice>> for Recall {
    fn from(value: Option<Slice>) -> Self {
        value.map_or(Recall::Absent, Recall::Pack)
    }
}

impl Recent {
    /// Creates a cache of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Recent {
            hasher: RandomState::default(),
            young: HashTable::new(),
            old: HashTable::new(),
            forgotten: None,
            young_bytes: 0,
            generation_bytes_max: bytes_max / 2,
            as_of: 0,
            whole_since: 0,
            young_since: 0,
            buffers: Buffers::default(),
        }
    }

    /// Notes that the entries reflect `batches` batches. The caller holds the commit lock.
    pub(crate) fn is_as_of(&mut self, batches: u64) {
        self.as_of = batches;
    }

    /// Like [`Recent::get`], for a reader of the state after `batches` batches.
    pub(crate) fn get_as_of(&mut self, batches: u64, key: &[u8]) -> Recall {
        let same = self.as_of == batches || off(mutants::RECENT_OF_ANY_STATE);
        if same { self.get(key) } else { Recall::Unknown }
    }

    /// Caches a value read at batch `batches`, unless a later batch has overwritten the key or
    /// the key is cached already.
    pub(crate) fn learn_as_of(&mut self, batches: u64, key: &[u8], value: Option<&[u8]>) {
        if self.is_whole_since(batches)
            && let Some(hash) = self.may_learn(key, value.map_or(0, <[u8]>::len))
        {
            // Copy both: a slice of the read block would keep the whole block in memory.
            self.put(hash, Entry { key: Slice::new(key), value: value.map(Slice::new) });
        }
    }

    /// Caches a value read by the holder of the commit lock, unless the key is cached already.
    pub(crate) fn learn(&mut self, key: &[u8], value: &Option<Slice>) {
        if let Some(hash) = self.may_learn(key, bytes(value)) {
            self.put(hash, Entry { key: Slice::new(key), value: value.clone() });
        }
    }

    /// Whether every key that a batch after number `batches` has set is cached.
    pub(crate) fn is_whole_since(&self, batches: u64) -> bool {
        batches == self.as_of || (self.whole_since..self.as_of).contains(&batches)
    }

    /// The key's hash, if a value of this length may be cached for it.
    fn may_learn(&self, key: &[u8], value_bytes: usize) -> Option<u64> {
        if value_bytes > VALUE_BYTES_MAX || self.generation_bytes_max == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        let known = [&self.young, &self.old].iter().any(|g| g.find(hash, is(key)).is_some());
        (!known).then_some(hash)
    }

    /// Follows the write buffers of a keyspace of newest versions, which was just opened. The
    /// caller holds the commit lock, as in the next two functions.
    pub(crate) fn follow_buffers(&mut self, keyspace: &Keyspace) {
        self.buffers.open(keyspace, self.as_of);
    }

    /// Notes which buffers a keyspace has now.
    pub(crate) fn saw_buffers(&mut self, seen: &Seen) {
        self.buffers.saw(seen, self.as_of);
    }

    /// Whether a write buffer of the keyspace may hold a key that is not cached.
    pub(crate) fn may_be_buffered(&self, keyspace: &Keyspace) -> bool {
        self.buffers.may_hold_earlier(keyspace, self.whole_since)
    }

    /// Notes that keys set by any batch so far, including the one in progress, may not be
    /// cached.
    pub(crate) fn is_forgetting(&mut self) {
        self.whole_since = self.as_of + 1;
    }

    /// Returns the cached state of a column's key.
    pub(crate) fn get(&mut self, key: &[u8]) -> Recall {
        self.look(key, |value| value.cloned().into()).unwrap_or(Recall::Unknown)
    }

    /// Shows `see` the cached value of a column's key, or that the key has none. Returns `None`
    /// if the cache has no entry.
    pub(crate) fn look<T>(
        &mut self,
        key: &[u8],
        see: impl FnOnce(Option<&Slice>) -> T,
    ) -> Option<T> {
        let hash = self.hasher.hash_one(key);
        if let Some(entry) = self.young.find(hash, is(key)) {
            return Some(see(entry.value.as_ref()));
        }
        let entry = take(&mut self.old, hash, key)?;
        let seen = see(entry.value.as_ref());
        self.put(hash, entry);
        Some(seen)
    }

    /// Caches the published value of a key, or that the key has none.
    pub(crate) fn set(&mut self, key: Slice, value: Option<Slice>) {
        let hash = self.hasher.hash_one(&*key);
        if bytes(&value) > VALUE_BYTES_MAX || self.generation_bytes_max == 0 {
            self.is_forgetting();
            take(&mut self.old, hash, &key);
            if let Some(entry) = take(&mut self.young, hash, &key) {
                self.young_bytes -= entry.bytes();
            }
        } else if let Some(known) = self.young.find_mut(hash, is(&key)) {
            // The usual case: a writer has just read the previous value, so it is in the
            // younger generation.
            let grown = bytes(&value).saturating_sub(bytes(&known.value));
            self.young_bytes = self.young_bytes - bytes(&known.value) + bytes(&value);
            known.value = value;
            self.free(FREED_TIMES * grown);
            self.turn_if_full();
        } else {
            take(&mut self.old, hash, &key);
            self.put(hash, Entry { key, value });
        }
    }

    /// Adds an entry to the younger generation, which has none for the key.
    fn put(&mut self, hash: u64, entry: Entry) {
        let added = entry.bytes();
        self.young_bytes += added;
        let hasher = &self.hasher;
        self.young.insert_unique(hash, entry, |entry| hasher.hash_one(&*entry.key));
        self.free(FREED_TIMES * added);
        self.turn_if_full();
    }

    /// Frees this many bytes of evicted entries.
    fn free(&mut self, mut bytes: usize) {
        let Some(forgotten) = &mut self.forgotten else { return };
        while bytes > 0 {
            let Some(entry) = forgotten.next() else {
                // This frees the map.
                self.forgotten = None;
                return;
            };
            bytes = bytes.saturating_sub(entry.bytes());
        }
    }

    /// Starts a new generation when the younger is full.
    fn turn_if_full(&mut self) {
        if self.young_bytes > self.generation_bytes_max {
            // Reserve as many entries as before: a map that grows rehashes all entries each
            // time.
            let next = HashTable::with_capacity(self.young.len());
            let evicted =
                std::mem::replace(&mut self.old, std::mem::replace(&mut self.young, next));
            self.forgotten = Some(evicted.into_iter());
            self.young_bytes = 0;
            // The evicted keys were set before the first key of the generation that is older now.
            self.whole_since = self.whole_since.max(self.young_since);
            self.young_since = self.as_of + 1;
        }
    }
}

/// Whether an entry is that of the key.
fn is(key: &[u8]) -> impl Fn(&Entry) -> bool {
    move |entry| *entry.key == *key
}

/// Removes and returns the entry of a key.
fn take(generation: &mut HashTable<Entry>, hash: u64, key: &[u8]) -> Option<Entry> {
    generation.find_entry(hash, is(key)).ok().map(|entry| entry.remove().0)
}

fn bytes(value: &Option<Slice>) -> usize {
    value.as_ref().map_or(0, |value| value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION_BYTES_MAX: usize = 1 << 20;

    #[test]
    fn what_was_set_last_is_what_is_there_or_nothing() {
        let mut recent = Recent::new(2 * GENERATION_BYTES_MAX);
        let key = |n: u32| Slice::from(n.to_be_bytes());
        let rounds = 3 * GENERATION_BYTES_MAX / (ENTRY_BYTES + 8);
        for n in 0..rounds as u32 {
            recent.set(key(n), Some(key(n)));
            recent.set(key(n), Some(key(n + 1)));
            assert_eq!(recent.get(&key(n)), Recall::Pack(key(n + 1)));
            if n % 3 == 0 {
                recent.set(key(n), None);
                assert_eq!(recent.get(&key(n)), Recall::Absent);
            }
            // A cached value of another key is correct, and most entries are evicted by now.
            let other = n / 2 + 1;
            let remembered = recent.get(&key(other));
            let written = Recall::from((other % 3 > 0).then(|| key(other + 1)));
            assert!(remembered == Recall::Unknown || remembered == written || other > n);
        }
        assert!(recent.young_bytes <= GENERATION_BYTES_MAX);
        assert_eq!(recent.get(&key(1)), Recall::Unknown, "the first generation is forgotten");
    }

    #[test]
    fn evicted_entries_are_freed_few_at_a_time_and_before_the_next_are_evicted() {
        let mut recent = Recent::new(2 * GENERATION_BYTES_MAX);
        let (mut evictions, mut freed_most) = (0, 0);
        for n in 0..100_000u32 {
            // Two generations of small entries, then two of large ones, so that the entries of one
            // size free those of the other.
            let value = vec![0; if evictions / 2 % 2 == 0 { 8 } else { VALUE_BYTES_MAX }];
            let left = |recent: &Recent| recent.forgotten.as_ref().map_or(0, IntoIter::len);
            let before = left(&recent);
            recent.set(Slice::from(n.to_be_bytes()), Some(Slice::from(value)));
            if recent.young.is_empty() {
                evictions += 1;
                assert_eq!(before, 0, "none are left");
            } else {
                freed_most = freed_most.max(before - left(&recent));
            }
        }
        assert!(evictions > 10);
        let added = FREED_TIMES * (VALUE_BYTES_MAX + 4 + ENTRY_BYTES);
        assert!((10..=added / ENTRY_BYTES).contains(&freed_most), "{freed_most}");
    }

    #[test]
    fn h27_readers_of_another_state_get_nothing() {
        crate::mutants::switch_off_named_mutant();
        let mut recent = Recent::new(2 * GENERATION_BYTES_MAX);
        recent.learn_as_of(0, b"read", Some(b"first"));
        assert_eq!(recent.get_as_of(0, b"read"), Recall::Pack(Slice::from("first")));
        recent.set(Slice::from("read"), Some(Slice::from("second")));
        recent.is_as_of(1);
        assert_eq!(recent.get_as_of(0, b"read"), Recall::Unknown);
        assert_eq!(recent.get_as_of(1, b"read"), Recall::Pack(Slice::from("second")));
    }

    #[test]
    fn readers_of_an_earlier_state_teach_what_no_batch_has_set_since() {
        let mut recent = Recent::new(2 * GENERATION_BYTES_MAX);
        for batch in 1..=3 {
            recent.set(Slice::from("written"), Some(Slice::from([batch])));
            recent.is_as_of(batch.into());
        }
        recent.learn_as_of(1, b"written", Some(&[1]));
        assert_eq!(recent.get(b"written"), Recall::Pack(Slice::from([3])), "it knows better");
        recent.learn_as_of(1, b"absent", None);
        assert_eq!(recent.get_as_of(3, b"absent"), Recall::Absent);
        recent.learn_as_of(4, b"ahead", None);
        assert_eq!(recent.get(b"ahead"), Recall::Unknown, "the batch's own keys are not set yet");
    }

    #[test]
    fn the_cache_is_whole_since_the_older_generation_began() {
        let mut recent = Recent::new(2 * GENERATION_BYTES_MAX);
        let fill = |recent: &mut Recent, from: u32| {
            let rows = (GENERATION_BYTES_MAX / ENTRY_BYTES) as u32;
            (from..from + rows).for_each(|n| recent.set(Slice::from(n.to_be_bytes()), None));
        };
        // The first generation becomes the older one: nothing is evicted.
        fill(&mut recent, 0);
        recent.is_as_of(1);
        assert!(recent.is_whole_since(0));
        // The second one becomes it within batch 2, and evicts the first.
        fill(&mut recent, 1_000_000);
        recent.is_as_of(2);
        recent.is_as_of(3);
        assert!(recent.is_whole_since(1) && !recent.is_whole_since(0));
        // Batch 4 turns twice, and so loses some of its own keys.
        fill(&mut recent, 2_000_000);
        fill(&mut recent, 3_000_000);
        recent.is_as_of(4);
        recent.is_as_of(5);
        assert!(!recent.is_whole_since(3) && recent.is_whole_since(4));
    }

    #[test]
    fn what_was_forgotten_is_not_taken_for_unchanged() {
        // Large values are not cached, so a batch that sets one leaves no entry.
        let mut recent = Recent::new(2 * GENERATION_BYTES_MAX);
        recent.is_as_of(1);
        recent.set(Slice::from("key"), Some(Slice::from(vec![0; VALUE_BYTES_MAX + 1])));
        recent.is_as_of(2);
        recent.learn_as_of(1, b"key", Some(b"small, as it was"));
        assert_eq!(recent.get(b"key"), Recall::Unknown);
        recent.is_as_of(3);
        recent.learn_as_of(2, b"another", None);
        assert_eq!(recent.get(b"another"), Recall::Absent, "of what is whole since then it learns");
        // The same holds for a batch whose entries were evicted with a generation.
        recent.set(Slice::from("key"), Some(Slice::from("value")));
        recent.is_as_of(4);
        for n in 0..3 * (GENERATION_BYTES_MAX / ENTRY_BYTES) as u32 {
            recent.set(Slice::from(n.to_be_bytes()), None);
        }
        recent.is_as_of(5);
        recent.learn_as_of(3, b"key", None);
        assert_eq!(recent.get(b"key"), Recall::Unknown);
        recent.learn_as_of(5, b"key", Some(b"value"));
        assert_eq!(recent.get(b"key"), Recall::Pack(Slice::from("value")));
    }

    #[test]
    fn large_values_are_not_remembered() {
        let mut recent = Recent::new(2 * GENERATION_BYTES_MAX);
        recent.set(Slice::from("key"), Some(Slice::from("small")));
        recent.set(Slice::from("key"), Some(Slice::from(vec![0; VALUE_BYTES_MAX + 1])));
        assert_eq!(recent.get(b"key"), Recall::Unknown);
    }

    #[test]
    fn without_memory_nothing_is_remembered() {
        let mut recent = Recent::new(0);
        recent.set(Slice::from("key"), Some(Slice::from("value")));
        assert_eq!(recent.get(b"key"), Recall::Unknown);
        assert_eq!(recent.young_bytes, 0);
    }
}
