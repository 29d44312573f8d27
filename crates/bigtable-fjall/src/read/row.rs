//! Reads a single row: its in-memory cells first, then the rest from the cache or from one
//! snapshot.

use bigtable::{Cell, Result, Row, RowKey, Selection};
use smallvec::SmallVec;

use crate::engine::Engine;
use crate::failure::fault::Fault;
use crate::layout::chosen::Chosen;
use crate::layout::group::Group;
use crate::layout::table_info::TableInfo;
use crate::read::cached;
use crate::read::cells::Stored;
use crate::read::cursor::read_column;

/// Reads the selected cells of a row.
pub(crate) fn read_row(
    engine: &Engine,
    table: &TableInfo,
    row: &RowKey,
    select: &Selection,
) -> Result<Row> {
    engine.check_usable()?;
    let cells = read_cells(engine, table, row, select).map_err(|e| engine.read_error(&e))?;
    engine.check_floor(select.above)?;
    Ok(Row::new(row.clone(), cells))
}

fn read_cells(
    engine: &Engine,
    table: &TableInfo,
    row: &RowKey,
    select: &Selection,
) -> std::result::Result<Vec<Cell>, Fault> {
    let mut cells = Vec::new();
    let mut on_disk: SmallVec<[(&Group, Chosen<'_>); 8]> = SmallVec::new();
    {
        let mut memory = None;
        for column in &select.columns {
            let info = table.family(&column.family);
            let (group, column) = (&*table.groups[info.group], table.chosen(column));
            let held = match group.memory {
                Some(_) => Stored::in_memory(group, memory.get_or_insert_with(|| engine.memory())),
                None => None,
            };
            match held {
                Some(held) if held.is_empty_map() => {}
                Some(held) => read_column(held, table.id, row.as_bytes(), column, &mut cells)?,
                None => on_disk.push((group, column)),
            }
        }
    }
    let at = (table.id, row.as_bytes());
    if !on_disk.is_empty() && !cached::add_cells(engine, at, &on_disk, &mut cells)? {
        let snapshot = engine.snapshots.get(&engine.db)?;
        for (group, column) in on_disk {
            let stored = Stored::remembered(group, &snapshot, &engine.recent);
            read_column(stored, table.id, row.as_bytes(), column, &mut cells)?;
        }
    }
    Ok(cells)
}
