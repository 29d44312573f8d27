//! The report of a round of garbage collection, and the state of collection.

use bigtable::Timestamp;
use bytes::{BufMut, Bytes, BytesMut};

use crate::records::codec::Reader;
use crate::{Error, Incarnation, LockView, Result};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a round did, in numbers.
        ///
        /// See [`Client::gc`](crate::Client::gc).
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct GcCounts { $($(#[$doc])* pub $name: u64,)* }

        impl GcCounts {
            /// Names and numbers, in a fixed order.
            pub fn entries(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            fn fields(&mut self) -> Vec<&mut u64> {
                vec![$(&mut self.$name,)*]
            }
        }
    };
}

counts! {
    /// Locks that were rolled forward or back before collecting.
    locks,
    /// Cells of which something was dropped.
    cells,
    /// Committed versions dropped.
    writes,
    /// Values among them that were too long to be in the write record.
    values,
    /// Marks of transactions that were rolled back.
    tombs,
    /// Notifications of cells that were not dirty.
    notifications,
    /// Acknowledgements of cells that are gone.
    acknowledgements,
}

impl GcCounts {
    /// Whether anything was dropped from the store.
    pub(super) fn dropped(&self) -> bool {
        GcCounts { locks: 0, ..*self } != GcCounts::default()
    }
}

/// The report of a round of garbage collection.
///
/// See [`Client::gc`](crate::Client::gc).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcReport {
    /// Nothing below it can be read any more.
    pub safe_point: Timestamp,
    /// The lock whose living owner ended the round before anything was dropped, if there was one.
    pub blocked_by: Option<LockView>,
    /// What was done.
    pub counts: GcCounts,
}

/// The last round of garbage collection, as the store remembers it.
///
/// See [`Client::gc_status`](crate::Client::gc_status).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRound {
    /// When it ended, in milliseconds since 1970.
    pub wall_ms: u64,
    /// Its safe point.
    pub safe_point: Timestamp,
    /// Up to where everything is collected.
    pub collected: Timestamp,
    /// Whether a living owner's lock ended it before it dropped anything.
    pub blocked: bool,
    /// What it did.
    pub counts: GcCounts,
}

/// A client that reads the past, as garbage collection sees it.
///
/// See [`Client::gc_status`](crate::Client::gc_status).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldestReader {
    /// The client.
    pub client: Incarnation,
    /// Its oldest open timestamp.
    pub oldest: Timestamp,
}

/// Where garbage collection stands.
///
/// See [`Client::gc_status`](crate::Client::gc_status).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcStatus {
    /// Nothing below it can be read any more; on a store without a floor, by who begins now.
    pub safe_point: Timestamp,
    /// The latest timestamp issued.
    pub latest: Timestamp,
    /// What the safe point of a round would be now.
    pub next: Timestamp,
    /// Who has something open, the oldest first. Of other clients those that have had it for a
    /// while: what is younger is protected by the retention.
    pub readers: Vec<OldestReader>,
    /// The last round that did something.
    pub last: Option<LastRound>,
}

const VERSION: u8 = 1;

impl LastRound {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(96);
        out.put_u8(VERSION);
        out.put_u8(u8::from(self.blocked));
        out.put_u64(self.wall_ms);
        out.put_u64(self.safe_point.as_u64());
        out.put_u64(self.collected.as_u64());
        for (_, count) in self.counts.entries() {
            out.put_u64(count);
        }
        out.freeze()
    }

    pub(super) fn decode(value: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(value);
        let mut parse = || {
            if reader.u8()? != VERSION {
                return None;
            }
            let blocked = reader.u8()? != 0;
            let wall_ms = reader.u64()?;
            let safe_point = Timestamp::new(reader.u64()?)?;
            let collected = Timestamp::new(reader.u64()?)?;
            let mut counts = GcCounts::default();
            for count in counts.fields() {
                *count = reader.u64()?;
            }
            Some(LastRound { wall_ms, safe_point, collected, blocked, counts })
        };
        parse().ok_or_else(|| Error::Corrupt { record: "gc", bytes: value.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> Timestamp {
        Timestamp::new(n).unwrap()
    }

    #[test]
    fn rounds_round_trip() {
        let mut counts = GcCounts::default();
        for (n, count) in counts.fields().into_iter().enumerate() {
            *count = n as u64;
        }
        let (safe_point, collected) = (ts(7), ts(6));
        let round = LastRound { wall_ms: 5, safe_point, collected, blocked: true, counts };
        assert_eq!(LastRound::decode(&round.encode()).unwrap(), round);
    }
}
