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
//! Invariant: registrations only keep readers from failing. What makes a read below the safe point an
//! error instead of a wrong answer is the store's floor (H35).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bigtable::{
    ConditionalMutation, Mutation, PageLimit, Probe, RowKey, RowRange, Selection, TimeRange,
    Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::Reader;
use crate::layout::SYSTEM;
use crate::options::believed_lifetime;
use crate::{Client, Error, Incarnation, Result};

const PREFIX: &str = "reader/";
const QUALIFIER: &str = "oldest";
/// How long a registration may stay unchanged before its client is taken for dead.
pub(super) const LIFETIME: Duration = Duration::from_secs(30);

/// The open timestamps of one client.
#[derive(Debug, Default)]
pub(crate) struct OpenReaders {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<Timestamp, usize>,
    /// Every timestamp that is asked for from now on is higher.
    last: Timestamp,
}

/// Keeps the safe point at or below a timestamp as long as it lives.
#[derive(Debug)]
pub(crate) struct Open {
    readers: Arc<OpenReaders>,
    at: Timestamp,
}

impl OpenReaders {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a timestamp that is about to be asked for: it will be higher than the returned one's.
    pub(crate) fn starting(self: &Arc<Self>) -> Open {
        let mut state = self.state();
        let at = state.last;
        *state.open.entry(at).or_default() += 1;
        Open { readers: self.clone(), at }
    }

    /// Opens a timestamp of the past.
    pub(crate) fn at(self: &Arc<Self>, at: Timestamp) -> Open {
        *self.state().open.entry(at).or_default() += 1;
        Open { readers: self.clone(), at }
    }

    /// The oldest open timestamp, if one is open. `latest` must be the oracle's from before this call:
    /// what is not open by now will have a higher one.
    pub(super) fn oldest(&self, latest: Timestamp) -> Option<Timestamp> {
        let mut state = self.state();
        state.last = state.last.max(latest);
        state.open.keys().next().map(|oldest| latest.min(*oldest))
    }
}

impl State {
    fn close(&mut self, at: Timestamp) {
        if let Some(count) = self.open.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&at);
            }
        }
    }
}

impl Open {
    /// The timestamp has come.
    pub(crate) fn moved_to(mut self, at: Timestamp) -> Self {
        let mut state = self.readers.state();
        *state.open.entry(at).or_default() += 1;
        state.close(self.at);
        state.last = state.last.max(at);
        drop(state);
        self.at = at;
        self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.readers.state().close(self.at);
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
struct Beat {
    oldest: Timestamp,
    lifetime_ms: u32,
    /// Another number each time, so that a renewal is a change.
    count: u64,
}

impl Beat {
    fn encode(self) -> Bytes {
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

fn row_of(client: Incarnation) -> RowKey {
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
            if !lapsed && self.locks().is_alive(client).await? {
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

    #[test]
    fn names_and_records_round_trip() {
        let beat = Beat { oldest: ts(5), lifetime_ms: 30_000, count: 9 };
        assert_eq!(Beat::decode(&beat.encode()).unwrap(), beat);
        let client = Incarnation(u128::MAX - 3);
        assert_eq!(client_of(&row_of(client)), Some(client));
        assert_eq!(client_of(&RowKey::from("reader/x")), None);
    }
}
