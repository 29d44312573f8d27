//! Provides cursors over the rows of one locality group, and reads the group's cells of a
//! single row.

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
use crate::read::seen::{Seen, is_kept};

/// Adds the cells of one row that `column` selects.
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

pub(crate) fn cell(column: &ColumnSelect, qualifier: Bytes, version: &Version<'_>) -> Cell {
    Cell {
        family: column.family.clone(),
        qualifier,
        timestamp: version.timestamp,
        value: version.to_bytes(),
    }
}

/// A cursor over the rows of one group. It picks the selected cells of each row.
pub(crate) struct Cursor<'a> {
    walk: Walk<'a>,
    entries: Entries<'a>,
    /// The next entry of the cursor. It has a value only if it is selected.
    ahead: Option<Ahead>,
    /// The number of entries examined so far.
    pub(crate) examined: usize,
}

struct Ahead {
    key: Slice,
    shape: Shape,
    value: Option<Slice>,
}

/// The treatment of a group's entries, by layout.
enum Walk<'a> {
    Versions(Filter<'a>),
    NewestFirst { columns: Columns<'a>, history: History<'a>, seen: Option<Box<Seen>> },
}

impl<'a> Cursor<'a> {
    /// Opens a cursor over the rows between two keys. `from` must not be above `end`.
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
                (newest, Walk::NewestFirst { columns, history, seen: None })
            }
        };
        Cursor::begin(walk, cells.range(bounds.0, bounds.1))
    }

    /// Opens a cursor over versions that were listed before.
    pub(crate) fn over(entries: Entries<'a>, columns: &[Chosen<'a>]) -> Result<Self, Fault> {
        Cursor::begin(Walk::Versions(Filter::new(Columns::new(columns))), entries)
    }

    fn begin(walk: Walk<'a>, entries: Entries<'a>) -> Result<Self, Fault> {
        let mut cursor = Cursor { walk, entries, ahead: None, examined: 0 };
        cursor.step()?;
        Ok(cursor)
    }

    /// Keeps the packs that the cursor reads of a table's columns with several versions. The state
    /// is that after `batches` batches.
    pub(crate) fn keep(&mut self, table: u32, batches: u64) {
        if let Walk::NewestFirst { columns, seen, .. } = &mut self.walk
            && let [Chosen { select, .. }] = &*columns.0
            && is_kept(select)
        {
            *seen = Some(Box::new(Seen::new(table, batches, select.time.to)));
        }
    }

    /// Takes what was kept.
    pub(crate) fn seen(&mut self) -> Option<Box<Seen>> {
        match &mut self.walk {
            Walk::NewestFirst { seen, .. } => seen.take(),
            Walk::Versions(_) => None,
        }
    }

    /// The prefix of the cursor's next row.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        self.ahead.as_ref().map(|ahead| ahead.shape.row_prefix(&ahead.key))
    }

    /// If `row` is the next row, adds its selected cells and moves past it.
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
                let shape = shape.ok_or(Fault::Damaged("a key is malformed"))?;
                Some(Ahead { key, shape, value })
            }
        };
        Ok(())
    }

    fn pick(
        &mut self,
        key: &Slice,
        shape: Shape,
        value: Slice,
        cells: &mut Vec<Cell>,
    ) -> Result<(), Fault> {
        match &mut self.walk {
            Walk::Versions(filter) => {
                let timestamp = shape.timestamp;
                let timestamp = timestamp.ok_or(Fault::Damaged("a version has no timestamp"))?;
                let chosen = filter.columns.0[filter.matched];
                let version = Version::whole(timestamp, &value);
                cells.push(cell(chosen.select, chosen.qualifier(key, shape), &version));
                Ok(())
            }
            Walk::NewestFirst { columns, history, seen } => {
                let newest = Pack::decode(value)?;
                for chosen in columns.0.iter().filter(|chosen| chosen.names(key, shape)) {
                    let (select, qualifier) = (chosen.select, chosen.qualifier(key, shape));
                    let mut see = |version: Version<'_>| {
                        cells.push(cell(select, qualifier.clone(), &version));
                        ControlFlow::Continue(())
                    };
                    let mut left = newest.visit(select.time, select.versions_max, &mut see)?;
                    let mut packs = Vec::new();
                    if left > 0 && newest.older() {
                        let packs = seen.is_some().then_some(&mut packs);
                        left =
                            history.visit(&Key::from_prefix(key), select.time, left, packs, see)?;
                    }
                    // With no version left to pass on, not all of the history was read.
                    if let Some(seen) = seen
                        && left > 0
                        && newest.has_several()?
                    {
                        seen.add(key, newest.stored(), packs);
                    }
                }
                Ok(())
            }
        }
    }
}

/// The selected columns of a group, ordered by the end of their time ranges, newest first.
struct Columns<'a>(SmallVec<[Chosen<'a>; 4]>);

impl<'a> Columns<'a> {
    fn new(columns: &[Chosen<'a>]) -> Self {
        let mut columns: SmallVec<[Chosen<'_>; 4]> = SmallVec::from_slice(columns);
        // Drop empty selections here, so that other code can rely on `from <= to`.
        columns.retain(|Chosen { select, .. }| {
            select.versions_max > 0 && select.time.from <= select.time.to
        });
        columns.sort_by_key(|column| std::cmp::Reverse(column.select.time.to));
        Columns(columns)
    }
}

/// Decides for each entry whether it is selected, so that the values of other entries stay on
/// disk.
struct Filter<'a> {
    columns: Columns<'a>,
    /// The number of versions of the current column that each selection has taken.
    taken: SmallVec<[u32; 4]>,
    /// The prefix of the current column.
    column: SmallVec<[u8; 128]>,
    /// The index of the selection that matched the last wanted entry.
    matched: usize,
}

impl<'a> Filter<'a> {
    fn new(columns: Columns<'a>) -> Self {
        let taken = SmallVec::from_elem(0, columns.0.len());
        Filter { columns, taken, column: SmallVec::new(), matched: 0 }
    }

    fn wants(&mut self, key: &[u8], shape: Shape) -> bool {
        // Select a key without a timestamp, so that `pick` finds and reports the damage.
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
