//! Encodes keys: table, row, family, qualifier and time become one byte string that sorts in
//! that order.
//!
//! ```text
//!   table id     one byte below 255; above, 255 and a u32, big-endian
//!   row          0x00 becomes 0x01 0x01, 0x01 becomes 0x01 0x02; ended by 0x00
//!   family       its number in the table, one byte
//!   qualifier    as the row
//!   time         56 bits, big-endian, all inverted: newer versions sort first
//! ```
//!
//! Keys are short for a reason: the engine stores up to twenty bytes of a key in place, and
//! compares longer keys through a pointer. Timestamps are below 2^53, so seven bytes hold
//! them.
//!
//! Invariants, for all byte strings, including empty ones and strings of zero bytes:
//! * Two cells have the same key only if they are the same cell.
//! * Keys compare like (table, row, family, qualifier, newest first).
//! * The key of a row, family or column is a prefix of the keys of exactly the cells in it.
//! * The longest key within the limits is shorter than the 65,535 bytes that the engine
//!   accepts.

use std::borrow::Cow;
use std::ops::Deref;

use bigtable::Timestamp;
use memchr::memchr;
use tinyvec::TinyVec;

/// A key that no cell has: every key of a cell is longer.
pub(crate) const NO_KEY: [u8; 1] = [0];
/// Keys up to this length are built without allocating.
const KEY_BYTES_INLINE: usize = 128;
/// Ends a text. It sorts below every byte of an escaped text.
const END: u8 = 0x00;
/// Begins the two bytes that represent a byte of [`END`] or [`ESCAPE`].
const ESCAPE: u8 = 0x01;
/// Added to an escaped byte, so that the result is never [`END`].
const SHIFT: u8 = 0x01;
/// The first byte of table ids that do not fit into one byte.
const LONG_ID: u8 = u8::MAX;
/// Bytes of the time, at the end of a key.
const TIME_BYTES: usize = 7;
const TIME_MASK: u64 = (1 << (8 * TIME_BYTES)) - 1;

/// A key, or the prefix of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(TinyVec<[u8; KEY_BYTES_INLINE]>);

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

// `row`, `family` and `column` do not call each other, because a key that is returned is copied.
impl Key {
    /// The prefix of all keys of a table.
    pub(crate) fn table(table: u32) -> Self {
        let mut key = Key(TinyVec::new());
        key.push_table(table);
        key
    }

    /// The prefix of all keys of a row.
    pub(crate) fn row(table: u32, row: &[u8]) -> Self {
        let mut key = Key(TinyVec::new());
        key.push_row(table, row);
        key
    }

    /// The bounds of a row's keys: the first is included, the second is excluded.
    pub(crate) fn row_bounds(table: u32, row: &[u8]) -> (Self, Self) {
        let row = Key::row(table, row);
        let end = row.end();
        (row, end)
    }

    /// The prefix of all keys of one family in a row.
    pub(crate) fn family(table: u32, row: &[u8], family: u8) -> Self {
        let mut key = Key(TinyVec::new());
        key.push_row(table, row);
        key.0.push(family);
        key
    }

    /// The prefix of all keys of a column. In groups with the layout `NewestFirst`, it is also
    /// the key of the column's newest pack.
    pub(crate) fn column(table: u32, row: &[u8], family: u8, qualifier: &[u8]) -> Self {
        let mut key = Key(TinyVec::new());
        key.push_row(table, row);
        key.0.push(family);
        key.push_escaped(qualifier);
        key
    }

    /// The key of one version, if `self` is the prefix of its column.
    pub(crate) fn at(&self, timestamp: Timestamp) -> Self {
        let mut key = self.clone();
        key.0.extend_from_slice(&(!timestamp.as_u64()).to_be_bytes()[8 - TIME_BYTES..]);
        key
    }

    /// A prefix, from the first bytes of another key.
    pub(crate) fn from_prefix(bytes: &[u8]) -> Self {
        Key(TinyVec::from(bytes))
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

    fn push_table(&mut self, table: u32) {
        match u8::try_from(table) {
            Ok(short) if short < LONG_ID => self.0.push(short),
            _ => {
                self.0.push(LONG_ID);
                self.0.extend_from_slice(&table.to_be_bytes());
            }
        }
    }

    fn push_row(&mut self, table: u32, row: &[u8]) {
        self.push_table(table);
        self.push_escaped(row);
    }

    fn push_escaped(&mut self, text: &[u8]) {
        // Most texts have nothing to escape.
        if is_plain(text) {
            self.0.extend_from_slice(text);
        } else {
            for byte in text {
                match *byte {
                    END | ESCAPE => self.0.extend_from_slice(&[ESCAPE, byte + SHIFT]),
                    byte => self.0.push(byte),
                }
            }
        }
        self.0.push(END);
    }
}

/// Whether no byte of the text needs to be escaped. Compares eight bytes at a time.
fn is_plain(text: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 0xFF;
    const HIGH_BITS: u64 = ONES << 7;
    let (words, rest) = text.as_chunks();
    // Subtracting sets the high bit of a byte that is too low, and maybe those of bytes after it.
    let low = words
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .fold(0, |low, word| low | (word.wrapping_sub(ONES * u64::from(ESCAPE + 1)) & !word));
    low & HIGH_BITS == 0 && rest.iter().all(|byte| *byte > ESCAPE)
}

/// Builds the keys of one row's columns, one after the other, in the same buffer. So table and
/// row are encoded once.
pub(crate) struct RowKeys {
    key: Key,
    /// Length of the prefix that ends with the row.
    row_len: usize,
}

impl RowKeys {
    pub(crate) fn new(table: u32, row: &[u8]) -> Self {
        Key::row(table, row).into()
    }

    /// The prefix of all keys of one family in the row.
    pub(crate) fn family(&mut self, family: u8) -> &Key {
        self.key.0.truncate(self.row_len);
        self.key.0.push(family);
        &self.key
    }

    /// The prefix of all keys of a column, see [`Key::column`].
    pub(crate) fn column(&mut self, family: u8, qualifier: &[u8]) -> &Key {
        self.key.0.truncate(self.row_len);
        self.key.0.push(family);
        self.key.push_escaped(qualifier);
        &self.key
    }
}

impl From<Key> for RowKeys {
    /// The keys of the row with this prefix.
    fn from(row: Key) -> Self {
        let row_len = row.len();
        RowKeys { key: row, row_len }
    }
}

/// The positions of the parts of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Length of the prefix that ends with the row.
    row_len: usize,
    /// Length of the prefix that ends with the qualifier.
    column_len: usize,
    /// The family's number.
    pub(crate) family: u8,
    /// The version's timestamp, unless the key is that of a whole column.
    pub(crate) timestamp: Option<Timestamp>,
}

impl Shape {
    /// The shape of a key. `None` if the bytes are not a key.
    pub(crate) fn of(key: &[u8]) -> Option<Self> {
        let row_len = table_len(key)? + escaped_len(key.get(table_len(key)?..)?)?;
        let family = *key.get(row_len)?;
        let column_len = row_len + 1 + escaped_len(&key[row_len + 1..])?;
        let timestamp = match key.len() - column_len {
            0 => None,
            TIME_BYTES => {
                let mut inverted = [0; 8];
                inverted[8 - TIME_BYTES..].copy_from_slice(&key[column_len..]);
                Some(Timestamp::new(!u64::from_be_bytes(inverted) & TIME_MASK)?)
            }
            _ => return None,
        };
        Some(Shape { row_len, column_len, family, timestamp })
    }

    /// The prefix of all keys of the row.
    pub(crate) fn row_prefix<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        &key[..self.row_len]
    }

    /// The prefix of all keys of the column.
    pub(crate) fn column_prefix<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        &key[..self.column_len]
    }

    /// The prefix of all keys of the table.
    pub(crate) fn table_prefix<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        &key[..table_len(key).unwrap_or(0)]
    }

    /// The bytes after the row, which are the same for a column in every row.
    pub(crate) fn family_and_qualifier<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        &key[self.row_len..self.column_len]
    }

    /// The qualifier's bytes.
    pub(crate) fn qualifier<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        unescape(&key[self.row_len + 1..self.column_len])
    }
}

/// The row's key, from a prefix that [`Shape::row_prefix`] returned.
pub(crate) fn row_of(row_prefix: &[u8]) -> Cow<'_, [u8]> {
    unescape(table_len(row_prefix).map_or(&[], |len| &row_prefix[len..]))
}

/// The id of the table that a key belongs to.
pub(crate) fn table_of(key: &[u8]) -> Option<u32> {
    match key.split_first()? {
        (&LONG_ID, rest) => rest.first_chunk().map(|id| u32::from_be_bytes(*id)),
        (short, _) => Some(u32::from(*short)),
    }
}

/// The length of the table's id.
fn table_len(key: &[u8]) -> Option<usize> {
    Some(if *key.first()? == LONG_ID { 1 + size_of::<u32>() } else { 1 })
}

/// The length of the escaped text at the beginning of `bytes`, including its end mark.
fn escaped_len(bytes: &[u8]) -> Option<usize> {
    memchr(END, bytes).map(|end| end + 1)
}

/// Undoes the escaping of a text that [`escaped_len`] measured.
fn unescape(escaped: &[u8]) -> Cow<'_, [u8]> {
    let text = escaped.strip_suffix(&[END]).unwrap_or(escaped);
    if memchr(ESCAPE, text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match (*byte, bytes.as_slice().first()) {
            (ESCAPE, Some(shifted)) => {
                plain.push(shifted.wrapping_sub(SHIFT));
                bytes.next();
            }
            (byte, _) => plain.push(byte),
        }
    }
    Cow::Owned(plain)
}

/// For fuzzers: checks that any bytes are either a key or refused. Also checks that a key
/// returns the names it was built from.
///
/// # Panics
/// If one of these does not hold.
pub fn check(bytes: &[u8]) {
    if let Some(shape) = Shape::of(bytes) {
        drop((shape.qualifier(bytes), row_of(shape.row_prefix(bytes))));
    }
    let Some((first, text)) = bytes.split_first() else { return };
    let (row, qualifier) = text.split_at(usize::from(*first) % (text.len() + 1));
    let key = Key::column(u32::from(*first), row, *first, qualifier).at(Timestamp::ZERO);
    let shape = Shape::of(&key).expect("what was built as a key has the shape of one");
    assert_eq!(&*row_of(shape.row_prefix(&key)), row);
    assert_eq!(&*shape.qualifier(&key), qualifier);
    assert_eq!((shape.family, shape.timestamp), (*first, Some(Timestamp::ZERO)));
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Byte strings over few byte values, so that prefixes, zeros and 0xFF are frequent.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![0x00..=0x03_u8, Just(0xFE), Just(0xFF), any::<u8>()], 0..6)
    }

    fn cell() -> impl Strategy<Value = (u32, Vec<u8>, u8, Vec<u8>, u64)> {
        let table = prop_oneof![Just(0), Just(1), Just(254), Just(255), Just(256), 0..u32::MAX];
        let time = prop_oneof![0u64..4, Just(Timestamp::MAX.as_u64()), 0..1u64 << 53];
        (table, text(), any::<u8>(), text(), time)
    }

    fn encode(cell: &(u32, Vec<u8>, u8, Vec<u8>, u64)) -> Key {
        let (table, row, family, qualifier, time) = cell;
        Key::column(*table, row, *family, qualifier).at(Timestamp::new(*time).unwrap())
    }

    proptest! {
        #[test]
        fn keys_round_trip(cell in cell()) {
            let key = encode(&cell);
            let shape = Shape::of(&key).unwrap();
            let (table, row, family, qualifier, time) = &cell;
            prop_assert_eq!(&*row_of(shape.row_prefix(&key)), &row[..]);
            prop_assert_eq!(shape.row_prefix(&key), &*Key::row(*table, row));
            prop_assert_eq!(table_of(&key), Some(*table));
            prop_assert_eq!(shape.family, *family);
            prop_assert_eq!(&*shape.qualifier(&key), &qualifier[..]);
            let column = Key::column(*table, row, *family, qualifier);
            prop_assert_eq!(shape.column_prefix(&key), &*column);
            let mut of_row = RowKeys::new(*table, row);
            let another = Key::column(*table, row, *family, b"another");
            prop_assert_eq!(of_row.column(*family, b"another"), &another);
            prop_assert_eq!(of_row.column(*family, qualifier), &column);
            prop_assert_eq!(of_row.family(*family), &Key::family(*table, row, *family));
            prop_assert_eq!(shape.timestamp.unwrap().as_u64(), *time);
            prop_assert_eq!(Shape::of(shape.column_prefix(&key)).unwrap().timestamp, None);
        }

        #[test]
        fn keys_sort_as_cells_do(a in cell(), b in cell()) {
            fn order(cell: &(u32, Vec<u8>, u8, Vec<u8>, u64)) -> impl Ord + '_ {
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
            let column = Key::column(b.0, &b.1, b.2, &b.3);
            let same = (a.0, &a.1, &a.2, &a.3) == (b.0, &b.1, &b.2, &b.3);
            prop_assert_eq!(key.starts_with(&column), same);
            prop_assert_eq!(key >= column && key < column.end(), same);
        }

        #[test]
        fn a_text_is_plain_if_each_of_its_bytes_is(
            text in vec(prop_oneof![1 => 0x00..=0x03_u8, 9 => any::<u8>()], 0..40),
        ) {
            prop_assert_eq!(is_plain(&text), text.iter().all(|byte| *byte > ESCAPE));
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes in vec(any::<u8>(), 0..40)) {
            check(&bytes);
        }
    }

    #[test]
    fn the_longest_key_fits_the_engine() {
        let row = [0; bigtable::ROW_KEY_BYTES_MAX];
        let qualifier = [0; bigtable::QUALIFIER_BYTES_MAX];
        let key = Key::column(u32::MAX, &row, 255, &qualifier).at(Timestamp::MAX);
        assert!(key.len() <= usize::from(u16::MAX), "{} bytes", key.len());
    }
}
