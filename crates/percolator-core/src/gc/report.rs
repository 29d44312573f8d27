//! The report of one round of garbage collection, and the state of collection.

use bigtable::Timestamp;
use bytes::{BufMut, Bytes, BytesMut};

use crate::records::codec::Reader;
use crate::{Error, Incarnation, LockView, Result};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counts of a round's work.
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
    /// Locks that were rolled forward or back before anything was collected.
    locks,
    /// Cells from which something was dropped.
    cells,
    /// Committed versions that were dropped. The round does not count versions that the store
    /// dropped by itself.
    writes,
    /// Long values among them, which were stored outside of the write record.
    values,
    /// Rollback records that were dropped.
    tombs,
    /// Notifications that were dropped because their cells were not dirty.
    notifications,
    /// Acknowledgements that were dropped because their cells are gone.
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
    /// The safe point: no read below it succeeds any more.
    pub safe_point: Timestamp,
    /// The lock whose living owner ended the round before anything was dropped, if there was one.
    pub blocked_by: Option<LockView>,
    /// The counts of the round's work.
    pub counts: GcCounts,
}

/// The last round of garbage collection that read all tables, as recorded in the store.
///
/// See [`Client::gc_status`](crate::Client::gc_status).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRound {
    /// When the round ended, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The round's safe point.
    pub safe_point: Timestamp,
    /// Up to which timestamp everything is collected.
    pub collected: Timestamp,
    /// Whether a lock of a living owner ended the round before it dropped anything.
    pub blocked: bool,
    /// The counts of the round's work.
    pub counts: GcCounts,
}

/// A client that reads the past, as garbage collection knows it.
///
/// See [`Client::gc_status`](crate::Client::gc_status).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldestReader {
    /// The client.
    pub client: Incarnation,
    /// Its oldest open timestamp.
    pub oldest: Timestamp,
}

/// The state of garbage collection.
///
/// See [`Client::gc_status`](crate::Client::gc_status).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcStatus {
    /// The safe point: no read below it succeeds any more. On a store without a floor, no read
    /// that begins now.
    pub safe_point: Timestamp,
    /// The latest timestamp issued.
    pub latest: Timestamp,
    /// The safe point that a round would use now.
    pub next: Timestamp,
    /// The clients that have a timestamp open, the oldest first. Other clients are listed only
    /// if they have had it open for a while: the retention protects younger timestamps.
    pub readers: Vec<OldestReader>,
    /// The last round that had something to do.
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
