//! The record by which a client registers as a reader of the past, and how other clients judge
//! that it has lapsed.
//!
//! A registration has lapsed when it stayed unchanged for its whole lifetime, on the judge's
//! own clock. So every renewal must write different bytes.

use std::collections::BTreeMap;
use std::time::Duration;

use bigtable::{RowKey, Timestamp};
use bytes::{BufMut, Bytes, BytesMut};

use crate::options::believed_lifetime;
use crate::records::codec::Reader;
use crate::{Error, Incarnation, Result};

pub(super) const PREFIX: &str = "reader/";
pub(super) const QUALIFIER: &str = "oldest";
/// How long a registration may stay unchanged before its client is believed dead.
pub(super) const LIFETIME: Duration = Duration::from_secs(30);

/// The registrations of other clients, with the time since which each is unchanged on this
/// client's clock.
#[derive(Debug, Default)]
pub(crate) struct Watched(pub(super) BTreeMap<Incarnation, (Bytes, Duration)>);

impl Watched {
    /// Whether this registration has stayed unchanged for longer than its lifetime.
    pub(super) fn lapsed(
        &mut self,
        client: Incarnation,
        value: &Bytes,
        beat: &Beat,
        now: Duration,
    ) -> bool {
        let entry = self.0.entry(client).or_insert_with(|| (value.clone(), now));
        if entry.0 != *value {
            *entry = (value.clone(), now);
        }
        now.saturating_sub(entry.1) > believed_lifetime(beat.lifetime_ms)
    }
}

/// The value of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(super) oldest: Timestamp,
    pub(super) lifetime_ms: u32,
    /// A different number each time, so that a renewal changes the value.
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

    pub(super) fn decode(value: &Bytes) -> Result<Self> {
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

pub(super) fn client_of(row: &RowKey) -> Option<Incarnation> {
    let name = row.as_bytes().strip_prefix(PREFIX.as_bytes())?;
    u128::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok().map(Incarnation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> Timestamp {
        Timestamp::new(n).unwrap()
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
