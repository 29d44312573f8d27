//! Defines glances: reads of one column's newest version that never wait and build no row.

use bytes::Bytes;

use crate::{Family, Result, Row, RowKey, Selection, TableSchema, TimeRange, Timestamp};

/// A glance at a column: its newest version in `family` at or below `s`. The glance shows
/// nothing if the column has a version at or below `s` in `guard`. For a column of a
/// transaction, `family` holds the write records, and `guard` the locks.
///
/// See [`Table::glance`](crate::Table::glance) for an example.
#[derive(Debug, Clone, Copy)]
pub struct Glance<'a> {
    /// The row.
    pub row: &'a RowKey,
    /// The column's qualifier, in both families.
    pub qualifier: &'a [u8],
    /// The family whose newest version is returned.
    pub family: &'a Family,
    /// The family that must have no version.
    pub guard: &'a Family,
    /// The snapshot to read, see [`Selection::above`].
    pub s: Timestamp,
}

/// The result of a glance.
///
/// See [`Table::glance`](crate::Table::glance) for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Glanced {
    /// No result: `guard` has a version, a change is in flight, or only a remote store knows.
    /// Call [`read_row`](crate::Table::read_row).
    Nothing,
    /// The column has no version.
    Absent,
    /// The newest version.
    Newest(Timestamp, Bytes),
}

impl Glance<'_> {
    /// Checks the row's key, and the families against the table's schema.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`](crate::Error::InvalidRequest) with the key or the family.
    pub fn check(&self, schema: &TableSchema) -> Result<()> {
        self.row.check()?;
        schema.check_family(self.family)?;
        schema.check_family(self.guard)
    }

    /// The selection of a read with the same result.
    pub fn selection(&self) -> Selection {
        let (qualifier, time) = (Bytes::copy_from_slice(self.qualifier), TimeRange::up_to(self.s));
        Selection::default()
            .above(self.s)
            .column(self.guard.clone(), qualifier.clone(), time, u32::MAX)
            .column(self.family.clone(), qualifier, time, 1)
    }

    /// Derives the result from a row that was read by [`Glance::selection`].
    pub fn of(&self, row: Row) -> Glanced {
        if row.cells.iter().any(|cell| cell.family == *self.guard) {
            return Glanced::Nothing;
        }
        match row.cells.into_iter().next() {
            Some(cell) => Glanced::Newest(cell.timestamp, cell.value),
            None => Glanced::Absent,
        }
    }
}
