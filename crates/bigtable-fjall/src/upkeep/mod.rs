//! Keeps the store in order: buffers become runs, journals are removed, and space is given
//! back.
//!
//! ```text
//! seal          a buffer is sealed        full     which buffers are
//! churn         how much of a buffer is superseded
//! journals      the journals that the store must have
//! old_journals  those that are kept for a few cells
//! closing       all buffers, when the store is closed
//! refill        cells of in-memory groups that were spilled
//! reclaim       space of what was deleted
//! drop          dropped tables
//! ```

pub(crate) mod churn;
pub(crate) mod closing;
pub(crate) mod drop;
pub(crate) mod full;
pub(crate) mod journals;
pub(crate) mod old_journals;
pub(crate) mod reclaim;
pub(crate) mod refill;
pub(crate) mod seal;
