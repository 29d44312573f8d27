//! Reading: one snapshot of the engine, and the cells that lie in memory.
//!
//! ```text
//! published  the engine's state after a batch    snapshots  the one that its readers share
//! cells      a group's cells, wherever they are
//! column     the versions of one column              history  the older ones
//! cursor     the rows of one group, in order
//! row, scan, glance                                  the reads of a table
//! ```
//!
//! The engine publishes a batch, then the committer takes the old snapshot away, then changes the
//! in-memory maps, then acknowledges. A reader goes the other way round: it copies the in-memory
//! cells, then takes the snapshot, then compares the floor. So its in-memory cells may be of an
//! earlier moment than the rest, never of a later one. It read all that lies below a floor before
//! the floor was raised, hence before anything was collected.
//!
//! Invariant: a reader copies the in-memory cells before it takes its snapshot, never after.

pub(crate) mod cells;
pub(crate) mod column;
pub(crate) mod cursor;
pub(crate) mod glance;
pub(crate) mod history;
pub(crate) mod published;
pub(crate) mod row;
pub(crate) mod scan;
pub(crate) mod snapshots;
