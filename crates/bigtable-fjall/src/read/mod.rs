//! Reading: one snapshot of the engine, and the cells that lie in memory.
//!
//! ```text
//! published  the engine's state after a batch    snapshots  the one that its readers share
//! cells      a group's cells, wherever they are
//! column     the versions of one column              history  the older ones
//! row        the columns of one row                  scan     rows of a range
//! glance     the newest version, without a snapshot
//! ```
//!
//! Invariant: a reader copies the in-memory cells before it opens its snapshot, never after.

pub(crate) mod cells;
pub(crate) mod column;
pub(crate) mod glance;
pub(crate) mod history;
pub(crate) mod published;
pub(crate) mod row;
pub(crate) mod scan;
pub(crate) mod snapshots;
