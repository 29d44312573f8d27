//! Encodes and decodes the write record (paper section 2.2, column `c:write`): the pointer
//! that makes data visible.
//!
//! Invariant: the record begins with the big-endian start timestamp that it points at. So the
//! store can test by a value prefix whether a write record points at `s`.

use bigtable::Timestamp;
use bytes::{Buf, Bytes};

use crate::records::lock::Kind;
use crate::{Error, Result};

/// The length of start timestamp and flags.
pub(crate) const HEADER_BYTES: usize = 9;
const FLAG_DELETE: u8 = 1;
const FLAG_SHORT_VALUE: u8 = 2;

/// A write record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    /// The start timestamp of the transaction that wrote the data.
    pub(crate) start_ts: Timestamp,
    pub(crate) kind: Kind,
    /// The value itself, if it is short.
    pub(crate) short_value: Option<Bytes>,
}

/// The value prefix of every write record that points at `start_ts`.
pub(crate) fn pointing_at(start_ts: Timestamp) -> Bytes {
    Bytes::copy_from_slice(&start_ts.as_u64().to_be_bytes())
}

impl Write {
    /// Encodes a record of these parts.
    pub(crate) fn encode(start_ts: Timestamp, kind: Kind, short_value: Option<&[u8]>) -> Bytes {
        let value = short_value.unwrap_or_default();
        let mut out = Vec::with_capacity(HEADER_BYTES + value.len());
        out.extend_from_slice(&start_ts.as_u64().to_be_bytes());
        let mut flags = 0;
        flags |= if kind == Kind::Delete { FLAG_DELETE } else { 0 };
        flags |= if short_value.is_some() { FLAG_SHORT_VALUE } else { 0 };
        out.push(flags);
        out.extend_from_slice(value);
        out.into()
    }

    pub(crate) fn decode(value: &Bytes) -> Result<Self> {
        Write::of(value.clone())
    }

    /// Whether the record's value is a long value, stored in `data`.
    pub(crate) fn lies_apart(record: &[u8]) -> bool {
        header(record).is_some_and(|(_, flags)| flags == 0)
    }

    /// Whether only collection may drop the record: its value lies in `data`, or the record is
    /// damaged and somebody has to report it.
    pub(crate) fn stays_in_merges(record: &[u8]) -> bool {
        header(record).is_none_or(|(_, flags)| flags == 0)
    }

    /// Works like [`Write::decode`], but consumes the bytes. That saves a second handle, which
    /// would be an allocation.
    pub(crate) fn of(mut value: Bytes) -> Result<Self> {
        let Some((start_ts, flags)) = header(&value) else {
            return Err(Error::Corrupt { record: "write", bytes: value });
        };
        let kind = if flags & FLAG_DELETE != 0 { Kind::Delete } else { Kind::Put };
        let short_value = (flags & FLAG_SHORT_VALUE != 0).then(|| {
            value.advance(HEADER_BYTES);
            value
        });
        Ok(Write { start_ts, kind, short_value })
    }
}

/// Start timestamp and flags of a record; `None` if the bytes are no write record.
fn header(value: &[u8]) -> Option<(Timestamp, u8)> {
    let (start_ts, rest) = value.split_first_chunk()?;
    let (flags, rest) = rest.split_first()?;
    let known = flags & !(FLAG_DELETE | FLAG_SHORT_VALUE) == 0;
    let fits = flags & FLAG_SHORT_VALUE != 0 || rest.is_empty();
    let start_ts = Timestamp::new(u64::from_be_bytes(*start_ts))?;
    (known && fits).then_some((start_ts, *flags))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoding_round_trips_and_begins_with_the_pointer(
            ts in 0..=Timestamp::MAX.as_u64(),
            put in any::<bool>(),
            value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300)),
        ) {
            let start_ts = Timestamp::new(ts).unwrap();
            let kind = if put { Kind::Put } else { Kind::Delete };
            let bytes = Write::encode(start_ts, kind, value.as_deref());
            prop_assert!(bytes.starts_with(&pointing_at(start_ts)));
            let write = Write { start_ts, kind, short_value: value.map(Bytes::from) };
            prop_assert_eq!(Write::decode(&bytes).unwrap(), write);
        }

        #[test]
        fn decoding_any_bytes_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let decoded = Write::decode(&Bytes::from(bytes.clone()));
            let apart = decoded.is_ok_and(|w| w.kind == Kind::Put && w.short_value.is_none());
            prop_assert_eq!(Write::lies_apart(&bytes), apart);
        }
    }
}
