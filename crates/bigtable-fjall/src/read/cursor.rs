//! Cursors over the rows of one locality group, and the reading of its cells in a single row.

use std::ops::{Bound, ControlFlow};

use bigtable::{Bytes, Cell, ColumnSelect, Qualifiers};
use fjall::Slice;
use smallvec::SmallVec;

use crate::failure::fault::Fault;
use crate::layout::chosen::Chosen;
use crate::layout::key::{Key, Shape};
use crate::layout::pack::{Pack, Version};
use crate::read::cells::{Entries, Stored};
use crate::read::column::visit;
use crate::read::history::History;

/// Adds the cells that `column` selects of one row.
pub(crate) fn read_column(
    stored: Stored<'_>,
    table: u32,
    row: &[u8],
    column: Chosen<'_>,
    cells: &mut Vec<Cell>,
) -> Result<(), Fault> {
    let ColumnSelect { qualifiers, time, versions_max, .. } = column.select;
    match qualifiers {
        Qualifiers::Is(qualifier) => {
            let key = Key::column(table, row, column.family, qualifier);
            visit(stored, &key, *time, *versions_max, |version| {
                cells.push(cell(column.select, qualifier.clone(), &version));
                ControlFlow::Continue(())
            })
        }
        Qualifiers::All => {
            let from = Key::family(table, row, column.family);
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
    shape: Shape,
    value: Option<Slice>,
}

/// What to do with the entries of a group.
enum Walk<'a> {
    Versions(Filter<'a>),
    NewestFirst { columns: Columns<'a>, history: History<'a> },
}

impl<'a> Cursor<'a> {
    /// A cursor over the rows between two keys; `from` must not lie above `end`.
    pub(crate) fn open(
        stored: Stored<'a>,
        from: &Key,
        end: &Key,
        columns: &[Chosen<'a>],
    ) -> Result<Self, Fault> {
        let bounds = (Bound::Included(&**from), Bound::Excluded(&**end));
        let columns = Columns::new(columns);
        let (cells, walk) = match stored {
            Stored::Versions(cells) => (cells, Walk::Versions(Filter::new(columns))),
            Stored::NewestFirst(newest, history) => {
                let history = History::new(history, end.clone());
                (newest, Walk::NewestFirst { columns, history })
            }
        };
        let entries = cells.range(bounds.0, bounds.1);
        let mut cursor = Cursor { walk, entries, ahead: None, examined: 0 };
        cursor.step()?;
        Ok(cursor)
    }

    /// The prefix of the row that the cursor stands before.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        self.ahead.as_ref().map(|ahead| ahead.shape.row_prefix(&ahead.key))
    }

    /// Adds the selected cells of the row, if the cursor stands before it, and moves behind it.
    pub(crate) fn take(&mut self, row: &Key, cells: &mut Vec<Cell>) -> Result<(), Fault> {
        while self.row() == Some(&**row) {
            let Some(Ahead { key, shape, value }) = self.ahead.take() else { break };
            if let Some(value) = value {
                self.pick(&key, shape, value, cells)?;
            }
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Fault> {
        let walk = &mut self.walk;
        let mut shape = None;
        let entry = self.entries.next(|key| {
            shape = Shape::of(key);
            match (&mut *walk, shape) {
                (Walk::Versions(filter), Some(shape)) => filter.wants(key, shape),
                (Walk::NewestFirst { .. }, _) | (_, None) => true,
            }
        })?;
        self.ahead = match entry {
            None => None,
            Some((key, value)) => {
                self.examined += 1;
                let shape = shape.ok_or(Fault::Damaged("a key that is none"))?;
                Some(Ahead { key, shape, value })
            }
        };
        Ok(())
    }

    fn pick(
        &mut self,
        key: &[u8],
        shape: Shape,
        value: Slice,
        cells: &mut Vec<Cell>,
    ) -> Result<(), Fault> {
        match &mut self.walk {
            Walk::Versions(filter) => {
                let timestamp = shape.timestamp;
                let timestamp = timestamp.ok_or(Fault::Damaged("a version without its time"))?;
                let chosen = filter.columns.0[filter.matched];
                let version = Version::whole(timestamp, &value);
                cells.push(cell(chosen.select, chosen.qualifier(key, shape), &version));
                Ok(())
            }
            Walk::NewestFirst { columns, history } => {
                let newest = Pack::decode(value)?;
                for chosen in columns.0.iter().filter(|chosen| chosen.names(key, shape)) {
                    let (select, qualifier) = (chosen.select, chosen.qualifier(key, shape));
                    let mut see = |version: Version<'_>| {
                        cells.push(cell(select, qualifier.clone(), &version));
                        ControlFlow::Continue(())
                    };
                    let left = newest.visit(select.time, select.versions_max, &mut see)?;
                    if left > 0 && newest.older() {
                        history.visit(&Key::from_prefix(key), select.time, left, see)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// What is selected of a group, newest time ranges first.
struct Columns<'a>(SmallVec<[Chosen<'a>; 4]>);

impl<'a> Columns<'a> {
    fn new(columns: &[Chosen<'a>]) -> Self {
        let mut columns: SmallVec<[Chosen<'_>; 4]> = SmallVec::from_slice(columns);
        // An empty selection is left out here, so that the rest may rely on `from <= to`.
        columns.retain(|Chosen { select, .. }| {
            select.versions_max > 0 && select.time.from <= select.time.to
        });
        columns.sort_by_key(|column| std::cmp::Reverse(column.select.time.to));
        Columns(columns)
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

    fn wants(&mut self, key: &[u8], shape: Shape) -> bool {
        // A version without its time is "wanted", so that it is looked at again and reported.
        let Some(timestamp) = shape.timestamp else { return true };
        if *self.column != *shape.column_prefix(key) {
            self.column.clear();
            self.column.extend_from_slice(shape.column_prefix(key));
            self.taken.fill(0);
        }
        for (index, column) in self.columns.0.iter().enumerate() {
            if column.select.time.contains(timestamp) && column.names(key, shape) {
                if self.taken[index] == column.select.versions_max {
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
