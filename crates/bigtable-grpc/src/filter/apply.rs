//! Applies a filter to the cells of one row.
//!
//! Cells come in the order of the API: family, qualifier, newest first. Every filter keeps that
//! order. An interleave merges the outputs of its branches in that order, and keeps duplicates.

use std::sync::Arc;

use bigtable::Bytes;
use rand::Rng;

use super::Filter;

/// A cell in the form that clients see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) family: Arc<str>,
    pub(crate) qualifier: Bytes,
    /// In microseconds.
    pub(crate) micros: i64,
    pub(crate) value: Bytes,
    pub(crate) labels: Vec<Arc<str>>,
}

impl Cell {
    fn same_column(&self, other: &Cell) -> bool {
        self.qualifier == other.qualifier && self.family == other.family
    }
}

/// Returns the cells that pass the filter.
pub(crate) fn apply(filter: &Filter, row: &[u8], cells: Vec<Cell>) -> Vec<Cell> {
    let mut sunk = Vec::new();
    let mut left = pass(filter, row, cells, &mut sunk);
    if !sunk.is_empty() {
        left.append(&mut sunk);
        sort(&mut left);
    }
    left
}

/// Sorts cells stably: of equal cells, the one from the branch that is named first comes first.
fn sort(cells: &mut [Cell]) {
    cells.sort_by(|a, b| {
        let column = a.family.cmp(&b.family).then_with(|| a.qualifier.cmp(&b.qualifier));
        column.then(b.micros.cmp(&a.micros))
    });
}

fn pass(filter: &Filter, row: &[u8], mut cells: Vec<Cell>, sunk: &mut Vec<Cell>) -> Vec<Cell> {
    match filter {
        Filter::Chain(filters) => {
            for filter in filters {
                if cells.is_empty() {
                    break;
                }
                cells = pass(filter, row, cells, sunk);
            }
            return cells;
        }
        Filter::Interleave(filters) => {
            let mut merged = Vec::new();
            for filter in filters {
                merged.append(&mut pass(filter, row, cells.clone(), sunk));
            }
            sort(&mut merged);
            return merged;
        }
        Filter::Condition { predicate, then, other } => {
            let holds = !pass(predicate, row, cells.clone(), &mut Vec::new()).is_empty();
            let branch = if holds { then } else { other };
            return match branch {
                Some(filter) => pass(filter, row, cells, sunk),
                None => Vec::new(),
            };
        }
        Filter::Sink => sunk.append(&mut cells),
        Filter::Pass => {}
        Filter::Block => cells.clear(),
        Filter::RowKey(pattern) if pattern.matches(row) => {}
        Filter::RowKey(_) => cells.clear(),
        Filter::Sample(part) => {
            if !rand::rng().random_bool(*part) {
                cells.clear();
            }
        }
        Filter::Family(pattern) => cells.retain(|c| pattern.matches(c.family.as_bytes())),
        Filter::Qualifier(pattern) => cells.retain(|c| pattern.matches(&c.qualifier)),
        Filter::Columns { family, qualifiers } => {
            cells.retain(|c| *c.family == **family && qualifiers.contains(&c.qualifier));
        }
        Filter::Times(start, end) => {
            cells.retain(|c| c.micros >= *start && (*end == 0 || c.micros < *end));
        }
        Filter::Value(pattern) => cells.retain(|c| pattern.matches(&c.value)),
        Filter::Values(interval) => cells.retain(|c| interval.contains(&c.value)),
        Filter::RowOffset(count) => {
            cells.drain(..(*count).min(cells.len()));
        }
        Filter::RowLimit(count) => cells.truncate(*count),
        Filter::ColumnLimit(count) => limit_columns(&mut cells, *count),
        Filter::Strip => cells.iter_mut().for_each(|c| c.value = Bytes::new()),
        Filter::Label(label) => cells.iter_mut().for_each(|c| c.labels.push(label.clone())),
    }
    cells
}

fn limit_columns(cells: &mut Vec<Cell>, count: u32) {
    let mut kept: Vec<Cell> = Vec::with_capacity(cells.len());
    let mut of_column = 0;
    for cell in cells.drain(..) {
        // Every column keeps at least one cell, so the last kept cell belongs to the current
        // column.
        let same = kept.last().is_some_and(|last| last.same_column(&cell));
        of_column = if same { of_column } else { 0 };
        if of_column < count {
            of_column += 1;
            kept.push(cell);
        }
    }
    *cells = kept;
}
