//! Cursors over the rows of one locality group, and the reading of a single row.

use std::ops::{Bound, ControlFlow};

use bigtable::{Bytes, Cell, ColumnSelect, Qualifiers};
use fjall::Slice;
use smallvec::SmallVec;

use crate::column::{History, Newest, Version, visit, visit_newest};
use crate::fault::Fault;
use crate::group::{Entries, Stored};
use crate::key::{Key, Parts};

/// Adds the cells that `column` selects of one row.
pub(crate) fn read_column(
    stored: Stored<'_>,
    table: u32,
    row: &[u8],
    column: &ColumnSelect,
    cells: &mut Vec<Cell>,
) -> Result<(), Fault> {
    let ColumnSelect { family, qualifiers, time, versions_max } = column;
    match qualifiers {
        Qualifiers::Is(qualifier) => {
            let key = Key::column(table, row, family.as_str(), qualifier);
            visit(stored, &key, *time, *versions_max, |version| {
                cells.push(cell(column, qualifier.clone(), &version));
                ControlFlow::Continue(())
            })
        }
        Qualifiers::All => {
            let from = Key::family(table, row, family.as_str());
            let mut cursor = Cursor::open(stored, &from, &from.end(), &[column])?;
            match cursor.row() {
                Some(row) => cursor.take(&Key::from_prefix(row), cells),
                None => Ok(()),
            }
        }
    }
}

fn cell(column: &ColumnSelect, qualifier: Bytes, version: &Version<'_>) -> Cell {
    Cell {
        family: column.family.clone(),
        qualifier,
        timestamp: version.timestamp,
        value: version.to_bytes(),
    }
}

/// A cursor over the rows of one group, that picks the selected cells of each.
pub(crate) struct Cursor<'a> {
    walk: Walk<'a>,
    entries: Entries<'a>,
    /// The entry the cursor stands before; it has a value if it is selected.
    ahead: Option<Ahead>,
    /// Entries looked at so far.
    pub(crate) examined: usize,
}

struct Ahead {
    key: Slice,
    row_len: usize,
    value: Option<Slice>,
}

/// What to do with the entries of a group.
enum Walk<'a> {
    Versions(Filter<'a>),
    NewestApart { columns: Columns<'a>, history: History<'a> },
}

impl<'a> Cursor<'a> {
    /// A cursor over the rows between two keys; `from` must not lie above `end`.
    pub(crate) fn open(
        stored: Stored<'a>,
        from: &Key,
        end: &Key,
        columns: &[&'a ColumnSelect],
    ) -> Result<Self, Fault> {
        let bounds = (Bound::Included(&**from), Bound::Excluded(&**end));
        let columns = Columns::new(columns);
        let (cells, walk) = match stored {
            Stored::Versions(cells) => (cells, Walk::Versions(Filter::new(columns))),
            Stored::NewestApart(newest, history) => {
                let history = History::new(history, end.clone());
                (newest, Walk::NewestApart { columns, history })
            }
        };
        let entries = cells.range(bounds.0, bounds.1);
        let mut cursor = Cursor { walk, entries, ahead: None, examined: 0 };
        cursor.step()?;
        Ok(cursor)
    }

    /// The prefix of the row that the cursor stands before.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        self.ahead.as_ref().map(|ahead| &ahead.key[..ahead.row_len])
    }

    /// Adds the selected cells of the row, if the cursor stands before it, and moves behind it.
    pub(crate) fn take(&mut self, row: &Key, cells: &mut Vec<Cell>) -> Result<(), Fault> {
        while self.row() == Some(&**row) {
            let Some(Ahead { key, value, .. }) = self.ahead.take() else { break };
            if let Some(value) = value {
                self.pick(&key, value, cells)?;
            }
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Fault> {
        let walk = &mut self.walk;
        let entry = self.entries.next(|key| match walk {
            Walk::Versions(filter) => filter.wants(key),
            Walk::NewestApart { .. } => true,
        })?;
        self.ahead = match entry {
            None => None,
            Some((key, value)) => {
                self.examined += 1;
                let row_len = parts(&key)?.row_prefix.len();
                Some(Ahead { key, row_len, value })
            }
        };
        Ok(())
    }

    fn pick(&mut self, key: &[u8], value: Slice, cells: &mut Vec<Cell>) -> Result<(), Fault> {
        let parts = parts(key)?;
        let qualifier = || Bytes::copy_from_slice(&parts.qualifier());
        match &mut self.walk {
            Walk::Versions(filter) => {
                let timestamp = parts.timestamp;
                let timestamp = timestamp.ok_or(Fault::Damaged("a version without its time"))?;
                let family = &filter.columns.0[filter.matched].family;
                let version = Version::whole(timestamp, &value);
                cells.push(Cell {
                    family: family.clone(),
                    qualifier: qualifier(),
                    timestamp,
                    value: version.to_bytes(),
                });
                Ok(())
            }
            Walk::NewestApart { columns, history } => {
                let newest = Newest::decode(value)?;
                let key = Key::from_prefix(key);
                for column in columns.of(&parts) {
                    let name = qualifier();
                    let mut see = |version: Version<'_>| {
                        cells.push(cell(column, name.clone(), &version));
                        ControlFlow::Continue(())
                    };
                    let left = visit_newest(&newest, column.time, column.versions_max, &mut see);
                    if left > 0 {
                        history.visit(&key, column.time, left, see)?;
                    }
                }
                Ok(())
            }
        }
    }
}

fn parts(key: &[u8]) -> Result<Parts<'_>, Fault> {
    Parts::of(key).ok_or(Fault::Damaged("a key that is none"))
}

/// What is selected of a group, newest time ranges first.
struct Columns<'a>(SmallVec<[&'a ColumnSelect; 4]>);

impl<'a> Columns<'a> {
    fn new(columns: &[&'a ColumnSelect]) -> Self {
        let mut columns: SmallVec<[&ColumnSelect; 4]> = SmallVec::from_slice(columns);
        // An empty selection is left out here, so that the rest may rely on `from <= to`.
        columns.retain(|column| column.versions_max > 0 && column.time.from <= column.time.to);
        columns.sort_by_key(|column| std::cmp::Reverse(column.time.to));
        Columns(columns)
    }

    /// The selections that name this column.
    fn of<'b>(&'b self, parts: &'b Parts<'_>) -> impl Iterator<Item = &'a ColumnSelect> + 'b {
        self.0.iter().copied().filter(|column| names(column, parts))
    }
}

fn names(column: &ColumnSelect, parts: &Parts<'_>) -> bool {
    column.family.as_str().as_bytes() == parts.family
        && match &column.qualifiers {
            Qualifiers::All => true,
            Qualifiers::Is(qualifier) => parts.has_qualifier(qualifier),
        }
}

/// Decides, entry by entry, which versions are selected; so values that nobody wants stay on disk.
struct Filter<'a> {
    columns: Columns<'a>,
    /// How many versions of the column at hand each selection has taken.
    taken: SmallVec<[u32; 4]>,
    /// The prefix of the column at hand.
    column: SmallVec<[u8; 128]>,
    /// Which selection wanted the last wanted entry.
    matched: usize,
}

impl<'a> Filter<'a> {
    fn new(columns: Columns<'a>) -> Self {
        let taken = SmallVec::from_elem(0, columns.0.len());
        Filter { columns, taken, column: SmallVec::new(), matched: 0 }
    }

    fn wants(&mut self, key: &[u8]) -> bool {
        // A key that is none is "wanted", so that it is looked at again and reported.
        let Some(parts) = Parts::of(key) else { return true };
        let Some(timestamp) = parts.timestamp else { return true };
        if *self.column != *parts.column_prefix {
            self.column.clear();
            self.column.extend_from_slice(parts.column_prefix);
            self.taken.fill(0);
        }
        for (index, column) in self.columns.0.iter().enumerate() {
            if column.time.contains(timestamp) && names(column, &parts) {
                if self.taken[index] == column.versions_max {
                    return false;
                }
                self.taken[index] += 1;
                self.matched = index;
                return true;
            }
        }
        false
    }
}
