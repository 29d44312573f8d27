//! Holds a transaction's buffered writes, in order of their cells.
//!
//! Most transactions write a few cells. The first node of a tree has room for eleven, which
//! takes more than a thousand bytes, and allocators serve requests of that size slowly. So a
//! few writes are kept in a sorted array, and many in a tree.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use bigtable::{RowKey, RowRange};
use bytes::Bytes;

use crate::records::column::Cell;
use crate::{Column, Table};

/// The array first has room for this many writes.
const FIRST: usize = 4;
/// With more writes than this, a tree is cheaper than moving the later elements of the array.
const FEW_MAX: usize = 8;

/// A transaction's buffered writes: `None` deletes the cell.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) writes: Writes,
    /// The total bytes of names and values.
    pub(crate) bytes: usize,
}

/// The new value of each written cell.
#[derive(Debug)]
pub(crate) enum Writes {
    /// Sorted by cell.
    Few(Vec<(Cell, Option<Bytes>)>),
    Many(BTreeMap<Cell, Option<Bytes>>),
}

impl Default for Writes {
    fn default() -> Self {
        Writes::Few(Vec::new())
    }
}

impl Writes {
    pub(crate) fn len(&self) -> usize {
        match self {
            Writes::Few(writes) => writes.len(),
            Writes::Many(writes) => writes.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first written cell.
    pub(crate) fn first(&self) -> Option<&Cell> {
        match self {
            Writes::Few(writes) => writes.first().map(|(cell, _)| cell),
            Writes::Many(writes) => writes.keys().next(),
        }
    }

    /// The new value of a cell, if the transaction has written it.
    pub(crate) fn get(
        &self,
        table: &Table,
        row: &RowKey,
        column: &Column,
    ) -> Option<&Option<Bytes>> {
        match self {
            Writes::Few(writes) => place(writes, table, row, column).ok().map(|at| &writes[at].1),
            Writes::Many(writes) => writes.get(&Cell::new(table, row, column)),
        }
    }

    /// Writes a cell. Returns the earlier write of it that this one replaces.
    pub(crate) fn insert(&mut self, cell: Cell, value: Option<Bytes>) -> Option<Option<Bytes>> {
        match self {
            Writes::Few(writes) => match place(writes, &cell.table, &cell.row, &cell.column) {
                Ok(at) => Some(std::mem::replace(&mut writes[at].1, value)),
                Err(at) if writes.len() < FEW_MAX => {
                    if writes.is_empty() {
                        writes.reserve_exact(FIRST);
                    }
                    writes.insert(at, (cell, value));
                    None
                }
                Err(_) => {
                    let mut tree: BTreeMap<_, _> = std::mem::take(writes).into_iter().collect();
                    tree.insert(cell, value);
                    *self = Writes::Many(tree);
                    None
                }
            },
            Writes::Many(writes) => writes.insert(cell, value),
        }
    }

    /// The writes from a cell on, in order.
    fn from<'a>(&'a self, first: &Cell) -> Rest<'a> {
        match self {
            Writes::Few(writes) => {
                let at = writes.partition_point(|(cell, _)| cell < first);
                Rest::Few(writes[at..].iter())
            }
            Writes::Many(writes) => Rest::Many(writes.range(first..)),
        }
    }
}

impl IntoIterator for Writes {
    type Item = (Cell, Option<Bytes>);
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        match self {
            Writes::Few(writes) => IntoIter::Few(writes.into_iter()),
            Writes::Many(writes) => IntoIter::Many(writes.into_iter()),
        }
    }
}

/// All writes, in order.
pub(crate) enum IntoIter {
    Few(std::vec::IntoIter<(Cell, Option<Bytes>)>),
    Many(btree_map::IntoIter<Cell, Option<Bytes>>),
}

impl Iterator for IntoIter {
    type Item = (Cell, Option<Bytes>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            IntoIter::Few(writes) => writes.next(),
            IntoIter::Many(writes) => writes.next(),
        }
    }
}

/// The writes from a given cell on, in order.
enum Rest<'a> {
    Few(std::slice::Iter<'a, (Cell, Option<Bytes>)>),
    Many(btree_map::Range<'a, Cell, Option<Bytes>>),
}

impl<'a> Iterator for Rest<'a> {
    type Item = (&'a Cell, &'a Option<Bytes>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Rest::Few(writes) => writes.next().map(|(cell, value)| (cell, value)),
            Rest::Many(writes) => writes.next(),
        }
    }
}

/// The index of a cell's write, or the index at which it would be inserted.
fn place(
    writes: &[(Cell, Option<Bytes>)],
    table: &Table,
    row: &RowKey,
    column: &Column,
) -> Result<usize, usize> {
    let cell = (table, row, column);
    writes.binary_search_by(|(known, _)| (&known.table, &known.row, &known.column).cmp(&cell))
}

impl Buffer {
    /// The buffered writes to rows of a range of one table.
    pub(crate) fn in_range<'a>(
        &'a self,
        table: &'a Table,
        range: &'a RowRange,
    ) -> impl Iterator<Item = (&'a Cell, &'a Option<Bytes>)> {
        let first = match &range.start {
            Bound::Included(row) | Bound::Excluded(row) => row.clone(),
            Bound::Unbounded => RowKey::default(),
        };
        let from =
            Cell { table: table.clone(), row: first, column: Column::from_stored(Bytes::new()) };
        self.writes
            .from(&from)
            .take_while(move |(cell, _)| {
                cell.table == *table
                    && match &range.end {
                        Bound::Included(end) => cell.row <= *end,
                        Bound::Excluded(end) => cell.row < *end,
                        Bound::Unbounded => true,
                    }
            })
            .filter(move |(cell, _)| range.contains(&cell.row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_what_a_tree_is() {
        crate::testing::doc_test(|client| async move {
            let table = client.table("docs").await?;
            let cell = |n: usize| Cell {
                table: table.clone(),
                row: RowKey::from(vec![b'a' + (n * 23 % 41 % 40) as u8]),
                column: Column::literal("doc"),
            };
            for count in [0, 1, 2, FEW_MAX, FEW_MAX + 1, 3 * FEW_MAX, 41] {
                let (mut writes, mut tree) = (Writes::default(), BTreeMap::new());
                for n in 0..count {
                    let value = (n % 3 > 0).then(|| Bytes::from(vec![n as u8]));
                    let replaced = writes.insert(cell(n), value.clone());
                    assert_eq!(replaced, tree.insert(cell(n), value));
                }
                assert_eq!((writes.len(), writes.is_empty()), (tree.len(), tree.is_empty()));
                assert_eq!(matches!(writes, Writes::Many(_)), tree.len() > FEW_MAX);
                assert_eq!(writes.first(), tree.keys().next());
                for n in 0..50 {
                    let Cell { table, row, column } = cell(n);
                    assert_eq!(writes.get(&table, &row, &column), tree.get(&cell(n)));
                    assert!(writes.from(&cell(n)).eq(tree.range(cell(n)..)));
                }
                assert!(writes.into_iter().eq(tree));
            }
            Ok(())
        });
    }
}
