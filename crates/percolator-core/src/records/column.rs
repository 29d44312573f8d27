//! Defines the names that a transaction uses: tables, columns and cells.
//!
//! A Percolator column is a `family:qualifier`, as in the paper. The bare name of a family is
//! the column of that family with an empty qualifier (the paper's `bal`). In the store the
//! whole name becomes the *qualifier* of the families `data`, `lock`, `write` and so on (see
//! [`layout`](crate::records::layout)).

use std::cmp::Ordering;
use std::fmt;
use std::sync::{Arc, Weak};

use bigtable::{RowKey, Store};
use bytes::{Bytes, BytesMut};

use crate::records::codec::{Reader, put_bytes16};
use crate::{Error, InvalidKind, Result};

/// Longest name of a column in bytes.
pub const COLUMN_BYTES_MAX: usize = bigtable::QUALIFIER_BYTES_MAX;

/// The family that holds the observers' acknowledgements; applications cannot write to it.
pub(crate) const ACK_FAMILY: &str = "ack";

/// The name of a column: `family:qualifier`, or `family` alone.
///
/// The family is of the form `[-_.a-zA-Z0-9]+`; the qualifier may hold any bytes.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::Column;
/// const BAL: Column = Column::literal("bal");
/// assert_eq!(Column::new("bal")?, BAL);
/// assert_eq!(Column::new("doc:content")?.to_string(), "doc:content");
/// assert!(Column::new(":content").is_err());
/// # Ok::<(), percolator::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column(Bytes);

impl Column {
    /// A column from its name.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the family is missing, has a character outside `[-_.a-zA-Z0-9]`
    /// or is the reserved `ack`, or if the name is longer than [`COLUMN_BYTES_MAX`].
    pub fn new(name: impl Into<Bytes>) -> Result<Self> {
        let name = name.into();
        let column = Column(name);
        if let Some(problem) = family_problem(&column.0) {
            return Err(Error::invalid(
                InvalidKind::Column,
                format!(
                    "column {column} {problem}; write family:qualifier, the family of the form \
                 [-_.a-zA-Z0-9]+ and not `ack`"
                ),
            ));
        }
        Ok(column)
    }

    /// A column whose name is known when the program is built. If it is used for a `const`, a
    /// malformed name does not compile.
    ///
    /// # Panics
    /// Panics if [`Column::new`] would return an error.
    pub const fn literal(name: &'static str) -> Self {
        assert!(family_problem(name.as_bytes()).is_none(), "malformed column name");
        Column(Bytes::from_static(name.as_bytes()))
    }

    /// The column in which `observer` acknowledges changes of this column (paper section 2.4).
    pub(crate) fn ack_of(&self, observer: &str) -> Column {
        let mut name = Vec::with_capacity(8 + observer.len() + self.0.len());
        name.extend_from_slice(ACK_FAMILY.as_bytes());
        name.push(b':');
        name.extend_from_slice(observer.as_bytes());
        name.push(b'/');
        name.extend_from_slice(&self.0);
        Column(name.into())
    }

    /// A column from bytes that the store returned. They are not checked again.
    pub(crate) fn from_stored(name: Bytes) -> Self {
        Column(name)
    }

    /// Whether this is a column of an observer's acknowledgements.
    pub(crate) fn is_ack(&self) -> bool {
        self.0.starts_with(b"ack:")
    }

    /// The observed column, if this is a column of acknowledgements.
    pub(crate) fn acknowledges(&self) -> Option<Column> {
        let name = self.0.strip_prefix(b"ack:")?;
        // An observer's name has no slash.
        let slash = name.iter().position(|b| *b == b'/')?;
        Some(Column(self.0.slice(self.0.len() - name.len() + slash + 1..)))
    }

    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as a cheaply cloned buffer.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The part before the colon.
    pub fn family(&self) -> &[u8] {
        self.0.split(|b| *b == b':').next().unwrap_or_default()
    }
}

/// The mistake in a column's name, if there is one.
const fn family_problem(name: &[u8]) -> Option<&'static str> {
    if name.len() > COLUMN_BYTES_MAX {
        return Some("is too long");
    }
    let mut i = 0;
    while i < name.len() && name[i] != b':' {
        let b = name[i];
        if !(b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.') {
            return Some("has a character that a family cannot have");
        }
        i += 1;
    }
    if i == 0 {
        return Some("has no family");
    }
    if i == 3 && name[0] == b'a' && name[1] == b'c' && name[2] == b'k' {
        return Some("is reserved for acknowledgements");
    }
    None
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&RowKey::from(self.0.clone()), f)
    }
}

impl TryFrom<&str> for Column {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Column::new(Bytes::copy_from_slice(name.as_bytes()))
    }
}

/// An open table. Cloning is cheap. Two handles of the same name are equal.
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// let accounts = client.table("accounts").await?;
/// assert_eq!(accounts.name(), "accounts");
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Table(Arc<TableInner>);

struct TableInner {
    name: Arc<str>,
    /// The store that the table belongs to. This reference does not keep the store open.
    of: Weak<dyn Store>,
    store: Arc<dyn bigtable::Table>,
    /// The second table, which holds the notifications, on stores without locality groups.
    apart: Option<Arc<dyn bigtable::Table>>,
}

impl Table {
    pub(crate) fn new(
        name: &str,
        of: &Arc<dyn Store>,
        store: Arc<dyn bigtable::Table>,
        apart: Option<Arc<dyn bigtable::Table>>,
    ) -> Self {
        Table(Arc::new(TableInner { name: name.into(), of: Arc::downgrade(of), store, apart }))
    }

    /// Checks that the table belongs to `store`. In another store a row of this name would be
    /// another row.
    pub(crate) fn check_of(&self, store: &Arc<dyn Store>) -> Result<()> {
        if std::ptr::addr_eq(self.0.of.as_ptr(), Arc::as_ptr(store)) {
            return Ok(());
        }
        Err(Error::invalid(
            InvalidKind::Table,
            format!(
                "table {} was opened by a client of another store: open it with `table` of this client",
                self.name()
            ),
        ))
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The name as a shared string.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.0.name.clone()
    }

    /// The underlying table of the store, which includes Percolator's own columns.
    pub fn store(&self) -> &dyn bigtable::Table {
        &*self.0.store
    }

    /// The second table, which holds the notifications, on stores without locality groups.
    pub(crate) fn apart(&self) -> Option<&dyn bigtable::Table> {
        self.0.apart.as_deref()
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.name == other.0.name
    }
}

impl Eq for Table {}

impl PartialOrd for Table {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Table {
    fn cmp(&self, other: &Self) -> Ordering {
        // Handles of one program are usually clones of one another.
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        self.0.name.cmp(&other.0.name)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A cell in an open table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cell {
    pub(crate) table: Table,
    pub(crate) row: RowKey,
    pub(crate) column: Column,
}

impl Cell {
    pub(crate) fn new(table: &Table, row: &RowKey, column: &Column) -> Self {
        Cell { table: table.clone(), row: row.clone(), column: column.clone() }
    }

    pub(crate) fn location(&self) -> CellName {
        CellName {
            table: self.table.name().to_owned(),
            row: self.row.clone(),
            column: self.column.clone(),
        }
    }
}

/// The name of a cell: table, row, column. A secondary lock contains the name of its primary.
///
/// ```
/// # use percolator_core::face as percolator;
/// use percolator::admin::CellName;
/// use percolator::Column;
/// let cell = CellName {
///     table: "accounts".into(), row: "Bob".into(), column: Column::literal("bal"),
/// };
/// assert_eq!(cell.to_string(), "accounts/Bob/bal");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct CellName {
    /// The table's name.
    pub table: String,
    /// The row.
    pub row: RowKey,
    /// The column.
    pub column: Column,
}

impl CellName {
    /// Reads a name that [`put_cell`] wrote. Returns `None` if too few bytes are left.
    pub(crate) fn read(reader: &mut Reader) -> Option<Self> {
        let (table, row) = (reader.string16()?, RowKey::from(reader.bytes16()?));
        Some(CellName { table, row, column: Column::from_stored(reader.bytes16()?) })
    }
}

/// Writes the name of a cell into a record.
pub(crate) fn put_cell(out: &mut BytesMut, table: &str, row: &RowKey, column: &Column) {
    put_bytes16(out, table.as_bytes());
    put_bytes16(out, row.as_bytes());
    put_bytes16(out, column.as_bytes());
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.table, self.row, self.column)
    }
}
