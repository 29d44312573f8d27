//! Builds the cells of the workloads.

use crate::history::Cell;

pub(super) fn cell(table: u8, row: u64, column: u8) -> Cell {
    Cell { table, row: u16::try_from(row).unwrap_or(u16::MAX), column }
}
