//! Defines a read that may be combined with others.

use std::ops::Bound;

use bigtable::{PageLimit, RowKey, RowRange};

use crate::proto::data::RowFilter;

/// Most rows and bytes of a page that is read together with others. The server answers the reads of
/// a request one after another, so a larger page would keep the others waiting. A page may always
/// end earlier than its caller asked for.
const ROWS_MAX: usize = 64;
pub(super) const BYTES_MAX: usize = 256 << 10;

/// A read with a filter.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) of: Of,
    pub(super) filter: RowFilter,
}

/// The rows that a read is for.
#[derive(Debug)]
pub(super) enum Of {
    Row(RowKey),
    /// The first rows of a range.
    Page(RowRange, PageLimit),
}

impl Of {
    /// Most rows of the answer.
    pub(super) fn rows_max(&self) -> usize {
        match self {
            Of::Row(_) => 1,
            Of::Page(_, limit) => limit.rows_max.max(1),
        }
    }
}

/// Whether a page goes together with other reads: one of few rows, in a range with two bounds. A
/// scan without bounds mostly passes over many rows until it finds some.
pub(super) fn is_short(range: &RowRange, limit: PageLimit) -> bool {
    let is_bounded = |bound: &Bound<RowKey>| *bound != Bound::Unbounded;
    limit.rows_max <= ROWS_MAX && is_bounded(&range.start) && is_bounded(&range.end)
}
