//! Committing: requests in a queue, one committer, one batch for the engine.
//!
//! ```text
//! room       how much of the disk is kept free
//! admission  has the disk room for the request?
//! queue      requests that wait               calm       may the caller commit on its own thread?
//! committer  predicates, the batch, its sync, publishing, the reply
//! edit       what a request does to a row     draft      what a group of requests writes
//! puts       what the engine is given         pending    rows of a one-step commit, before they
//!                                                        are visible
//! view       the published state, as the committer reads it
//! recent     newest versions that need not be read
//! ```
//!
//! Invariant: every change passes through the holder of the commit lock, one at a time.

pub(crate) mod admission;
pub(crate) mod calm;
pub(crate) mod committer;
pub(crate) mod draft;
pub(crate) mod edit;
pub(crate) mod pending;
pub(crate) mod puts;
pub(crate) mod queue;
pub(crate) mod recent;
pub(crate) mod room;
pub(crate) mod view;
