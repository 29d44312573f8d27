//! Reads one page of a scan: the rows of several locality groups, merged.
//!
//! The page first copies its cells of the in-memory groups, then takes a snapshot. Then it
//! merges the copies with cursors over the groups on disk. The end of the page is not known
//! when the copies are made. So each copy stops where a page of that group alone would end.
//! The rows behind the end of the shortest copy are not all known, so the page ends there,
//! too.

use std::collections::VecDeque;
use std::ops::Bound;

use bigtable::{Cell, ColumnSelect, Page, PageLimit, Result, Row, RowKey};
use bigtable::{RowRange, Selection};
use fjall::Slice;

use crate::engine::Engine;
use crate::failure::fault::Fault;
use crate::layout::chosen::Chosen;
use crate::layout::group::Group;
use crate::layout::key::{Key, Shape, row_of};
use crate::layout::memory::MemoryGroup;
use crate::layout::table_info::TableInfo;
use crate::read::cells::{Cells, Entries, Stored};
use crate::read::cursor::Cursor;
use crate::read::seen::Seen;

/// The most entries that one page examines, on disk or in memory. The bound returns control to
/// the caller even if the scan selects almost nothing.
const PAGE_ENTRIES_MAX: usize = 64 * 1024;

/// A scan of an in-memory group was in vain if it examined more than so many cells for each row
/// that it found.
const IN_VAIN: usize = 16;
/// A scan that examines fewer cells is never in vain.
const EXAMINED_MIN: usize = 256;

/// The rows of one group in a page.
enum Part<'a> {
    Copied(VecDeque<CopiedRow>),
    OnDisk(Box<Cursor<'a>>),
}

/// The cells of a row in an in-memory group.
struct CopiedRow {
    row: Key,
    cells: Vec<Cell>,
}

impl Part<'_> {
    fn row(&self) -> Option<&[u8]> {
        match self {
            Part::Copied(rows) => rows.front().map(|copied| &*copied.row),
            Part::OnDisk(cursor) => cursor.row(),
        }
    }

    fn take(&mut self, row: &Key, cells: &mut Vec<Cell>) -> std::result::Result<(), Fault> {
        match self {
            Part::Copied(rows) => {
                if rows.front().is_some_and(|copied| copied.row == *row) {
                    cells.extend(rows.pop_front().into_iter().flat_map(|copied| copied.cells));
                }
                Ok(())
            }
            Part::OnDisk(cursor) => cursor.take(row, cells),
        }
    }

    fn seen(&mut self) -> Option<Box<Seen>> {
        match self {
            Part::Copied(_) => None,
            Part::OnDisk(cursor) => cursor.seen(),
        }
    }

    fn examined(&self) -> usize {
        match self {
            Part::Copied(_) => 0,
            Part::OnDisk(cursor) => cursor.examined,
        }
    }
}

/// The selected columns of one group.
struct Wanted<'a> {
    group: &'a Group,
    columns: Vec<Chosen<'a>>,
}

pub(crate) fn scan(
    engine: &Engine,
    table: &TableInfo,
    range: &RowRange,
    select: &Selection,
    limit: PageLimit,
) -> Result<Page> {
    engine.check_usable()?;
    let page = page(engine, table, range, select, limit).map_err(|e| engine.read_error(&e))?;
    engine.check_floor(select.above)?;
    Ok(page)
}

fn page(
    engine: &Engine,
    table: &TableInfo,
    range: &RowRange,
    select: &Selection,
    limit: PageLimit,
) -> std::result::Result<Page, Fault> {
    let (from, end) = bounds(table.id, range);
    if range.is_empty() || from >= end {
        return Ok(Page { rows: Vec::new(), resume: None });
    }
    let snapshot;
    let mut parts = Vec::new();
    // The last row that all copies cover.
    let mut reach: Option<Key> = None;
    let mut on_disk = Vec::new();
    {
        let mut memory = None;
        for wanted in wanted(table, select) {
            let Some(position) = wanted.group.memory else {
                on_disk.push(wanted);
                continue;
            };
            let group = memory.get_or_insert_with(|| engine.memory()).group(position);
            if group.has_none(table.id, &wanted.columns) {
                continue;
            }
            let Some(copied) = in_memory(group, table.id, &wanted.columns, (&from, &end), limit)
            else {
                on_disk.push(wanted);
                continue;
            };
            let (rows, ends) = copied?;
            reach = match (reach, ends) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            parts.push(Part::Copied(rows));
        }
    }
    snapshot = engine.snapshots.get(&engine.db)?;
    for Wanted { group, columns } in &on_disk {
        let mut cursor = Cursor::open(Stored::on_disk(group, &snapshot), &from, &end, columns)?;
        cursor.keep(table.id, snapshot.batches);
        parts.push(Part::OnDisk(Box::new(cursor)));
    }
    let page = merge(&mut parts, reach, range, limit)?;
    if let Some(seen) = parts.iter_mut().find_map(Part::seen) {
        engine.keep_seen(*seen);
    }
    Ok(page)
}

/// The last row of the range that has a cell.
pub(crate) fn last_row(
    engine: &Engine,
    table: &TableInfo,
    range: &RowRange,
) -> Result<Option<RowKey>> {
    engine.check_usable()?;
    let (from, end) = bounds(table.id, range);
    if range.is_empty() || from >= end {
        return Ok(None);
    }
    let mut last = None;
    let mut see = |key: Option<Slice>| -> std::result::Result<(), Fault> {
        let Some(key) = key else { return Ok(()) };
        let shape = Shape::of(&key).ok_or(Fault::Damaged("a key is malformed"))?;
        let row = Key::from_prefix(shape.row_prefix(&key));
        last = last.take().max(Some(row));
        Ok(())
    };
    let bounds = || (Bound::Included(&*from), Bound::Excluded(&*end));
    let mut look = || -> std::result::Result<(), Fault> {
        let mut on_disk = Vec::new();
        {
            let memory = engine.memory();
            for group in &table.groups {
                match Stored::in_memory(group, &memory) {
                    Some(held) => see(held.last_key(bounds())?)?,
                    None => on_disk.push(group),
                }
            }
        }
        let snapshot = engine.snapshots.get(&engine.db)?;
        for group in on_disk {
            see(Stored::on_disk(group, &snapshot).last_key(bounds())?)?;
        }
        Ok(())
    };
    look().map_err(|fault| engine.read_error(&fault))?;
    Ok(last.map(|row: Key| RowKey::from(&*row_of(&row))))
}

/// The selected columns, by group.
fn wanted<'a>(table: &'a TableInfo, select: &'a Selection) -> Vec<Wanted<'a>> {
    let mut wanted = Vec::new();
    for (position, group) in table.groups.iter().enumerate() {
        let of_group = |c: &&ColumnSelect| table.family(&c.family).group == position;
        let columns = select.columns.iter().filter(of_group).map(|c| table.chosen(c));
        let columns: Vec<_> = columns.collect();
        if !columns.is_empty() {
            wanted.push(Wanted { group, columns });
        }
    }
    wanted
}

/// Copies rows of an in-memory group. `None` unless the map holds all of its cells. After a scan in
/// vain, the group lists the cells of the columns.
fn in_memory(
    group: &MemoryGroup,
    table: u32,
    columns: &[Chosen<'_>],
    (from, end): (&Key, &Key),
    limit: PageLimit,
) -> Option<std::result::Result<CopiedRows, Fault>> {
    let map = group.whole()?;
    let bounds = (Bound::Included(&**from), Bound::Excluded(&**end));
    if let Some(lists) = group.lists()
        && let Some(listed) = group.listed(&lists, table, columns, bounds)
    {
        let cursor = Cursor::over(Entries::Listed(Box::new(listed), map), columns);
        return Some(cursor.and_then(|mut cursor| copy(&mut cursor, limit)));
    }
    let all = || {
        let held = Stored::Versions(Cells::Map(map));
        let mut cursor = Cursor::open(held, from, end, columns)?;
        let copied = copy(&mut cursor, limit)?;
        if cursor.examined > EXAMINED_MIN && cursor.examined > IN_VAIN * copied.0.len() {
            group.list(table, columns);
        }
        Ok(copied)
    };
    Some(all())
}

/// Rows of an in-memory group, and the last of them if more rows follow it.
type CopiedRows = (VecDeque<CopiedRow>, Option<Key>);

/// Copies rows until a page is full.
fn copy(cursor: &mut Cursor<'_>, limit: PageLimit) -> std::result::Result<CopiedRows, Fault> {
    let mut rows = VecDeque::new();
    let mut bytes = 0;
    while let Some(row) = cursor.row().map(Key::from_prefix) {
        let mut cells = Vec::new();
        cursor.take(&row, &mut cells)?;
        if !cells.is_empty() {
            bytes += row.len() + cells.iter().map(|cell| cell.value.len()).sum::<usize>();
            rows.push_back(CopiedRow { row: row.clone(), cells });
        }
        if limit.is_reached(rows.len(), bytes) || cursor.examined >= PAGE_ENTRIES_MAX {
            return Ok((rows, cursor.row().is_some().then_some(row)));
        }
    }
    Ok((rows, None))
}

fn merge(
    parts: &mut [Part<'_>],
    reach: Option<Key>,
    range: &RowRange,
    limit: PageLimit,
) -> std::result::Result<Page, Fault> {
    let mut rows = Vec::new();
    let mut bytes = 0;
    let after = |row: &Key| range.after(RowKey::from(&*row_of(row)));
    loop {
        let next = parts.iter().filter_map(Part::row).min().map(Key::from_prefix);
        let Some(row) = next.filter(|row| reach.as_ref().is_none_or(|reach| row <= reach)) else {
            return Ok(Page { rows, resume: reach.as_ref().map(after) });
        };
        let mut cells = Vec::new();
        for part in &mut *parts {
            part.take(&row, &mut cells)?;
        }
        if !cells.is_empty() {
            rows.push(Row::new(RowKey::from(&*row_of(&row)), cells));
            bytes += rows.last().map_or(0, Row::bytes);
        }
        let examined: usize = parts.iter().map(Part::examined).sum();
        if limit.is_reached(rows.len(), bytes) || examined >= PAGE_ENTRIES_MAX {
            let more = reach.is_some() || parts.iter().any(|part| part.row().is_some());
            return Ok(Page { rows, resume: more.then(|| after(&row)) });
        }
    }
}

/// Returns the keys that enclose the range's rows: the first is included, the last is
/// excluded.
pub(crate) fn bounds(table: u32, range: &RowRange) -> (Key, Key) {
    let row = |key: &RowKey| Key::row(table, key.as_bytes());
    let RowRange { start, end } = range.clipped();
    let from = match start {
        Bound::Unbounded => Key::table(table),
        Bound::Included(key) => row(&key),
        Bound::Excluded(key) => row(&key).end(),
    };
    let end = match end {
        Bound::Unbounded => Key::table(table).end(),
        Bound::Included(key) => row(&key).end(),
        Bound::Excluded(key) => row(&key),
    };
    (from, end)
}
