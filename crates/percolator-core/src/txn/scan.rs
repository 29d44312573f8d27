//! Scans rows at a timestamp.
//!
//! Invariants:
//! * Lock and write columns are read together, so that a new row whose commit stopped half-way
//!   is not missed (H30).
//! * After a lock was resolved, the same row is read again at the same `s`. The cursor is the
//!   last row returned (H31).
//! * A transaction's own buffered writes are laid over each page.

use std::collections::VecDeque;

use bigtable::{PageLimit, RowKey, RowRange, Timestamp};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::records::write::Write;
use crate::shared::Shared;
use crate::txn::buffer::Buffer;
use crate::txn::get::{Patience, Version, is_locked, read_row, selection, too_old, versions};
use crate::txn::held::check_held;
use crate::watch::Access;
use crate::{Column, Result, Table};

/// The most rows of a page whose long values are read at the same time. A store behind a network
/// answers them in about the time of one. More would keep its other readers waiting.
const LONG_AT_ONCE: usize = 32;

/// A row that a scan returned: its live cells, sorted by column.
///
/// See [`Scan`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedRow {
    /// The row's key.
    pub row: RowKey,
    /// Columns and values.
    pub cells: Vec<(Column, Bytes)>,
}

impl ScannedRow {
    /// The value of a column, if the scan found one.
    pub fn get(&self, column: &Column) -> Option<&Bytes> {
        let at = self.cells.binary_search_by(|(other, _)| other.cmp(column)).ok()?;
        Some(&self.cells[at].1)
    }
}

/// A scan of a table's rows, in order, at one timestamp. By default it returns every column of
/// every row.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::Column;
/// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
/// let mut tx = client.begin().await?;
/// for who in ["Ann", "Bob", "Bonny"] {
///     tx.set(&accounts, who, &bal, "$10")?;
/// }
/// let rows = tx.scan(&accounts).prefix("Bo").columns([&bal]).limit(10).collect().await?;
/// assert_eq!(rows.len(), 2);
/// assert_eq!(rows[0].row, "Bob".into());
/// assert_eq!(rows[0].get(&bal).map(|value| &value[..]), Some(&b"$10"[..]));
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct Scan<'a> {
    shared: &'a Shared,
    table: Table,
    s: Timestamp,
    own: Option<&'a Buffer>,
    columns: Vec<Column>,
    limit: usize,
    /// The range that is still to be read; `None` if nothing is left.
    left: Option<RowRange>,
    ready: VecDeque<ScannedRow>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        table: &Table,
        s: Timestamp,
        own: Option<&'a Buffer>,
    ) -> Self {
        Scan {
            shared,
            table: table.clone(),
            s,
            own,
            columns: Vec::new(),
            limit: usize::MAX,
            left: Some(RowRange::all()),
            ready: VecDeque::new(),
        }
    }

    /// Restricts the scan to rows whose key begins with `prefix`, in place of an earlier range.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<RowKey>) -> Self {
        self.range(RowRange::prefix(prefix))
    }

    /// Restricts the scan to rows of this range, in place of an earlier range or prefix.
    #[must_use]
    pub fn range(mut self, range: RowRange) -> Self {
        self.left = (!range.is_empty()).then_some(range);
        self
    }

    /// Restricts the scan to these columns. Rows with none of them are left out. An empty list
    /// means all columns.
    #[must_use]
    pub fn columns<'c>(mut self, columns: impl IntoIterator<Item = &'c Column>) -> Self {
        self.columns = columns.into_iter().cloned().collect();
        self.columns.sort();
        self.columns.dedup();
        self
    }

    /// Restricts the scan to at most this many rows.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// * [`Error::Locked`](crate::Error::Locked) if a lock stays too long because its owner
    ///   lives.
    /// * [`Error::TooOld`](crate::Error::TooOld) below the safe point.
    /// * Errors of the store.
    pub async fn next(&mut self) -> Result<Option<ScannedRow>> {
        self.shared.check_open()?;
        while self.ready.is_empty() && self.limit > 0 {
            // Keep the range until the page was read, so that a caller that goes on after an
            // error misses nothing.
            let Some(range) = self.left.clone() else { return Ok(None) };
            self.read_page(range).await?;
        }
        if self.limit == 0 {
            return Ok(None);
        }
        self.limit -= 1;
        Ok(self.ready.pop_front())
    }

    /// Returns all remaining rows.
    ///
    /// # Errors
    /// As [`next`](Scan::next).
    pub async fn collect(mut self) -> Result<Vec<ScannedRow>> {
        let mut rows = Vec::new();
        while let Some(row) = self.next().await? {
            rows.push(row);
        }
        Ok(rows)
    }

    async fn read_page(&mut self, range: RowRange) -> Result<()> {
        self.table.check_of(&self.shared.services().store)?;
        let select = selection(&self.columns, self.s);
        let default = PageLimit::default();
        let limit = PageLimit { rows_max: default.rows_max.min(self.limit), ..default };
        let store = self.table.store();
        self.shared.counters().reads.bump();
        let page = store.scan(&range, &select, limit).await.map_err(too_old)?;
        self.shared.take_turn(page.rows.len()).await;
        // This also covers rows that the page does not contain.
        check_held(self.shared, self.s)?;
        let read = &page.rows;
        let at = |row: usize| (self.table.name(), &read[row].key);
        self.shared.sample(Access::Read, read.len(), at);
        let mut long = self.read_long_values(read).await?.into_iter().peekable();
        let mut rows = Vec::with_capacity(page.rows.len());
        for (place, found) in page.rows.into_iter().enumerate() {
            let versions = if let Some((_, versions)) = long.next_if(|(row, _)| *row == place) {
                versions
            } else if is_locked(&found) {
                let (row, s) = (&found.key, self.s);
                read_row(self.shared, &self.table, row, &select, s, Patience::Wait).await?
            } else {
                versions(self.shared, &self.table, &found, self.s, |_| true).await?
            };
            let live = versions.into_iter().filter(|v| self.wants(&v.column));
            let cells = live.filter_map(|v| Some((v.column, v.value?))).collect();
            rows.push(ScannedRow { row: found.key, cells });
        }
        let covered = RowRange {
            start: range.start,
            end: match &page.resume {
                Some(rest) => end_before(rest),
                None => range.end,
            },
        };
        let rows = self.overlay(&covered, rows);
        self.ready.extend(rows.into_iter().filter(|row| !row.cells.is_empty()));
        self.left = page.resume;
        Ok(())
    }

    /// Reads the rows of a page that have long values and no lock. Returns their places in the
    /// page, in order, and their versions.
    async fn read_long_values(&self, page: &[bigtable::Row]) -> Result<Vec<(usize, Vec<Version>)>> {
        let lies_apart = |cell: &bigtable::Cell| Write::lies_apart(&cell.value);
        let is_long = |row: &bigtable::Row| row.cells.iter().any(lies_apart) && !is_locked(row);
        let read = async |(place, row)| {
            Ok((place, versions(self.shared, &self.table, row, self.s, |_| true).await?))
        };
        let reads: Vec<_> =
            page.iter().enumerate().filter(|(_, row)| is_long(row)).map(read).collect();
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        stream::iter(reads).buffered(LONG_AT_ONCE).try_collect().await
    }

    /// Whether a column belongs into the result: one of the selected columns, or any column
    /// except acknowledgements.
    fn wants(&self, column: &Column) -> bool {
        if self.columns.is_empty() {
            !column.is_ack()
        } else {
            self.columns.binary_search(column).is_ok()
        }
    }

    /// Lays the transaction's own writes over the rows that were read. Both are in order.
    fn overlay(&self, covered: &RowRange, rows: Vec<ScannedRow>) -> Vec<ScannedRow> {
        let Some(own) = self.own.filter(|own| !own.writes.is_empty()) else { return rows };
        let mut read = rows.into_iter().peekable();
        let mut rows: Vec<ScannedRow> = Vec::with_capacity(read.len());
        for (cell, value) in own.in_range(&self.table, covered) {
            if !self.wants(&cell.column) {
                continue;
            }
            while let Some(row) = read.next_if(|row| row.row <= cell.row) {
                rows.push(row);
            }
            match rows.last_mut().filter(|row| row.row == cell.row) {
                Some(row) => row.put(&cell.column, value.as_ref()),
                None => {
                    let own = value.iter().map(|value| (cell.column.clone(), value.clone()));
                    rows.push(ScannedRow { row: cell.row.clone(), cells: own.collect() });
                }
            }
        }
        rows.extend(read);
        rows
    }
}

impl ScannedRow {
    /// Replaces, adds or removes a cell.
    fn put(&mut self, column: &Column, value: Option<&Bytes>) {
        let at = self.cells.binary_search_by(|(known, _)| known.cmp(column));
        match (at, value) {
            (Ok(at), Some(value)) => self.cells[at].1 = value.clone(),
            (Ok(at), None) => drop(self.cells.remove(at)),
            (Err(at), Some(value)) => self.cells.insert(at, (column.clone(), value.clone())),
            (Err(_), None) => {}
        }
    }
}

/// The end of the part of a range that lies before `rest`.
fn end_before(rest: &RowRange) -> std::ops::Bound<RowKey> {
    use std::ops::Bound;
    match &rest.start {
        Bound::Excluded(last) => Bound::Included(last.clone()),
        Bound::Included(next) => Bound::Excluded(next.clone()),
        Bound::Unbounded => Bound::Unbounded,
    }
}
