//! Defines rows, their keys, families and cells.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use crate::{Error, ROW_KEY_BYTES_MAX, Result, Timestamp};

/// The key of a row: any byte string of 1 to [`ROW_KEY_BYTES_MAX`](crate::ROW_KEY_BYTES_MAX) bytes.
///
/// Rows sort by their keys' bytes. Cloning is cheap.
///
/// ```
/// use bigtable::RowKey;
/// assert!(RowKey::from("Bob") < RowKey::from("Joe"));
/// assert_eq!(format!("{}", RowKey::from(&b"a\x00"[..])), "a\\x00");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RowKey(Bytes);

impl RowKey {
    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Checks the key's length.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] if the key is empty or too long.
    pub fn check(&self) -> Result<()> {
        match self.0.len() {
            0 => Err(Error::invalid("the row key is empty")),
            1..=ROW_KEY_BYTES_MAX => Ok(()),
            n => Err(Error::invalid(format!(
                "the row key has {n} bytes, at most {ROW_KEY_BYTES_MAX} are allowed"
            ))),
        }
    }

    /// The key as a buffer that is cheap to clone.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }
}

impl From<Bytes> for RowKey {
    fn from(bytes: Bytes) -> Self {
        RowKey(bytes)
    }
}

impl From<Vec<u8>> for RowKey {
    fn from(bytes: Vec<u8>) -> Self {
        RowKey(bytes.into())
    }
}

impl From<&[u8]> for RowKey {
    fn from(bytes: &[u8]) -> Self {
        RowKey(Bytes::copy_from_slice(bytes))
    }
}

impl From<String> for RowKey {
    fn from(text: String) -> Self {
        RowKey(text.into_bytes().into())
    }
}

impl From<&str> for RowKey {
    fn from(text: &str) -> Self {
        RowKey(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&RowKey> for RowKey {
    fn from(key: &RowKey) -> Self {
        key.clone()
    }
}

impl AsRef<[u8]> for RowKey {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl fmt::Display for RowKey {
    /// Writes printable UTF-8 as it is, every other byte as `\xNN`, and a backslash twice.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for ch in chunk.valid().chars() {
                match ch {
                    '\\' => f.write_str("\\\\")?,
                    ch if ch.is_control() => {
                        let mut utf8 = [0; 4];
                        for byte in ch.encode_utf8(&mut utf8).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    ch => fmt::Write::write_char(f, ch)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// The name of a column family.
///
/// ```
/// use bigtable::Family;
/// const LOCK: Family = Family::from_static("lock");
/// assert_eq!(LOCK, Family::from("lock".to_owned()));
/// ```
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct Family(Cow<'static, str>);

impl PartialEq for Family {
    /// Compares the addresses first: most names are constants of the program, so equal names
    /// are usually the same text. Different names of one length usually begin differently.
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (self.as_str().as_bytes(), other.as_str().as_bytes());
        own.len() == other.len()
            && (own.as_ptr() == other.as_ptr() || own.first() == other.first() && own == other)
    }
}

impl Hash for Family {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Family {
    /// A family whose name is a constant of the program. Cloning it is free.
    pub const fn from_static(name: &'static str) -> Self {
        Family(Cow::Borrowed(name))
    }

    /// The family's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Family {
    fn from(name: String) -> Self {
        Family(Cow::Owned(name))
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One version of one column of a row.
///
/// ```
/// use bigtable::{Cell, Family, Timestamp};
/// let cell = Cell {
///     family: Family::from_static("data"),
///     qualifier: "bal".into(),
///     timestamp: Timestamp::new(5).unwrap(),
///     value: "$10".into(),
/// };
/// assert_eq!(&cell.value[..], b"$10");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The column's family.
    pub family: Family,
    /// The column's name within the family. It may be empty, and may hold any bytes.
    pub qualifier: Bytes,
    /// The version.
    pub timestamp: Timestamp,
    /// The value. It may be empty.
    pub value: Bytes,
}

/// The result of reading one row. Its cells are sorted by family name, then by qualifier, both
/// ascending, then by timestamp, newest first.
///
/// ```
/// use bigtable::{Family, Row, RowKey};
/// let row = Row { key: RowKey::from("Bob"), cells: vec![] };
/// assert!(row.newest(&Family::from_static("data"), b"bal").is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The row's key.
    pub key: RowKey,
    /// The selected cells, in order.
    pub cells: Vec<Cell>,
}

impl Row {
    /// Creates a row of these cells, which may be in any order.
    pub fn new(key: RowKey, mut cells: Vec<Cell>) -> Self {
        fn order(cell: &Cell) -> (&str, &[u8], Reverse<Timestamp>) {
            (cell.family.as_str(), &cell.qualifier, Reverse(cell.timestamp))
        }
        // Most selections name their columns in order, so the cells are usually sorted
        // already.
        if !cells.is_sorted_by(|a, b| order(a) <= order(b)) {
            cells.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        }
        Row { key, cells }
    }

    /// The bytes of the row's key, qualifiers and values, as [`PageLimit`](crate::PageLimit)
    /// counts them.
    pub fn bytes(&self) -> usize {
        let of = |cell: &Cell| cell.qualifier.len() + cell.value.len();
        self.key.as_bytes().len() + self.cells.iter().map(of).sum::<usize>()
    }

    /// The newest returned version of a column.
    pub fn newest(&self, family: &Family, qualifier: &[u8]) -> Option<&Cell> {
        self.versions(family, qualifier).first()
    }

    /// All returned versions of a column, newest first.
    pub fn versions(&self, family: &Family, qualifier: &[u8]) -> &[Cell] {
        let column = (family.as_str(), qualifier);
        let of = |cell: &Cell| (cell.family.as_str(), &cell.qualifier[..]).cmp(&column);
        let start = self.cells.partition_point(|cell| of(cell).is_lt());
        let end = self.cells.partition_point(|cell| of(cell).is_le());
        &self.cells[start..end]
    }
}
