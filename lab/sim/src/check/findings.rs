//! Names cells and collects findings, for all checkers.

use crate::history::{Cell, Finding};

/// Returns a cell in words.
pub(super) fn name(cell: &Cell) -> String {
    format!("{}/{}/{}", cell.table, cell.row, cell.column)
}

pub(super) fn report(findings: &mut Vec<Finding>, property: &'static str, facts: String) {
    findings.push(Finding { property, facts });
}
