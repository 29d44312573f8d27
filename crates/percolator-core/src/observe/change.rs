//! The change that an observer runs for.

use bigtable::{RowKey, Timestamp};

use crate::{Column, Table};

/// A cell that has changed since its observer last ran, perhaps several times.
///
/// See [`Observer`](crate::Observer) for an example.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// The table.
    pub table: Table,
    /// The row.
    pub row: RowKey,
    /// The observed column.
    pub column: Column,
    /// The commit timestamp of the newest change. For a notify-only column, the timestamp of
    /// the newest notification.
    pub commit_ts: Timestamp,
    /// Whether the newest change deleted the cell.
    pub deleted: bool,
}
