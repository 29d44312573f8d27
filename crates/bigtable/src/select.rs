//! Defines what to read: columns, time ranges and limits, ranges of rows, and pages.

use std::ops::Bound;

use bytes::Bytes;

use crate::{
    Error, Family, ROW_KEY_BYTES_MAX, Result, Row, RowKey, TableSchema, TimeRange, Timestamp,
};

/// A choice of qualifiers in a family.
///
/// See [`Selection`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Qualifiers {
    /// Every qualifier.
    All,
    /// Exactly this qualifier.
    Is(Bytes),
}

/// A choice of versions and columns of one family.
///
/// See [`Selection`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSelect {
    /// The family.
    pub family: Family,
    /// The qualifiers in the family.
    pub qualifiers: Qualifiers,
    /// The versions.
    pub time: TimeRange,
    /// The most versions of each column, counted from the newest.
    pub versions_max: u32,
}

/// Selections of up to this many columns are compared pair by pair.
const PAIRWISE_MAX: usize = 8;

impl ColumnSelect {
    /// Whether a cell can exist that both select.
    fn meets(&self, other: &ColumnSelect) -> bool {
        let some = |c: &ColumnSelect| c.time.from <= c.time.to;
        let qualifiers = match (&self.qualifiers, &other.qualifiers) {
            (Qualifiers::Is(a), Qualifiers::Is(b)) => a == b,
            (Qualifiers::All, _) | (_, Qualifiers::All) => true,
        };
        self.family == other.family
            && qualifiers
            && self.time.from <= other.time.to
            && other.time.from <= self.time.to
            && some(self)
            && some(other)
    }
}

/// The cells that a read returns of each row: those that any of `columns` selects.
///
/// No cell may be selected twice. Overlapping entries for one column are an
/// [`InvalidRequest`](crate::Error::InvalidRequest).
///
/// ```
/// use bigtable::{Family, Selection, TimeRange, Timestamp};
/// let s = Timestamp::new(7).unwrap();
/// let get = Selection::default()
///     .column(Family::from_static("lock"), "bal", TimeRange::up_to(s), u32::MAX)
///     .column(Family::from_static("write"), "bal", TimeRange::up_to(s), 1);
/// assert_eq!(get.columns.len(), 2);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The columns, in any order.
    pub columns: Vec<ColumnSelect>,
    /// The snapshot timestamp of the read. It has two effects:
    /// * The read waits for one-step commits in flight whose timestamp may be at or below it
    ///   ([`Store::commit_rows`](crate::Store::commit_rows)).
    /// * The read fails with [`TooOld`](crate::Error::TooOld) if it is below the store's
    ///   floor. The comparison is part of the same atomic step as the read.
    pub above: Option<Timestamp>,
}

impl Selection {
    /// Adds one column.
    #[must_use]
    pub fn column(
        mut self,
        family: Family,
        qualifier: impl Into<Bytes>,
        time: TimeRange,
        versions_max: u32,
    ) -> Self {
        let qualifiers = Qualifiers::Is(qualifier.into());
        self.columns.push(ColumnSelect { family, qualifiers, time, versions_max });
        self
    }

    /// Adds all columns of a family.
    #[must_use]
    pub fn family(mut self, family: Family, time: TimeRange, versions_max: u32) -> Self {
        let qualifiers = Qualifiers::All;
        self.columns.push(ColumnSelect { family, qualifiers, time, versions_max });
        self
    }

    /// Sets the snapshot timestamp, which must not be below the store's floor.
    #[must_use]
    pub fn above(mut self, ts: Timestamp) -> Self {
        self.above = Some(ts);
        self
    }

    /// Checks that the table has the families, and that no cell is selected twice.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] with the family or the column.
    pub fn check(&self, schema: &TableSchema) -> Result<()> {
        for column in &self.columns {
            schema.check_family(&column.family)?;
        }
        let twice = match self.columns.len() {
            0 | 1 => None,
            // Comparing all pairs allocates nothing, and most selections are this short.
            2..=PAIRWISE_MAX => self.first_of_a_pair(),
            _ => self.first_overlap(),
        };
        let Some(entry) = twice else { return Ok(()) };
        Err(Error::invalid(format!(
            "the selection names cells of {}:{} twice",
            entry.family,
            match &entry.qualifiers {
                Qualifiers::All => "*".to_owned(),
                Qualifiers::Is(qualifier) => RowKey::from(qualifier.clone()).to_string(),
            }
        )))
    }

    fn first_of_a_pair(&self) -> Option<&ColumnSelect> {
        let mut entries = self.columns.iter().enumerate();
        entries.find_map(|(at, a)| self.columns[..at].iter().any(|b| a.meets(b)).then_some(a))
    }

    /// Finds an entry that overlaps another. Sorted, only neighbours can overlap, and entries
    /// for a whole family. Such an entry has the key `None`, which sorts before each of the
    /// family's qualifiers.
    fn first_overlap(&self) -> Option<&ColumnSelect> {
        let mut entries: Vec<_> =
            self.columns.iter().filter(|c| c.time.from <= c.time.to).collect();
        let key = |c: &ColumnSelect| match &c.qualifiers {
            Qualifiers::All => None,
            Qualifiers::Is(qualifier) => Some(qualifier.clone()),
        };
        entries.sort_by_cached_key(|c| (c.family.clone(), key(c), c.time.from));
        let mut whole: Vec<&ColumnSelect> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let before = index.checked_sub(1).map(|i| entries[i]);
            whole.retain(|w| w.family == entry.family);
            if before.iter().chain(&whole).any(|other| other.meets(entry)) {
                return Some(entry);
            }
            if entry.qualifiers == Qualifiers::All {
                whole.push(entry);
            }
        }
        None
    }
}

/// A range of rows.
///
/// ```
/// use bigtable::{RowKey, RowRange};
/// let range = RowRange::prefix("http:");
/// assert!(range.contains(&RowKey::from("http://a/")));
/// assert!(!range.contains(&RowKey::from("https://a/")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRange {
    /// The first bound.
    pub start: Bound<RowKey>,
    /// The last bound.
    pub end: Bound<RowKey>,
}

impl RowRange {
    /// Every row.
    pub const fn all() -> Self {
        RowRange { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// Exactly one row.
    pub fn row(key: impl Into<RowKey>) -> Self {
        let key = key.into();
        RowRange { start: Bound::Included(key.clone()), end: Bound::Included(key) }
    }

    /// The rows from `start` (included) to `end` (excluded).
    pub fn between(start: impl Into<RowKey>, end: impl Into<RowKey>) -> Self {
        RowRange { start: Bound::Included(start.into()), end: Bound::Excluded(end.into()) }
    }

    /// Every row whose key begins with `prefix`.
    pub fn prefix(prefix: impl Into<RowKey>) -> Self {
        let prefix = prefix.into();
        let mut end = prefix.as_bytes().to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                break;
            }
        }
        let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end.into()) };
        let start = Bound::Included(prefix);
        RowRange { start, end }
    }

    /// Whether the range contains the row.
    pub fn contains(&self, key: &RowKey) -> bool {
        use std::ops::RangeBounds;
        (self.start.as_ref(), self.end.as_ref()).contains(key)
    }

    /// The same rows, with bounds no longer than a row key may be. For implementations of
    /// [`Table`](crate::Table).
    ///
    /// ```
    /// use bigtable::{ROW_KEY_BYTES_MAX, RowKey, RowRange};
    /// let longest = RowKey::from(vec![b'r'; ROW_KEY_BYTES_MAX]);
    /// let beyond = RowKey::from(vec![b'r'; ROW_KEY_BYTES_MAX + 1]);
    /// assert!(RowRange::between("a", beyond).clipped().contains(&longest));
    /// ```
    #[must_use]
    pub fn clipped(&self) -> Self {
        let clip = |bound: &Bound<RowKey>, start: bool| match bound {
            Bound::Included(key) | Bound::Excluded(key)
                if key.as_bytes().len() > ROW_KEY_BYTES_MAX =>
            {
                // No valid row key sorts between the cut key and the whole key.
                let cut = RowKey::from(&key.as_bytes()[..ROW_KEY_BYTES_MAX]);
                if start { Bound::Excluded(cut) } else { Bound::Included(cut) }
            }
            bound => bound.clone(),
        };
        RowRange { start: clip(&self.start, true), end: clip(&self.end, false) }
    }

    /// Whether no row can lie in the range.
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start), Bound::Excluded(end))
            | (Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
        }
    }

    /// The rest of the range after `key`.
    #[must_use]
    pub fn after(&self, key: RowKey) -> Self {
        RowRange { start: Bound::Excluded(key), end: self.end.clone() }
    }
}

/// The bounds of one page of a scan. The page ends at the bound that it reaches first, always
/// between two rows. A page holds at least one row if there is one.
///
/// ```
/// let page = bigtable::PageLimit { rows_max: 10, ..Default::default() };
/// assert!(page.bytes_max > 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// The most rows.
    pub rows_max: usize,
    /// The bytes of keys and values. The row that reaches this bound is the page's last.
    pub bytes_max: usize,
}

impl PageLimit {
    /// Whether a page of this many rows and bytes is full.
    pub const fn is_reached(&self, rows: usize, bytes: usize) -> bool {
        rows > 0 && (rows >= self.rows_max || bytes >= self.bytes_max)
    }
}

impl Default for PageLimit {
    fn default() -> Self {
        PageLimit { rows_max: 1024, bytes_max: 4 * 1024 * 1024 }
    }
}

/// One page of a scan: rows in key order, each read atomically.
///
/// An empty page is not necessarily the last.
///
/// ```
/// let last = bigtable::Page { rows: vec![], resume: None };
/// assert!(last.resume.is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Rows with at least one selected cell.
    pub rows: Vec<Row>,
    /// The range of the next page. `None` if no rows are left.
    pub resume: Option<RowRange>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every column of two families, with either of two qualifiers or all of them, and every
    /// time range within 0..3.
    fn columns() -> Vec<ColumnSelect> {
        let mut columns = Vec::new();
        for n in 0..2 * 3 * 9_u64 {
            let time = |n: u64| Timestamp::new(n % 3).unwrap();
            columns.push(ColumnSelect {
                family: Family::from_static(if n % 2 == 0 { "a" } else { "b" }),
                qualifiers: match n / 2 % 3 {
                    0 => Qualifiers::All,
                    1 => Qualifiers::Is(Bytes::from_static(b"x")),
                    _ => Qualifiers::Is(Bytes::from_static(b"y")),
                },
                time: TimeRange { from: time(n / 6), to: time(n / 18) },
                versions_max: 1,
            });
        }
        columns
    }

    #[test]
    fn pairs_and_neighbours_find_the_same() {
        let columns = columns();
        let (mut found, mut all) = (0, 0);
        for a in &columns {
            for b in &columns {
                for c in &columns {
                    let columns = vec![a.clone(), b.clone(), c.clone()];
                    let select = Selection { columns, above: None };
                    let pairs = select.first_of_a_pair().is_some();
                    assert_eq!(pairs, select.first_overlap().is_some(), "{select:?}");
                    (found, all) = (found + usize::from(pairs), all + 1);
                }
            }
        }
        assert!(found > 0 && found < all, "{found} of {all}");
    }
}
