//! Who still reads the past: the open timestamps of this client, and the registrations of others.
//!
//! Within a client every transaction and snapshot holds an [`Open`] from before its timestamp is
//! asked for until it is dropped or its commit has ended. Between clients of one store a row of the
//! system table says what a client's oldest open timestamp is; it is written only for what has been
//! open for a while, so that short transactions cost nothing: those are younger than the retention.
//!
//! A registration that is not renewed is judged like a lock (H18): gone when its client's liveness
//! token is, or when it has stayed unchanged for longer than its lifetime on the judge's own
//! monotonic clock.
//!
//! Invariant: registrations only keep readers from failing. What makes a read below the safe point
//! an error instead of a wrong answer is the store's floor (H35); where there is none, the reader
//! itself (`unfenced.rs`), and the token counts for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{
    ConditionalMutation, Mutation, PageLimit, Probe, RowKey, RowRange, Selection, TimeRange,
    Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::gc::unfenced::{aftermath, tenure};
use crate::options::believed_lifetime;
use crate::records::codec::Reader;
use crate::records::layout::SYSTEM;
use crate::{Client, Error, Incarnation, Result, Runtime};

const PREFIX: &str = "reader/";
pub(super) const QUALIFIER: &str = "oldest";
/// How long a registration may stay unchanged before its client is taken for dead.
pub(super) const LIFETIME: Duration = Duration::from_secs(30);

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
    pub(super) fn unfenced(runtime: Arc<dyn Runtime>, life: Duration) -> Self {
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
    pub(super) fn oldest(&self, latest: Timestamp) -> Option<Timestamp> {
        let now = self.now();
        let mut state = self.state();
        state.last = state.last.max(latest);
        state.closed.retain(|_, until| *until > now);
        let oldest = state.open.keys().next().into_iter().chain(state.closed.keys().next()).min();
        oldest.map(|oldest| latest.min(*oldest))
    }

    /// The highest timestamp that this client knows to have been issued.
    pub(super) fn last(&self) -> Timestamp {
        self.state().last
    }

    /// Whether collection keeps off `s` at this moment, as far as this client's clock can say.
    pub(crate) fn holds(&self, s: Timestamp) -> bool {
        self.holds_at(s, self.now())
    }

    /// Whether collection keeps off `s` until a request that is made now is over.
    pub(super) fn holds_for_a_request(&self, s: Timestamp) -> bool {
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
    pub(super) fn to_register(&self) -> Option<Timestamp> {
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
    pub(super) fn narrow(&self, oldest: Option<Timestamp>) {
        let mut state = self.state();
        let registered = state.registered.take().zip(oldest);
        state.registered = registered.map(|((was, until), oldest)| (was.max(oldest), until));
    }

    /// The registration names `oldest`, and was asked for at this moment.
    pub(super) fn registered(&self, oldest: Timestamp, asked: Duration) {
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
            *until = (now + aftermath(life)).max(*until);
        }
    }
}

/// A client that reads the past, as garbage collection sees it.
///
/// See [`Client::gc_status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldestReader {
    /// The client.
    pub client: Incarnation,
    /// Its oldest open timestamp.
    pub oldest: Timestamp,
}

/// Registrations of others, watched on this client's own clock.
#[derive(Debug, Default)]
pub(super) struct Watched(BTreeMap<Incarnation, (Bytes, Duration)>);

impl Watched {
    /// Whether this registration has now stayed unchanged for longer than its lifetime.
    fn lapsed(&mut self, client: Incarnation, value: &Bytes, beat: &Beat, now: Duration) -> bool {
        let entry = self.0.entry(client).or_insert_with(|| (value.clone(), now));
        if entry.0 != *value {
            *entry = (value.clone(), now);
        }
        now.saturating_sub(entry.1) > believed_lifetime(beat.lifetime_ms)
    }
}

/// A registration's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Beat {
    pub(super) oldest: Timestamp,
    pub(super) lifetime_ms: u32,
    /// Another number each time, so that a renewal is a change.
    pub(super) count: u64,
}

impl Beat {
    pub(super) fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(20);
        out.put_u64(self.oldest.as_u64());
        out.put_u32(self.lifetime_ms);
        out.put_u64(self.count);
        out.freeze()
    }

    fn decode(value: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(value);
        let mut parse = || {
            let oldest = Timestamp::new(reader.u64()?)?;
            Some(Beat { oldest, lifetime_ms: reader.u32()?, count: reader.u64()? })
        };
        parse().ok_or_else(|| Error::Corrupt { record: "reader", bytes: value.clone() })
    }
}

pub(super) fn row_of(client: Incarnation) -> RowKey {
    RowKey::from(format!("{PREFIX}{client}"))
}

fn client_of(row: &RowKey) -> Option<Incarnation> {
    let name = row.as_bytes().strip_prefix(PREFIX.as_bytes())?;
    u128::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok().map(Incarnation)
}

impl Client {
    /// Writes, renews or takes back this client's registration. Only what was open already at
    /// `before`, an earlier look at the oracle, is registered. Returns whether one is there now.
    pub(super) async fn renew_registration(
        &self,
        before: Timestamp,
        count: u64,
        registered: bool,
    ) -> Result<bool> {
        let oldest = self.readers().oldest(self.oracle().peek().await?);
        let wanted = oldest.filter(|oldest| *oldest <= before);
        let row = row_of(self.incarnation());
        let mutation = match (wanted, registered) {
            (None, false) => return Ok(false),
            (Some(oldest), _) => {
                let lifetime_ms = u32::try_from(LIFETIME.as_millis()).unwrap_or(u32::MAX);
                let beat = Beat { oldest, lifetime_ms, count };
                Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, beat.encode())
            }
            (None, true) => Mutation::delete(SYSTEM, QUALIFIER, TimeRange::ALL),
        };
        let request =
            ConditionalMutation { otherwise: vec![mutation], ..ConditionalMutation::new(row) };
        self.system().check_and_mutate_row(request).await?;
        Ok(wanted.is_some())
    }

    /// The clients that read the past: this one as it knows itself, the others as they are
    /// registered. Registrations that have lapsed are removed.
    pub(super) async fn oldest_readers(&self, latest: Timestamp) -> Result<Vec<OldestReader>> {
        let own = self.incarnation();
        let mut readers = Vec::new();
        let registrations = self.registrations().await?;
        let known: BTreeSet<Incarnation> = registrations.iter().map(|(_, c, _)| *c).collect();
        self.collection().watched().0.retain(|client, _| known.contains(client));
        for (row, client, value) in registrations {
            if client == own {
                continue;
            }
            let beat = Beat::decode(&value)?;
            let now = self.runtime().now();
            let lapsed = self.collection().watched().lapsed(client, &value, &beat, now);
            // Without a floor, a token that was lost would be a wrong answer to a reader that
            // lives.
            let unfenced = self.unfenced().is_some();
            if !lapsed && (unfenced || self.locks().is_alive(client).await?) {
                readers.push(OldestReader { client, oldest: beat.oldest });
                continue;
            }
            self.collection().watched().0.remove(&client);
            // On this very value: it may have been renewed after all.
            let seen = Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL).with_value_prefix(value);
            let request = ConditionalMutation {
                predicate: vec![seen],
                then: vec![Mutation::delete(SYSTEM, QUALIFIER, TimeRange::ALL)],
                ..ConditionalMutation::new(row)
            };
            self.system().check_and_mutate_row(request).await?;
        }
        // Last: what this client opens later is newer than `latest`.
        let open = self.readers().oldest(latest);
        readers.extend(open.map(|oldest| OldestReader { client: own, oldest }));
        Ok(readers)
    }

    async fn registrations(&self) -> Result<Vec<(RowKey, Incarnation, Bytes)>> {
        let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
        let mut found = Vec::new();
        let mut left = Some(RowRange::prefix(PREFIX));
        while let Some(range) = left {
            let page = self.system().scan(&range, &select, PageLimit::default()).await?;
            for row in page.rows {
                if let (Some(client), Some(cell)) = (client_of(&row.key), row.cells.first()) {
                    found.push((row.key.clone(), client, cell.value.clone()));
                }
            }
            left = page.resume;
        }
        Ok(found)
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

    #[test]
    fn names_and_records_round_trip() {
        let beat = Beat { oldest: ts(5), lifetime_ms: 30_000, count: 9 };
        assert_eq!(Beat::decode(&beat.encode()).unwrap(), beat);
        let client = Incarnation(u128::MAX - 3);
        assert_eq!(client_of(&row_of(client)), Some(client));
        assert_eq!(client_of(&RowKey::from("reader/x")), None);
    }
}
