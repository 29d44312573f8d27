//! Newest versions that are remembered, so that nobody need look for them on disk.
//!
//! A write into a group that keeps the newest first puts a version before the last ones, and most
//! conditions ask for the newest version. Both begin by reading the value under the column's own
//! key; a new column has none, which is found out once. Whoever writes a column has mostly read it
//! before, and observers read next what was just written. All changes pass through the committer,
//! so the store holds what the committer wrote or read last.
//!
//! Invariants:
//! * Every entry reflects the store as of batch `as_of`. Only the holder of the commit lock
//!   advances `as_of`, after it published the batch. It may always trust an entry; a reader only
//!   if its snapshot has the same batch number.
//! * A reader adds what it read at batch `as_of`. It may add what it read at an earlier batch, if
//!   no batch has set the key since: there would be an entry, unless it was forgotten since.
//! * The memory is bounded: entries live in two generations, and when the younger is full the
//!   older is forgotten.

use std::collections::HashMap;
use std::sync::MutexGuard;

use fjall::Slice;
use foldhash::fast::RandomState;

use crate::mutants::{self, off};

/// What an entry costs besides its key and value, roughly.
const ENTRY_BYTES: usize = 96;
/// Larger values are not remembered: they would drive out many small ones.
const VALUE_BYTES_MAX: usize = 1024;

/// `None` where there is no pack.
type Generation = HashMap<Slice, Option<Slice>, RandomState>;

#[derive(Debug)]
pub(crate) struct Recent {
    young: Generation,
    old: Generation,
    /// What was forgotten under the lock that is held, see [`using`].
    forgotten: Vec<Generation>,
    young_bytes: usize,
    /// The most bytes of keys and values in one generation; zero remembers nothing.
    generation_bytes_max: usize,
    /// After how many batches.
    as_of: u64,
    /// Whatever batches after so many have set is there: nothing of it was forgotten.
    whole_since: u64,
}

/// The memory of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recall {
    /// The pack under it.
    Pack(Slice),
    /// There is none.
    Absent,
    /// Nothing is: it must be looked for.
    Unknown,
}

impl From<Option<Slice>> for Recall {
    fn from(value: Option<Slice>) -> Self {
        value.map_or(Recall::Absent, Recall::Pack)
    }
}

impl Recent {
    /// Remembers so many bytes at most.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Recent {
            young: HashMap::default(),
            old: HashMap::default(),
            forgotten: Vec::new(),
            young_bytes: 0,
            generation_bytes_max: bytes_max / 2,
            as_of: 0,
            whole_since: 0,
        }
    }

    /// What the last batches have changed was set. To be called under the commit lock.
    pub(crate) fn is_as_of(&mut self, batches: u64) {
        self.as_of = batches;
    }

    /// As [`Recent::get`], for whoever sees the state after so many batches.
    pub(crate) fn get_as_of(&mut self, batches: u64, key: &[u8]) -> Recall {
        let same = self.as_of == batches || off(mutants::RECENT_OF_ANY_STATE);
        if same { self.get(key) } else { Recall::Unknown }
    }

    /// Remembers a value read at batch `batches`, unless a later batch has overwritten the key or
    /// the key is remembered already.
    pub(crate) fn learn_as_of(&mut self, batches: u64, key: &[u8], value: Option<&[u8]>) {
        let seen = batches == self.as_of || (self.whole_since..self.as_of).contains(&batches);
        if seen && self.may_learn(key, value.map_or(0, <[u8]>::len)) {
            // Copies: a slice of what was read would keep its whole block alive.
            self.put(Slice::new(key), value.map(Slice::new));
        }
    }

    /// Remembers what the holder of the commit lock read under a key, unless a reader was faster.
    pub(crate) fn learn(&mut self, key: &[u8], value: &Option<Slice>) {
        if self.may_learn(key, bytes(value)) {
            self.put(Slice::new(key), value.clone());
        }
    }

    fn may_learn(&self, key: &[u8], value_bytes: usize) -> bool {
        let known = || self.young.contains_key(key) || self.old.contains_key(key);
        value_bytes <= VALUE_BYTES_MAX && self.generation_bytes_max > 0 && !known()
    }

    /// Entries set by any batch so far, including the one in progress, may be forgotten.
    fn is_forgetting(&mut self) {
        self.whole_since = self.as_of + 1;
    }

    /// The memory of a column's key.
    pub(crate) fn get(&mut self, key: &[u8]) -> Recall {
        if let Some(value) = self.young.get(key) {
            return value.clone().into();
        }
        let Some((key, value)) = self.old.remove_entry(key) else { return Recall::Unknown };
        self.put(key, value.clone());
        value.into()
    }

    /// Remembers what is published under a key, or that nothing is.
    pub(crate) fn set(&mut self, key: Slice, value: Option<Slice>) {
        if bytes(&value) > VALUE_BYTES_MAX || self.generation_bytes_max == 0 {
            self.is_forgetting();
            self.old.remove(&key);
            if let Some((key, value)) = self.young.remove_entry(&key) {
                self.young_bytes -= key.len() + bytes(&value) + ENTRY_BYTES;
            }
        } else if let Some(known) = self.young.get_mut(&key) {
            // So it mostly is: whoever sets a value has just looked for the one before.
            self.young_bytes = self.young_bytes - bytes(known) + bytes(&value);
            *known = value;
            self.turn_if_full();
        } else {
            self.old.remove(&key);
            self.put(key, value);
        }
    }

    /// Puts an entry into the younger generation, which has none for the key.
    fn put(&mut self, key: Slice, value: Option<Slice>) {
        self.young_bytes += key.len() + bytes(&value) + ENTRY_BYTES;
        self.young.insert(key, value);
        self.turn_if_full();
    }

    /// Begins a generation when the younger is full.
    fn turn_if_full(&mut self) {
        if self.young_bytes > self.generation_bytes_max {
            // As many will come again: a map that grows hashes everything anew each time.
            let next = HashMap::with_capacity_and_hasher(self.young.len(), RandomState::default());
            let forgotten =
                std::mem::replace(&mut self.old, std::mem::replace(&mut self.young, next));
            self.forgotten.push(forgotten);
            self.young_bytes = 0;
            self.is_forgetting();
        }
    }
}

/// Does something with what is remembered. What is forgotten thereby is freed when others need not
/// wait any more: it is many small pieces of memory.
pub(crate) fn using<T>(
    mut recent: MutexGuard<'_, Recent>,
    act: impl FnOnce(&mut Recent) -> T,
) -> T {
    let done = act(&mut recent);
    let forgotten = std::mem::take(&mut recent.forgotten);
    drop(recent);
    drop(forgotten);
    done
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
            // Whatever is remembered of others is right; most of it is forgotten by now.
            let other = n / 2 + 1;
            let remembered = recent.get(&key(other));
            let written = Recall::from((other % 3 > 0).then(|| key(other + 1)));
            assert!(remembered == Recall::Unknown || remembered == written || other > n);
        }
        assert!(recent.young_bytes <= GENERATION_BYTES_MAX);
        assert_eq!(recent.get(&key(1)), Recall::Unknown, "the first generation is forgotten");
        let recent = std::sync::Mutex::new(recent);
        using(recent.lock().unwrap(), |recent| assert!(!recent.forgotten.is_empty()));
        assert!(recent.lock().unwrap().forgotten.is_empty(), "and freed");
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
    fn what_was_forgotten_is_not_taken_for_unchanged() {
        // Large values are not remembered, so a batch that has set one leaves no trace.
        let mut recent = Recent::new(2 * GENERATION_BYTES_MAX);
        recent.is_as_of(1);
        recent.set(Slice::from("key"), Some(Slice::from(vec![0; VALUE_BYTES_MAX + 1])));
        recent.is_as_of(2);
        recent.learn_as_of(1, b"key", Some(b"small, as it was"));
        assert_eq!(recent.get(b"key"), Recall::Unknown);
        recent.is_as_of(3);
        recent.learn_as_of(2, b"another", None);
        assert_eq!(recent.get(b"another"), Recall::Absent, "of what is whole since then it learns");
        // Nor does one whose entries went with a generation.
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
