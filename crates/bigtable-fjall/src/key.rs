//! Keys: table, row, family, qualifier and time as one byte string that sorts as they do.
//!
//! ```text
//!   table id     u32, big-endian
//!   row          escaped: 0x00 becomes 0x00 0xFF; ended by 0x00 0x01
//!   family       its name, which holds no zero byte; ended by 0x00
//!   qualifier    escaped as the row is
//!   time         u64, big-endian, all bits inverted: newer versions sort first
//! ```
//!
//! Invariants: two cells have the same key only if they are the same cell; keys compare as
//! (table, row, family, qualifier, newest first) do; the key of a row, family or column is a prefix
//! of the keys of exactly the cells in it. This holds for every byte string, empty ones and those
//! of zero bytes included. The longest key the limits allow is shorter than the 65,535 bytes that
//! the engine takes.

use std::borrow::Cow;
use std::ops::Deref;

use bigtable::Timestamp;
use smallvec::SmallVec;

/// Keys up to this length are built without allocating.
const KEY_BYTES_INLINE: usize = 128;
const ESCAPE: u8 = 0x00;
/// Behind [`ESCAPE`]: a zero byte of the text.
const ZERO: u8 = 0xFF;
/// Behind [`ESCAPE`]: the end of the text. Below [`ZERO`], so that a prefix sorts first.
const END: u8 = 0x01;
/// Bytes of the table's id, at the beginning of a key.
const TABLE_BYTES: usize = 4;
/// Bytes of the time, at the end of a key.
const TIME_BYTES: usize = 8;

/// A key, or the prefix of one, that is being built.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(SmallVec<[u8; KEY_BYTES_INLINE]>);

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Key {
    /// The prefix of all keys of a table.
    pub(crate) fn table(table: u32) -> Self {
        let mut key = Key(SmallVec::new());
        key.0.extend_from_slice(&table.to_be_bytes());
        key
    }

    /// The prefix of all keys of a row.
    pub(crate) fn row(table: u32, row: &[u8]) -> Self {
        let mut key = Key::table(table);
        key.push_escaped(row);
        key
    }

    /// The prefix of all keys of one family in a row.
    pub(crate) fn family(table: u32, row: &[u8], family: &str) -> Self {
        let mut key = Key::row(table, row);
        key.push_family(family);
        key
    }

    /// The prefix of all keys of a column; the key of its newest version in a group that keeps the
    /// newest version apart.
    pub(crate) fn column(table: u32, row: &[u8], family: &str, qualifier: &[u8]) -> Self {
        let mut key = Key::family(table, row, family);
        key.push_escaped(qualifier);
        key
    }

    /// The key of one version, if `self` is the prefix of its column.
    pub(crate) fn at(&self, timestamp: Timestamp) -> Self {
        let mut key = self.clone();
        key.0.extend_from_slice(&(!timestamp.as_u64()).to_be_bytes());
        key
    }

    /// A prefix from bytes that another key began with.
    pub(crate) fn from_prefix(bytes: &[u8]) -> Self {
        Key(SmallVec::from_slice(bytes))
    }

    /// The lowest byte string above every key that begins with `self`.
    pub(crate) fn end(&self) -> Self {
        let mut end = self.clone();
        while let Some(last) = end.0.pop() {
            if last < u8::MAX {
                end.0.push(last + 1);
                break;
            }
        }
        end
    }

    fn push_family(&mut self, family: &str) {
        self.0.extend_from_slice(family.as_bytes());
        self.0.push(ESCAPE);
    }

    fn push_escaped(&mut self, mut text: &[u8]) {
        while let Some(zero) = text.iter().position(|byte| *byte == ESCAPE) {
            self.0.extend_from_slice(&text[..zero]);
            self.0.extend_from_slice(&[ESCAPE, ZERO]);
            text = &text[zero + 1..];
        }
        self.0.extend_from_slice(text);
        self.0.extend_from_slice(&[ESCAPE, END]);
    }
}

/// A key taken apart, each part as it is in the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// Everything up to the row's end.
    pub(crate) row_prefix: &'a [u8],
    /// Everything up to the qualifier's end.
    pub(crate) column_prefix: &'a [u8],
    /// The family's name.
    pub(crate) family: &'a [u8],
    escaped_qualifier: &'a [u8],
    /// The version, unless the key is that of a whole column.
    pub(crate) timestamp: Option<Timestamp>,
}

impl<'a> Parts<'a> {
    /// Takes a key apart; `None` if it is none.
    pub(crate) fn of(key: &'a [u8]) -> Option<Self> {
        let row_end = TABLE_BYTES + escaped_len(key.get(TABLE_BYTES..)?)?;
        let family_len = key[row_end..].iter().position(|byte| *byte == ESCAPE)?;
        let family = &key[row_end..row_end + family_len];
        let qualifier_start = row_end + family_len + 1;
        let qualifier_len = escaped_len(&key[qualifier_start..])?;
        let column_end = qualifier_start + qualifier_len;
        let timestamp = match key.len() - column_end {
            0 => None,
            TIME_BYTES => {
                let inverted: [u8; TIME_BYTES] = key[column_end..].try_into().ok()?;
                Some(Timestamp::new(!u64::from_be_bytes(inverted))?)
            }
            _ => return None,
        };
        Some(Parts {
            row_prefix: &key[..row_end],
            column_prefix: &key[..column_end],
            family,
            escaped_qualifier: &key[qualifier_start..column_end],
            timestamp,
        })
    }

    /// The qualifier's bytes.
    pub(crate) fn qualifier(&self) -> Cow<'a, [u8]> {
        unescape(self.escaped_qualifier)
    }

    /// Whether the column's qualifier is the given one.
    pub(crate) fn has_qualifier(&self, qualifier: &[u8]) -> bool {
        *self.qualifier() == *qualifier
    }
}

/// The row's key, of the prefix that [`Parts::row_prefix`] is.
pub(crate) fn row_of(row_prefix: &[u8]) -> Cow<'_, [u8]> {
    unescape(&row_prefix[TABLE_BYTES..])
}

/// The length of the escaped text that `bytes` begins with, its end mark included.
fn escaped_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes[at..].iter().position(|byte| *byte == ESCAPE)?;
        match bytes.get(at + 1)? {
            &END => return Some(at + 2),
            &ZERO => at += 2,
            _ => return None,
        }
    }
}

/// Undoes the escaping of a text that [`escaped_len`] has measured.
fn unescape(escaped: &[u8]) -> Cow<'_, [u8]> {
    let text = &escaped[..escaped.len() - 2];
    if !text.contains(&ESCAPE) {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        plain.push(*byte);
        if *byte == ESCAPE {
            bytes.next();
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Byte strings over few bytes, so that prefixes, zeros and 0xFF meet often.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![Just(0x00), Just(0x01), Just(0xFE), Just(0xFF), any::<u8>()], 0..6)
    }

    fn cell() -> impl Strategy<Value = (u32, Vec<u8>, String, Vec<u8>, u64)> {
        let table = prop_oneof![Just(0), Just(1), Just(255), Just(256), any::<u32>()];
        let time = prop_oneof![0u64..4, Just(Timestamp::MAX.as_u64()), 0..1u64 << 53];
        (table, text(), "[a-c._-]{1,3}", text(), time)
    }

    fn encode(cell: &(u32, Vec<u8>, String, Vec<u8>, u64)) -> Key {
        let (table, row, family, qualifier, time) = cell;
        Key::column(*table, row, family, qualifier).at(Timestamp::new(*time).unwrap())
    }

    proptest! {
        #[test]
        fn keys_round_trip(cell in cell()) {
            let key = encode(&cell);
            let parts = Parts::of(&key).unwrap();
            let (table, row, family, qualifier, time) = &cell;
            prop_assert_eq!(&*row_of(parts.row_prefix), &row[..]);
            prop_assert_eq!(parts.row_prefix, &*Key::row(*table, row));
            prop_assert_eq!(parts.family, family.as_bytes());
            prop_assert_eq!(&*parts.qualifier(), &qualifier[..]);
            prop_assert!(parts.has_qualifier(qualifier));
            prop_assert_eq!(parts.column_prefix, &*Key::column(*table, row, family, qualifier));
            prop_assert_eq!(parts.timestamp.unwrap().as_u64(), *time);
            prop_assert_eq!(Parts::of(parts.column_prefix).unwrap().timestamp, None);
        }

        #[test]
        fn keys_sort_as_cells_do(a in cell(), b in cell()) {
            fn order(cell: &(u32, Vec<u8>, String, Vec<u8>, u64)) -> impl Ord + '_ {
                (cell.0, &cell.1, &cell.2, &cell.3, std::cmp::Reverse(cell.4))
            }
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), order(&a).cmp(&order(&b)));
        }

        #[test]
        fn prefixes_hold_exactly_their_cells(a in cell(), b in cell()) {
            let key = encode(&a);
            let row = Key::row(b.0, &b.1);
            prop_assert_eq!(key.starts_with(&row), (a.0, &a.1) == (b.0, &b.1));
            prop_assert_eq!(key >= row && key < row.end(), (a.0, &a.1) == (b.0, &b.1));
            let column = Key::column(b.0, &b.1, &b.2, &b.3);
            let same = (a.0, &a.1, &a.2, &a.3) == (b.0, &b.1, &b.2, &b.3);
            prop_assert_eq!(key.starts_with(&column), same);
            prop_assert_eq!(key >= column && key < column.end(), same);
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes in vec(any::<u8>(), 0..40)) {
            if let Some(parts) = Parts::of(&bytes) {
                let _ = (parts.qualifier(), row_of(parts.row_prefix));
            }
        }
    }

    #[test]
    fn the_longest_key_fits_the_engine() {
        let row = [0; bigtable::ROW_KEY_BYTES_MAX];
        let qualifier = [0; bigtable::QUALIFIER_BYTES_MAX];
        let key = Key::column(u32::MAX, &row, &"f".repeat(64), &qualifier).at(Timestamp::MAX);
        assert!(key.len() <= usize::from(u16::MAX), "{} bytes", key.len());
    }
}
