//! Draws the paper's table (Figure 4): the content of each cell in the store, newest first.
//!
//! The dump reads the store itself, beneath the protocol, so looking resolves nothing.

use std::collections::{BTreeMap, BTreeSet};

use bigtable::{Family, RowRange, Selection, TimeRange};
use percolator_core::{Client, LockView, RowKey, Table};

use crate::faults::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE};
use crate::world::World;

const FAILED: Family = Family::from_static("failed");
/// The families in the paper's order, followed by those that the paper does not have.
const FAMILIES: [(Family, &str); 6] = [
    (DATA, "data"),
    (LOCK, "lock"),
    (WRITE, "write"),
    (ROLLBACK, "rollback"),
    (NOTIFY, "notify"),
    (FAILED, "failed"),
];
/// This many families are shown even if they are empty.
const ALWAYS: usize = 3;

const DELETE: u8 = 1;

/// The entries of each family, newest first, by column and then by row.
type Cells = BTreeMap<String, BTreeMap<String, [Vec<String>; 6]>>;

/// Draws the table.
pub(super) async fn dump(world: &World, client: &Client, table: &Table) -> String {
    let locks = client.held_locks(usize::MAX).await.unwrap();
    let mut cells = Cells::new();
    for (family, _) in FAMILIES {
        let raw = world.raw_table_of(table, &family).await;
        // If notifications lie apart, a byte stands before the row in the key.
        let from = usize::from(world.is_apart(&family));
        let select = Selection::default().family(family, TimeRange::ALL, u32::MAX);
        let mut left = Some(RowRange::all());
        while let Some(range) = left {
            let page = raw.scan(&range, &select, Default::default()).await.unwrap();
            for row in &page.rows {
                add_row(&row.key.as_bytes()[from..].into(), row, &locks, &mut cells);
            }
            left = page.resume;
        }
    }
    let tables: Vec<String> = cells.iter().map(|(column, rows)| draw(column, rows)).collect();
    if tables.is_empty() { "nothing".to_owned() } else { tables.join("\n") }
}

fn add_row(key: &RowKey, row: &bigtable::Row, locks: &[LockView], cells: &mut Cells) {
    let columns: BTreeSet<_> = row.cells.iter().map(|cell| cell.qualifier.clone()).collect();
    for column in columns {
        let name = String::from_utf8_lossy(&column).into_owned();
        let rows = cells.entry(name.clone()).or_default();
        let entries = rows.entry(key.to_string()).or_default();
        for (of_family, (family, _)) in entries.iter_mut().zip(FAMILIES) {
            for cell in row.versions(&family, &column) {
                let what = entry(&family, &name, cell, key, locks);
                of_family.push(format!("{}{what}", cell.timestamp));
            }
        }
    }
}

fn entry(
    family: &Family,
    column: &str,
    cell: &bigtable::Cell,
    row: &RowKey,
    locks: &[LockView],
) -> String {
    if *family == DATA && column.starts_with("ack:") {
        let acknowledged = u64::from_be_bytes(cell.value[..].try_into().unwrap());
        format!(": {acknowledged}")
    } else if *family == DATA {
        format!(": {}", String::from_utf8_lossy(&cell.value))
    } else if *family == LOCK {
        let held = |lock: &&LockView| {
            lock.start_ts == cell.timestamp
                && lock.cell.row == *row
                && lock.cell.column.to_string() == column
        };
        let lock = locks.iter().find(held).unwrap();
        let delete = if lock.delete { ", to delete" } else { "" };
        match &lock.primary {
            None => format!(": I am primary{delete}"),
            Some(primary) => format!(": primary @ {}.{}{delete}", primary.row, primary.column),
        }
    } else if *family == WRITE {
        let start_ts = u64::from_be_bytes(cell.value[..8].try_into().unwrap());
        match cell.value[8] & DELETE {
            0 => format!(": data @ {start_ts}"),
            _ => format!(": deleted @ {start_ts}"),
        }
    } else {
        String::new()
    }
}

fn draw(column: &str, rows: &BTreeMap<String, [Vec<String>; 6]>) -> String {
    let shown: Vec<usize> = (0..FAMILIES.len())
        .filter(|family| *family < ALWAYS || rows.values().any(|row| !row[*family].is_empty()))
        .collect();
    let mut lines = vec![vec!["row".to_owned()]];
    lines[0].extend(shown.iter().map(|family| format!("{column}:{}", FAMILIES[*family].1)));
    for (row, entries) in rows {
        let mut line = vec![row.clone()];
        line.extend(shown.iter().map(|family| entries[*family].join(", ")));
        lines.push(line);
    }
    let width = |i: usize| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=shown.len()).map(width).collect();
    let padded = lines.iter().map(|line| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join(" | ").trim_end().to_owned()
    });
    padded.collect::<Vec<_>>().join("\n")
}
