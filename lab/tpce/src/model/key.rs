//! Encodes row keys: a table's prefix, then its key, in an order-preserving encoding.
//!
//! Numbers are big-endian, so that rows sort by number. A complemented trade number sorts
//! newest first. Text comes last in a key or is its only part, so that it needs no end mark.
//! Each prefix ends with its only colon, so none is the beginning of another.

use percolator::RowKey;

/// The table of the whole workload.
pub(crate) const TABLE: &str = "tpce";

#[derive(Debug)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub(crate) fn of(prefix: &str) -> Self {
        let mut bytes = Vec::with_capacity(prefix.len() + 24);
        bytes.extend_from_slice(prefix.as_bytes());
        Key(bytes)
    }

    pub(crate) fn byte(mut self, part: u8) -> Self {
        self.0.push(part);
        self
    }

    pub(crate) fn short(mut self, part: u32) -> Self {
        self.0.extend_from_slice(&part.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, part: u64) -> Self {
        self.0.extend_from_slice(&part.to_be_bytes());
        self
    }

    /// Adds a trade number so that the newest trade sorts first.
    pub(crate) fn newest_first(self, trade: u64) -> Self {
        self.long(!trade)
    }

    pub(crate) fn text(mut self, part: &str) -> Self {
        self.0.extend_from_slice(part.as_bytes());
        self
    }

    pub(crate) fn row(self) -> RowKey {
        self.0.into()
    }
}

#[derive(Debug)]
pub(crate) struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    /// The parts after the prefix; `None` for a key with another prefix.
    pub(crate) fn of(row: &'a RowKey, prefix: impl AsRef<[u8]>) -> Option<Self> {
        row.as_bytes().strip_prefix(prefix.as_ref()).map(Parts)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*part)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[part]| part)
    }

    pub(crate) fn short(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    pub(crate) fn newest_first(&mut self) -> Option<u64> {
        self.long().map(|part| !part)
    }
}

/// Prefixes of the indices that transactions maintain themselves.
pub(crate) mod index {
    pub(crate) const CUSTOMER_BY_TAX_ID: &str = "I.tax:";
    pub(crate) const ACCOUNT_BY_CUSTOMER: &str = "I.cca:";
    pub(crate) const INDUSTRY_BY_NAME: &str = "I.in:";
    pub(crate) const SECTOR_BY_NAME: &str = "I.sc:";
    pub(crate) const BROKER_BY_NAME: &str = "I.b:";
    pub(crate) const COMPANY_BY_NAME: &str = "I.co:";
    pub(crate) const COMPANY_BY_INDUSTRY: &str = "I.inco:";
    pub(crate) const SECURITY_BY_COMPANY: &str = "I.cos:";
    pub(crate) const TRADE_BY_ACCOUNT: &str = "I.tca:";
    pub(crate) const TRADE_BY_SECURITY: &str = "I.ts:";
    pub(crate) const HISTORY_BY_LOT: &str = "I.hh:";
    pub(crate) const REQUEST_BY_SECURITY: &str = "I.trs:";
    pub(crate) const REQUEST_BY_BROKER: &str = "I.trb:";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_parts_do_and_come_back() {
        let key = |ca, t| Key::of(index::TRADE_BY_ACCOUNT).long(ca).newest_first(t).row();
        assert!(key(1, 9) < key(1, 8), "newest first");
        assert!(key(1, 0) < key(2, u64::MAX));
        assert!(key(255, 1) < key(256, 1), "big-endian");
        let row = key(7, 42);
        let mut parts = Parts::of(&row, index::TRADE_BY_ACCOUNT).unwrap();
        assert_eq!((parts.long(), parts.newest_first(), parts.byte()), (Some(7), Some(42), None));
        assert!(Parts::of(&row, index::TRADE_BY_SECURITY).is_none());
    }
}
