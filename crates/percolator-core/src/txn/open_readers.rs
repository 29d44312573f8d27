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
    open: BTreeMap<Timestamp, Entry>,
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

/// An open timestamp.
#[derive(Debug, Default)]
struct Entry {
    count: usize,
    /// When the timestamp was requested; `None` for a timestamp of the past.
    asked: Option<Duration>,
}

/// Keeps the safe point at or below a timestamp as long as it lives.
#[derive(Debug)]
pub(crate) struct Open {
    readers: Arc<OpenReaders>,
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
        state.open(at, asked);
        Open { readers: self.clone(), at, asked }
    }

    /// Opens a timestamp of the past.
    pub(crate) fn at(self: &Arc<Self>, at: Timestamp) -> Open {
        self.state().open(at, None);
        Open { readers: self.clone(), at, asked: None }
    }

    /// The oldest open timestamp, if there is one. `latest` must be the oracle's latest
    /// timestamp from before this call. Timestamps that are opened later will be higher.
    pub(crate) fn oldest(&self, latest: Timestamp) -> Option<Timestamp> {
        let now = self.now();
        let mut state = self.state();
        state.last = state.last.max(latest);
        state.closed.retain(|_, until| *until > now);
        let oldest = state.open.keys().next().into_iter().chain(state.closed.keys().next()).min();
        oldest.map(|oldest| latest.min(*oldest))
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
        let for_a_while = |entry: &Entry| entry.asked.is_none_or(|asked| now >= asked + life);
        let mut open = state
            .open
            .iter()
            .filter(|(s, entry)| for_a_while(entry) && state.until(**s, tenure(life)) > now);
        let open = open.next().map(|(s, _)| *s);
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

    /// Records that the registration names `oldest`, and was requested at `asked`.
    pub(crate) fn registered(&self, oldest: Timestamp, asked: Duration) {
        self.state().registered = Some((oldest, asked + tenure(self.life())));
    }
}

impl State {
    fn open(&mut self, at: Timestamp, asked: Option<Duration>) {
        let entry = self.open.entry(at).or_insert(Entry { count: 0, asked });
        entry.count += 1;
        // Keep the earliest request time. The newcomer will get a timestamp above `at`, so its
        // request time says nothing about a transaction that has `at` itself.
        entry.asked = entry.asked.min(asked);
    }

    /// Closes a timestamp once. Returns its entry if the timestamp is no longer open.
    fn close(&mut self, at: Timestamp) -> Option<Entry> {
        let entry = self.open.get_mut(&at)?;
        entry.count -= 1;
        if entry.count > 0 { None } else { self.open.remove(&at) }
    }

    /// The time until which `s` is held.
    fn until(&self, s: Timestamp, tenure: Duration) -> Duration {
        let young = self.open.get(&s).and_then(|entry| entry.asked).map(|asked| asked + tenure);
        let registered = self.registered.filter(|(oldest, _)| *oldest <= s);
        young.max(registered.map(|(_, until)| until)).unwrap_or_default()
    }
}

impl Open {
    /// Opens the timestamp that the oracle has issued, in place of the lower one.
    pub(crate) fn moved_to(mut self, at: Timestamp) -> Self {
        let mut state = self.readers.state();
        state.open(at, self.asked);
        state.close(self.at);
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
        let Some(Entry { asked, .. }) = state.close(self.at) else { return };
        let young = asked.is_some_and(|asked| now + life < asked + tenure(life));
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
        assert!(readers.state().open.is_empty());
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
}
