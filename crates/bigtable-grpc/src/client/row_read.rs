//! Defines a read of one row, which may be combined with others.

use bigtable::RowKey;

use crate::proto::data::RowFilter;

/// A read of one row with a filter.
#[derive(Debug)]
pub(super) struct RowRead {
    pub(super) key: RowKey,
    pub(super) filter: RowFilter,
}
