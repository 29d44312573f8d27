//! A read that may wait for others.

use bigtable::RowKey;

use crate::proto::data::RowFilter;

/// A read of one row.
#[derive(Debug)]
pub(super) struct RowRead {
    pub(super) key: RowKey,
    pub(super) filter: RowFilter,
}
