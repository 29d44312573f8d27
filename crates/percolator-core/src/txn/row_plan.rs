//! Defines one row of a commit's plan.

use bigtable::{Mutation, RowKey};
use smallvec::SmallVec;

use crate::records::column::Table;
use crate::txn::rows::{LockedCell, PlannedCell};

/// The rows of a plan. Most transactions write one, and need no memory for it beside the plan's.
pub(crate) type Rows = SmallVec<[RowPlan; 1]>;

/// One row of a plan.
#[derive(Debug, Clone)]
pub(crate) struct RowPlan {
    pub(crate) table: Table,
    pub(crate) row: RowKey,
    pub(crate) cells: SmallVec<[PlannedCell; 2]>,
    /// Further changes that the commit of the row makes: it removes the notification that the
    /// transaction has handled. A client that rolls the row forward leaves the notification,
    /// which is then found to be stale.
    pub(crate) handled: Vec<Mutation>,
}

impl RowPlan {
    /// The bytes of its keys and values.
    pub(crate) fn bytes(&self) -> usize {
        let value = |cell: &PlannedCell| {
            let (long, short) = (&cell.long_value, &cell.intent.short_value);
            long.as_ref().or(short.as_ref()).map_or(0, bytes::Bytes::len)
        };
        let cell = |cell: &PlannedCell| cell.column.as_bytes().len() + value(cell);
        self.row.as_bytes().len() + self.cells.iter().map(cell).sum::<usize>()
    }

    /// The row's cells as commit and rollback need them.
    pub(crate) fn locked(&self) -> Vec<LockedCell> {
        let locked = |PlannedCell { column, intent, .. }: &PlannedCell| LockedCell {
            column: column.clone(),
            intent: intent.clone(),
        };
        self.cells.iter().map(locked).collect()
    }
}
