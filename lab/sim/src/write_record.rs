//! Decodes the header of a write record, apart from the client's own code.

use bigtable::Timestamp;

const DELETE: u8 = 1;
const SHORT_VALUE: u8 = 2;
/// The length of a header: the start timestamp, then the flags.
pub(crate) const HEADER_BYTES: usize = 9;

/// The header of a write record.
pub(crate) struct Header {
    /// The start timestamp that the record points at.
    pub(crate) start_ts: Timestamp,
    pub(crate) delete: bool,
    /// Whether the record holds the value itself.
    pub(crate) short_value: bool,
}

impl Header {
    /// `None` if the bytes are not a write record.
    pub(crate) fn of(record: &[u8]) -> Option<Self> {
        let (start_ts, rest) = record.split_first_chunk()?;
        let start_ts = Timestamp::new(u64::from_be_bytes(*start_ts))?;
        let flags = rest.first()?;
        let (delete, short_value) = (flags & DELETE != 0, flags & SHORT_VALUE != 0);
        Some(Header { start_ts, delete, short_value })
    }

    /// Whether the value lies in `data`.
    pub(crate) fn lies_apart(&self) -> bool {
        !self.delete && !self.short_value
    }
}
