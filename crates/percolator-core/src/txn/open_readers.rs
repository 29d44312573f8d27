//! Keeps the open timestamps of a client. Every transaction and snapshot holds an [`Open`]
//! from before its timestamp is requested until it is dropped or its commit has ended.
//!
//! Garbage collection keeps the versions that they can read (`gc/readers.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;

use crate::Runtime;
use crate::mutants::{self, off};

/// How many request lives a term has.
pub(crate) const LIVES: u32 = 4;
/// How long a registration holds for other clients. It is also the shortest retention.
pub(crate) fn term(life: Duration) -> Duration {
    LIVES * life
}

/// How long the holder itself relies on a registration: a sixth less than the term, because
/// clocks run unevenly.
pub(crate) fn tenure(life: Duration) -> Duration {
    term(life) * 5 / 6
}

/// How long a closed timestamp stays registered.
pub(crate) fn registered_after_close(life: Duration) -> Duration {
    life * 6 / 5
}

/// The open timestamps of one client.
#[derive(Debug, Default)]
pub(crate) struct OpenReaders {
    /// On a store without a floor: the clock, and the longest life of a request.
    unfenced: Option<(Arc<dyn Runtime>, Duration)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Slots,
    /// Closed timestamps whose requests may still be in flight, and the time until which they
    /// count.
    closed: BTreeMap<Timestamp, Duration>,
    /// The oldest timestamp that the registration names, and the time until which it holds.
    registered: Option<(Timestamp, Duration)>,
    /// Every timestamp that is requested from now on is higher than this one.
    last: Timestamp,
    /// How many snapshots are held.
    holds: usize,
}

/// The open timestamps, each in a slot of its own. To open, to move and to close one takes the same
/// time however many are open. Collection walks all slots, and does so rarely. On a store without a
/// floor, so does each check of a timestamp.
#[derive(Debug, Default)]
struct Slots {
    slots: Vec<Option<Entry>>,
    /// The slots that are free.
    free: Vec<usize>,
}

/// An open timestamp.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: Timestamp,
    /// When the timestamp was requested; `None` for a timestamp of the past.
    asked: Option<Duration>,
    /// Whether it was not held when a registration began that covers it. Collection may have passed
    /// it before, so that registration does not hold it again.
    lapsed: bool,
}

/// The timestamp has lapsed.
struct Lapsed;

impl Slots {
    /// Opens a timestamp. Returns its slot.
    fn open(&mut self, entry: Entry) -> usize {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(entry);
                slot
            }
            None => {
                self.slots.push(Some(entry));
                self.slots.len() - 1
            }
        }
    }

    fn move_to(&mut self, slot: usize, at: Timestamp) {
        let entry = self.slots[slot].as_mut().expect("an open timestamp has a slot");
        *entry = Entry { at, lapsed: false, ..*entry };
    }

    fn close(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.free.push(slot);
    }

    fn iter(&self) -> impl Iterator<Item = Entry> {
        self.slots.iter().flatten().copied()
    }

    /// The earliest time at which one of those who have `at` open has requested it. `None` if none
    /// has it open, or if it is a timestamp of the past for one of them. Others that have `at` open
    /// wait for a higher timestamp. So a later request time says nothing about a transaction that
    /// has `at` itself. Returns an error if `at` has lapsed for one of them.
    fn asked(&self, at: Timestamp) -> Result<Option<Duration>, Lapsed> {
        let here = self.iter().filter(|entry| entry.at == at);
        // A lapsed entry comes first.
        match here.map(|entry| (!entry.lapsed, entry.asked)).min() {
            Some((false, _)) => Err(Lapsed),
            earliest => Ok(earliest.and_then(|(_, asked)| asked)),
        }
    }

    /// The open timestamps that have not lapsed, in order, each with its earliest request time.
    fn distinct(&self) -> Vec<(Timestamp, Option<Duration>)> {
        let open = self.iter().filter(|entry| !entry.lapsed);
        let mut all: Vec<_> = open.map(|entry| (entry.at, entry.asked)).collect();
        // For equal timestamps, an entry of the past comes first.
        all.sort_unstable();
        all.dedup_by_key(|(at, _)| *at);
        all
    }
}

/// Keeps the safe point at or below a timestamp as long as it lives.
#[derive(Debug)]
pub(crate) struct Open {
    readers: Arc<OpenReaders>,
    slot: usize,
    at: Timestamp,
    /// When the timestamp was requested.
    asked: Option<Duration>,
}

/// Keeps this client registered as long as it lives, however short its timestamps are open.
#[derive(Debug)]
pub(crate) struct Hold(Arc<OpenReaders>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state().holds -= 1;
    }
}

impl OpenReaders {
    /// For a store without a floor, whose requests live at most for `life`.
    pub(crate) fn unfenced(runtime: Arc<dyn Runtime>, life: Duration) -> Self {
        OpenReaders { unfenced: Some((runtime, life)), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The time, if the store has no floor; otherwise zero.
    fn now(&self) -> Duration {
        self.unfenced.as_ref().map_or(Duration::ZERO, |(runtime, _)| runtime.now())
    }

    fn life(&self) -> Duration {
        self.unfenced.as_ref().map_or(Duration::ZERO, |(_, life)| *life)
    }

    /// Opens a timestamp that is about to be requested. It will be higher than the one that
    /// the returned value opens.
    pub(crate) fn starting(self: &Arc<Self>) -> Open {
        let asked = Some(self.now());
        let mut state = self.state();
        let at = state.last;
        let slot = state.open.open(Entry { at, asked, lapsed: false });
        drop(state);
        Open { readers: self.clone(), slot, at, asked }
    }

    /// Opens a timestamp of the past.
    pub(crate) fn at(self: &Arc<Self>, at: Timestamp) -> Open {
        let slot = self.state().open.open(Entry { at, asked: None, lapsed: false });
        Open { readers: self.clone(), slot, at, asked: None }
    }

    /// The oldest open timestamp, if there is one. `latest` must be the oracle's latest
    /// timestamp from before this call. Timestamps that are opened later will be higher.
    pub(crate) fn oldest(&self, latest: Timestamp) -> Option<Timestamp> {
        let now = self.now();
        let mut state = self.state();
        state.last = state.last.max(latest);
        state.closed.retain(|_, until| *until > now);
        let open = state.open.iter().map(|entry| entry.at);
        let oldest = open.chain(state.closed.keys().next().copied()).min();
        oldest.map(|oldest| latest.min(oldest))
    }

    /// Keeps this client registered until the returned value is dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.state().holds += 1;
        Hold(self.clone())
    }

    /// Whether a snapshot is held.
    pub(crate) fn is_held(&self) -> bool {
        self.state().holds > 0
    }

    /// The highest timestamp that this client knows to have been issued.
    pub(crate) fn last(&self) -> Timestamp {
        self.state().last
    }

    /// Whether collection keeps the versions at `s` at this moment, according to this client's
    /// clock.
    pub(crate) fn holds(&self, s: Timestamp) -> bool {
        self.holds_at(s, self.now())
    }

    /// Whether collection keeps them until a request that is sent now is over.
    pub(crate) fn holds_for_a_request(&self, s: Timestamp) -> bool {
        self.holds_at(s, self.now() + self.life())
    }

    fn holds_at(&self, s: Timestamp, moment: Duration) -> bool {
        // The newest version is never dropped.
        if self.unfenced.is_none() || s == Timestamp::MAX {
            return true;
        }
        self.state().until(s, tenure(self.life())) > moment
    }

    /// The oldest timestamp that the registration should name. It counts timestamps that are
    /// still held, if they were open for a while or were closed a moment ago.
    pub(crate) fn to_register(&self) -> Option<Timestamp> {
        let (now, life) = (self.now(), self.life());
        let mut state = self.state();
        state.closed.retain(|_, until| *until > now);
        let is_old = |asked: Option<Duration>| asked.is_none_or(|asked| now >= asked + life);
        let held = |(s, asked): &(Timestamp, Option<Duration>)| {
            is_old(*asked) && state.until_asked(*s, *asked, tenure(life)) > now
        };
        let open = state.open.distinct().into_iter().find(held).map(|(s, _)| s);
        let mut closed = state.closed.keys();
        let closed = closed.find(|s| state.until(**s, tenure(life)) > now).copied();
        open.into_iter().chain(closed).min()
    }

    /// Records that the registration is about to name nothing older than `oldest`.
    pub(crate) fn narrow(&self, oldest: Option<Timestamp>) {
        let mut state = self.state();
        let registered = state.registered.take().zip(oldest);
        state.registered = registered.map(|((was, until), oldest)| (was.max(oldest), until));
    }

    /// Records that the registration names `oldest`, and was requested at `asked`. If it was
    /// written for `past`, the safe point was found to lie at or below `past` after that.
    pub(crate) fn registered(&self, oldest: Timestamp, asked: Duration, past: Option<Timestamp>) {
        let (now, tenure) = (self.now(), tenure(self.life()));
        let mut state = self.state();
        let has_lapsed = |(at, asked): &(Timestamp, Option<Duration>)| {
            *at >= oldest && state.until_asked(*at, *asked, tenure) <= now
        };
        let lapsed: Vec<_> = state.open.distinct().into_iter().filter(has_lapsed).collect();
        for entry in state.open.slots.iter_mut().flatten() {
            if past == Some(entry.at) || off(mutants::LAPSED_IS_HELD_AGAIN) {
                entry.lapsed = false;
            } else {
                entry.lapsed |= lapsed.binary_search_by_key(&entry.at, |(at, _)| *at).is_ok();
            }
        }
        state.registered = Some((oldest, asked + tenure));
    }
}

impl State {
    /// The time until which `s` is held.
    fn until(&self, s: Timestamp, tenure: Duration) -> Duration {
        match self.open.asked(s) {
            Ok(asked) => self.until_asked(s, asked, tenure),
            Err(Lapsed) => Duration::ZERO,
        }
    }

    /// Like [`State::until`], given when `s` was requested.
    fn until_asked(&self, s: Timestamp, asked: Option<Duration>, tenure: Duration) -> Duration {
        let young = asked.map(|asked| asked + tenure);
        let registered = self.registered.filter(|(oldest, _)| *oldest <= s);
        young.max(registered.map(|(_, until)| until)).unwrap_or_default()
    }
}

impl Open {
    /// Opens the timestamp that the oracle has issued, in place of the lower one.
    pub(crate) fn moved_to(mut self, at: Timestamp) -> Self {
        let mut state = self.readers.state();
        state.open.move_to(self.slot, at);
        state.last = state.last.max(at);
        drop(state);
        self.at = at;
        self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let (now, life) = (self.readers.now(), self.readers.life());
        let mut state = self.readers.state();
        state.open.close(self.slot);
        let young = self.asked.is_some_and(|asked| now + life < asked + tenure(life));
        if self.readers.unfenced.is_some() && !young {
            let until = state.closed.entry(self.at).or_default();
            *until = (now + registered_after_close(life)).max(*until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::VirtualRuntime;

    fn ts(n: u64) -> Timestamp {
        Timestamp::new(n).unwrap()
    }

    #[test]
    fn the_oldest_open_timestamp_counts_from_before_it_is_asked_for() {
        let readers = Arc::new(OpenReaders::default());
        assert_eq!(readers.oldest(ts(7)), None);
        let starting = readers.starting();
        assert_eq!(readers.oldest(ts(20)), Some(ts(7)), "its timestamp may be any above 7");
        let open = starting.moved_to(ts(9));
        let twice = readers.at(ts(9));
        assert_eq!(readers.oldest(ts(20)), Some(ts(9)));
        drop(open);
        assert_eq!(readers.oldest(ts(20)), Some(ts(9)));
        drop(twice);
        assert_eq!(readers.oldest(ts(30)), None);
        assert_eq!(readers.state().open.iter().count(), 0);
        drop(readers.starting());
        assert_eq!(readers.state().open.slots.len(), 2, "slots are used again");
    }

    /// A transaction that begins after a long pause will get a higher timestamp than any its
    /// client knows. It must not prolong the hold of the transaction that has the last one
    /// (H35).
    #[test]
    fn h35_what_has_lapsed_is_not_young_again_because_another_begins() {
        let (runtime, life) = (VirtualRuntime::new(1), Duration::from_secs(1));
        let readers = Arc::new(OpenReaders::unfenced(Arc::new(runtime.clone()), life));
        let open = readers.starting().moved_to(ts(9));
        assert!(readers.holds(ts(9)));
        runtime.block_on(runtime.sleep(tenure(life)));
        assert!(!readers.holds(ts(9)));
        let starting = readers.starting();
        assert!(!readers.holds(ts(9)));
        assert_eq!(readers.to_register(), None);
        let newer = starting.moved_to(ts(12));
        assert!(readers.holds(ts(12)) && !readers.holds(ts(9)));
        drop((open, newer));
        // A timestamp of the past does not become young either. Only a registration can hold
        // it.
        let past = readers.at(ts(12));
        let starting = readers.starting();
        assert!(!readers.holds(ts(12)));
        drop((past, starting));
    }

    /// A request to the oracle takes long, and renewals have failed. Its timestamp will be above
    /// the last one that this client knows, so a registration there protects it. A snapshot of the
    /// past above that has lapsed, and stays so (H35).
    #[test]
    fn h35_a_request_of_a_timestamp_prolongs_no_snapshot_that_has_lapsed() {
        let (runtime, life) = (VirtualRuntime::new(1), Duration::from_secs(1));
        let readers = Arc::new(OpenReaders::unfenced(Arc::new(runtime.clone()), life));
        drop(readers.starting().moved_to(ts(9)));
        let past = readers.at(ts(12));
        readers.registered(ts(12), runtime.now(), Some(ts(12)));
        assert_eq!(readers.to_register(), Some(ts(12)));
        assert!(readers.holds(ts(12)));
        runtime.block_on(runtime.sleep(tenure(life)));
        let starting = readers.starting();
        runtime.block_on(runtime.sleep(life));
        assert!(!readers.holds(ts(12)));
        assert_eq!(readers.to_register(), Some(ts(9)));
        readers.registered(ts(9), runtime.now(), None);
        assert!(!readers.holds(ts(12)), "collection may have passed it");
        // However long the request takes, its timestamp is protected.
        runtime.block_on(runtime.sleep(tenure(life) - life));
        readers.registered(ts(9), runtime.now(), None);
        runtime.block_on(runtime.sleep(life));
        let open = starting.moved_to(ts(20));
        assert!(readers.holds(ts(20)) && !readers.holds(ts(12)));
        // A snapshot that begins there now has looked at the safe point.
        let again = readers.at(ts(12));
        readers.registered(ts(9), runtime.now(), Some(ts(12)));
        assert!(readers.holds(ts(12)));
        drop((past, open, again));
    }
}
