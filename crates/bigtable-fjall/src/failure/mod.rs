//! Handles a disk that fails, or fills up, while the store is open.
//!
//! ```text
//! fault      errors of the engine and of the system, as callers see them
//! tail       the journal is cut behind the last acknowledged batch
//! successor  the failed engine is closed, and the next one is opened
//! reopen     that is done in place, under the handles that callers hold
//! condition  whether the store takes writes, for those who want to know
//! ```
//!
//! `opening/` handles damage that is found when a store is opened.

pub(crate) mod condition;
pub(crate) mod fault;
pub(crate) mod reopen;
mod successor;
pub(crate) mod tail;
