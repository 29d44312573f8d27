//! Keeps the store in order: buffers become runs, journals are removed, and space is given
//! back.
//!
//! ```text
//! seal          seals a buffer            full     decides which buffers to seal
//! freeing       frees sealed buffers and deletes files on a thread of its own
//! merges        sees each entry of a merge, for the next two
//! early_syncs   syncs the files of merges while they are written
//! superseded    drops superseded versions from them
//! churn         how much of a buffer is superseded
//! journals      the journals that the store must have
//! old_journals  frees journals that are kept for a few cells
//! closing       writes all buffers out when the store is closed
//! refill        brings spilled cells back into memory
//! reclaim       gives back the space of removed cells
//! drop          drops tables
//! ```

pub(crate) mod churn;
pub(crate) mod closing;
pub(crate) mod drop;
pub(crate) mod early_syncs;
pub(crate) mod freeing;
pub(crate) mod full;
pub(crate) mod journals;
pub(crate) mod merges;
pub(crate) mod old_journals;
pub(crate) mod reclaim;
pub(crate) mod refill;
pub(crate) mod seal;
pub(crate) mod superseded;
