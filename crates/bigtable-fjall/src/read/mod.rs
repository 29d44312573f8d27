//! Reads from one state of the engine, and from the cells in memory.
//!
//! ```text
//! published  the engine's state after a batch    snapshots  the one that its readers share
//! cached     newest versions that need no snapshot
//! cells      a group's cells, wherever they are
//! column     the versions of one column              history  the older ones
//! cursor     the rows of one group, in order
//! row, scan, glance                                  the reads of a table
//! seen       what a scan of old versions has read, for the removals that follow
//! ```
//!
//! The committer changes the state in this order:
//! 1. The engine publishes the batch.
//! 2. The committer drops the old snapshot.
//! 3. It updates the cache of newest versions.
//! 4. It updates the in-memory maps.
//! 5. It acknowledges the batch.
//!
//! A reader works in the opposite order: it copies the in-memory cells, then reads the cache or
//! takes the snapshot, then checks the floor. So its in-memory cells may be older than the rest,
//! but never newer. The floor is the timestamp below which the store refuses reads. If it is still
//! not above the reader's timestamp, no version that it needs was collected before it read.
//!
//! Invariant: a reader copies the in-memory cells before it reads anything else, never after.

pub(crate) mod cached;
pub(crate) mod cells;
pub(crate) mod column;
pub(crate) mod cursor;
pub(crate) mod glance;
pub(crate) mod history;
pub(crate) mod published;
pub(crate) mod row;
pub(crate) mod scan;
pub(crate) mod seen;
pub(crate) mod snapshots;
