//! Commits requests: a queue, one committer, and one batch for the engine.
//!
//! ```text
//! begin         a request is committed on its caller's thread, or queued
//! queue         requests that wait             calm     may a caller commit on its own thread?
//! committer     the thread that commits queued requests, and replies
//! group_commit  predicates, and the batch      write    its sync, and publishing
//! admission     has the disk room for it?      room     how much of the disk is kept free
//! edit          the change of one row          draft    the writes of one request
//! puts          the writes for the engine      pending  rows of a one-step commit, before they
//!                                                       are visible
//! view          the published state, as the committer reads it
//! recent        newest versions that need not be read
//! buffers       keys that the engine's write buffers do not hold
//! ```
//!
//! A **predicate** is a list of **probes**. A probe asks whether the row has a cell in a column,
//! or in any column of a family, within a range of times.
//!
//! Invariant: every change passes through the holder of the commit lock, one at a time.

pub(crate) mod admission;
pub(crate) mod begin;
pub(crate) mod buffers;
pub(crate) mod calm;
pub(crate) mod committer;
pub(crate) mod draft;
pub(crate) mod edit;
pub(crate) mod group_commit;
pub(crate) mod pending;
pub(crate) mod puts;
pub(crate) mod queue;
pub(crate) mod recent;
pub(crate) mod room;
pub(crate) mod view;
pub(crate) mod write;
