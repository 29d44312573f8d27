//! Defines claims: rows that their owner must renew, and how other processes judge them.
//!
//! Invariant: a process judges a claim by its own monotonic clock alone. A claim has run out
//! once the process has seen the *same* claim for longer than the claim's lifetime. Clocks of
//! other processes never count, because they may be off by hours (H18).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{RowKey, TimeRange, Timestamp};
use bytes::{BufMut, Bytes, BytesMut};

use crate::options::believed_lifetime;
use crate::records::codec::Reader;
use crate::records::lock::Incarnation;
use crate::{Error, Result, Runtime};

/// How many claims a process watches. If there are more, it stops watching the youngest one,
/// so that the older ones can still run out.
const WATCHED_MAX: usize = 16 * 1024;

/// How many bytes of a name go into the row's key. Longer names continue in the qualifier.
const NAME_IN_ROW_MAX: usize = 4000;

/// All claims lie at this version of their cell.
pub(super) const VERSION: Timestamp = Timestamp::ZERO;
/// The time range of that one version. A store finds one exact version without looking at
/// older writes. For a range of versions it would step over everything that the cell has ever
/// held.
pub(super) const ONE_CELL: TimeRange = TimeRange { from: VERSION, to: VERSION };

/// A claim: its owner, and how long it holds unless it is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) owner: Incarnation,
    pub(super) lifetime_ms: u32,
    /// Random, so that each claim and each renewal differs from all others.
    pub(super) nonce: u64,
}

impl Claim {
    pub(super) fn new(owner: Incarnation, lifetime: Duration, runtime: &dyn Runtime) -> Self {
        let lifetime_ms = u32::try_from(lifetime.as_millis()).unwrap_or(u32::MAX);
        Claim { owner, lifetime_ms, nonce: runtime.random() }
    }

    pub(super) fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(28);
        out.put_u128(self.owner.0);
        out.put_u32(self.lifetime_ms);
        out.put_u64(self.nonce);
        out.freeze()
    }

    pub(super) fn decode(value: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(value);
        let mut parse = || {
            let (owner, lifetime_ms) = (Incarnation(reader.u128()?), reader.u32()?);
            let claim = Claim { owner, lifetime_ms, nonce: reader.u64()? };
            reader.is_empty().then_some(claim)
        };
        parse().ok_or_else(|| Error::Corrupt { record: "claim", bytes: value.clone() })
    }
}

/// The cell that holds a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) row: RowKey,
    pub(super) qualifier: Bytes,
}

impl Place {
    /// The place of a client's liveness token.
    pub(super) fn of_token(owner: Incarnation) -> Self {
        let key = [b"token/".as_slice(), &owner.0.to_be_bytes()].concat();
        Place { row: RowKey::from(key), qualifier: Bytes::new() }
    }

    /// The place of an advisory lock. Names may be longer than a row's key.
    pub(super) fn of_lock(name: &[u8]) -> Self {
        let (row, rest) = name.split_at(name.len().min(NAME_IN_ROW_MAX));
        let row = RowKey::from([b"lock/".as_slice(), row].concat());
        Place { row, qualifier: Bytes::copy_from_slice(rest) }
    }
}

/// The claims of other processes that this process has seen.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<BTreeMap<Place, Watch>>);

#[derive(Debug)]
struct Watch {
    claim: Claim,
    since: Duration,
}

impl Watches {
    /// Whether this process has seen the claim at its place for longer than the claim's
    /// lifetime, as of `now`.
    pub(super) fn ran_out(&self, place: &Place, claim: Claim, now: Duration) -> bool {
        let mut watches = self.watches();
        if watches.len() >= WATCHED_MAX && !watches.contains_key(place) {
            let youngest = watches.iter().max_by_key(|(_, watch)| watch.since);
            let youngest = youngest.map(|(place, _)| place.clone());
            youngest.map(|place| watches.remove(&place));
        }
        let watch = watches.entry(place.clone()).or_insert(Watch { claim, since: now });
        if watch.claim != claim {
            *watch = Watch { claim, since: now };
        }
        now.saturating_sub(watch.since) > believed_lifetime(claim.lifetime_ms)
    }

    /// Stops watching a place that is free.
    pub(super) fn forget(&self, place: &Place) {
        self.watches().remove(place);
    }

    fn watches(&self) -> MutexGuard<'_, BTreeMap<Place, Watch>> {
        locked(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_round_trip_and_nothing_else_decodes() {
        let claim = Claim { owner: Incarnation(u128::MAX - 3), lifetime_ms: 7, nonce: 9 };
        let whole = claim.encode();
        assert_eq!(Claim::decode(&whole).unwrap(), claim);
        for len in 0..whole.len() {
            assert!(Claim::decode(&whole.slice(..len)).is_err());
        }
        assert!(Claim::decode(&[&whole[..], b"x"].concat().into()).is_err());
    }

    #[test]
    fn names_of_any_length_have_places_of_their_own() {
        let names = [3999, 4000, 4001, 9000].map(|len| vec![b'a'; len]);
        let places: Vec<Place> = names.iter().map(|name| Place::of_lock(name)).collect();
        for (n, place) in places.iter().enumerate() {
            place.row.check().unwrap();
            assert!(place.qualifier.len() <= bigtable::QUALIFIER_BYTES_MAX);
            assert!(places[..n].iter().all(|other| other != place));
        }
        Place::of_lock(b"").row.check().unwrap();
    }

    #[test]
    fn watches_are_bounded_and_the_oldest_come_to_their_end() {
        let watches = Watches::default();
        let claim = Claim { owner: Incarnation(1), lifetime_ms: 1000, nonce: 1 };
        let place = |n: u64| Place::of_lock(&n.to_be_bytes());
        for n in 0..WATCHED_MAX as u64 {
            assert!(!watches.ran_out(&place(n), claim, Duration::from_millis(n)));
        }
        let end = Duration::from_millis(WATCHED_MAX as u64);
        assert!(!watches.ran_out(&place(u64::MAX), claim, end));
        assert_eq!(watches.watches().len(), WATCHED_MAX);
        assert!(watches.ran_out(&place(0), claim, end));
        let renewed = Claim { nonce: 2, ..claim };
        assert!(!watches.ran_out(&place(0), renewed, end));
    }
}
