//! The open timestamps of a client. Every transaction and snapshot holds an [`Open`] from before
//! its timestamp is asked for until it is dropped or its commit has ended.
//!
//! Garbage collection keeps off them (`gc/readers.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;

use crate::Runtime;

/// How many lives of a request a term has.
pub(crate) const LIVES: u32 = 4;
/// For how long a registration is believed, and the shortest retention.
pub(crate) fn term(life: Duration) -> Duration {
    LIVES * life
}

/// How much of it its holder relies on: less by a sixth, for clocks that run unevenly.
pub(crate) fn tenure(life: Duration) -> Duration {
    term(life) * 5 / 6
}

/// How long what was closed stays registered.
pub(crate) fn registered_after_close(life: Duration) -> Duration {
    life * 6 / 5
}

/// The open timestamps of one client.
#[derive(Debug, Default)]
pub(crate) struct OpenReaders {
    /// Where the store has no floor: the clock, and the longest life of a request.
    unfenced: Option<(Arc<dyn Runtime>, Duration)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<Timestamp, Entry>,
    /// Registered timestamps whose requests may not be over, and until when.
    closed: BTreeMap<Timestamp, Duration>,
    /// What the registration names, and until when it holds.
    registered: Option<(Timestamp, Duration)>,
    /// Every timestamp that is asked for from now on is higher.
    last: Timestamp,
}

/// An open timestamp.
#[derive(Debug, Default)]
struct Entry {
    count: usize,
    /// When it was asked for; `None` of one of the past.
    asked: Option<Duration>,
}

/// Keeps the safe point at or below a timestamp as long as it lives.
#[derive(Debug)]
pub(crate) struct Open {
    readers: Arc<OpenReaders>,
    at: Timestamp,
    /// When it was asked for.
    asked: Option<Duration>,
}

impl OpenReaders {
    /// For a store without a floor, whose requests live so long at most.
    pub(crate) fn unfenced(runtime: Arc<dyn Runtime>, life: Duration) -> Self {
        OpenReaders { unfenced: Some((runtime, life)), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// The time, where it matters.
    fn now(&self) -> Duration {
        self.unfenced.as_ref().map_or(Duration::ZERO, |(runtime, _)| runtime.now())
    }

    fn life(&self) -> Duration {
        self.unfenced.as_ref().map_or(Duration::ZERO, |(_, life)| *life)
    }

    /// Opens a timestamp that is about to be asked for: it will be higher than the returned one's.
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

    /// The oldest open timestamp, if one is open. `latest` must be the oracle's from before this
    /// call: what is not open by now will have a higher one.
    pub(crate) fn oldest(&self, latest: Timestamp) -> Option<Timestamp> {
        let now = self.now();
        let mut state = self.state();
        state.last = state.last.max(latest);
        state.closed.retain(|_, until| *until > now);
        let oldest = state.open.keys().next().into_iter().chain(state.closed.keys().next()).min();
        oldest.map(|oldest| latest.min(*oldest))
    }

    /// The highest timestamp that this client knows to have been issued.
    pub(crate) fn last(&self) -> Timestamp {
        self.state().last
    }

    /// Whether collection keeps off `s` at this moment, as far as this client's clock can say.
    pub(crate) fn holds(&self, s: Timestamp) -> bool {
        self.holds_at(s, self.now())
    }

    /// Whether collection keeps off `s` until a request that is made now is over.
    pub(crate) fn holds_for_a_request(&self, s: Timestamp) -> bool {
        self.holds_at(s, self.now() + self.life())
    }

    fn holds_at(&self, s: Timestamp, moment: Duration) -> bool {
        // What is newest now is never dropped.
        if self.unfenced.is_none() || s == Timestamp::MAX {
            return true;
        }
        self.state().until(s, tenure(self.life())) > moment
    }

    /// The oldest timestamp that the registration should name: of what is held still, and has been
    /// open for a while or is closed since a moment ago.
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

    /// The registration is about to name nothing older than `oldest`.
    pub(crate) fn narrow(&self, oldest: Option<Timestamp>) {
        let mut state = self.state();
        let registered = state.registered.take().zip(oldest);
        state.registered = registered.map(|((was, until), oldest)| (was.max(oldest), until));
    }

    /// The registration names `oldest`, and was asked for at this moment.
    pub(crate) fn registered(&self, oldest: Timestamp, asked: Duration) {
        self.state().registered = Some((oldest, asked + tenure(self.life())));
    }
}

impl State {
    fn open(&mut self, at: Timestamp, asked: Option<Duration>) {
        let entry = self.open.entry(at).or_insert(Entry { count: 0, asked });
        entry.count += 1;
        // By the one that was there first: of who begins only now it is known no more than that its
        // timestamp will be higher, and others may have had theirs since.
        entry.asked = entry.asked.min(asked);
    }

    /// Returns the entry, if it is open no more.
    fn close(&mut self, at: Timestamp) -> Option<Entry> {
        let entry = self.open.get_mut(&at)?;
        entry.count -= 1;
        if entry.count > 0 { None } else { self.open.remove(&at) }
    }

    /// Until when `s` is held.
    fn until(&self, s: Timestamp, tenure: Duration) -> Duration {
        let young = self.open.get(&s).and_then(|entry| entry.asked).map(|asked| asked + tenure);
        let registered = self.registered.filter(|(oldest, _)| *oldest <= s);
        young.max(registered.map(|(_, until)| until)).unwrap_or_default()
    }
}

impl Open {
    /// The timestamp has come.
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

    /// H35: who begins after a long pause is above the last timestamp that its client knows, and
    /// says nothing of the one who has that.
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
        // Nor is one of the past, which a registration alone can hold.
        let past = readers.at(ts(12));
        let starting = readers.starting();
        assert!(!readers.holds(ts(12)));
        drop((past, starting));
    }
}
