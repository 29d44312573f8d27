//! A read of one column's newest version, without waiting and without the lists that a row is made
//! of.

use bytes::Bytes;

use crate::{Family, Result, Row, RowKey, Selection, TableSchema, TimeRange, Timestamp};

/// A column to glance at: its newest version in `family` at or below `s`, unless it has a version
/// at or below `s` in `guard`. Of a transaction's column these are its write records and its locks.
///
/// See [`Table::glance`](crate::Table::glance) for an example.
#[derive(Debug, Clone, Copy)]
pub struct Glance<'a> {
    /// The row.
    pub row: &'a RowKey,
    /// The column, in both families.
    pub qualifier: &'a [u8],
    /// Where its newest version is looked for.
    pub family: &'a Family,
    /// Where it must have none.
    pub guard: &'a Family,
    /// The snapshot that is read, as [`Selection::above`] says.
    pub s: Timestamp,
}

/// What a glance shows.
///
/// See [`Table::glance`](crate::Table::glance) for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Glanced {
    /// Nothing: there is something in `guard`, a change is under way, or the store has to be asked.
    /// A [`read_row`](crate::Table::read_row) tells.
    Nothing,
    /// That there is no version.
    Absent,
    /// The newest version.
    Newest(Timestamp, Bytes),
}

impl Glance<'_> {
    /// Checks the row's key, and the families against the table's schema.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`](crate::Error::InvalidRequest) names what is wrong.
    pub fn check(&self, schema: &TableSchema) -> Result<()> {
        self.row.check()?;
        schema.check_family(self.family)?;
        schema.check_family(self.guard)
    }

    /// What a read would have to select for the same.
    pub fn selection(&self) -> Selection {
        let (qualifier, time) = (Bytes::copy_from_slice(self.qualifier), TimeRange::up_to(self.s));
        Selection::default()
            .above(self.s)
            .column(self.guard.clone(), qualifier.clone(), time, u32::MAX)
            .column(self.family.clone(), qualifier, time, 1)
    }

    /// What a row shows that was read by [`Glance::selection`].
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
