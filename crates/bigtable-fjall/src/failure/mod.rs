//! Handles a disk that fails, or fills up, while the store is open.
//!
//! ```text
//! fault      errors of the engine and of the system, as callers see them
//! tail       cuts the journal behind the last acknowledged batch
//! successor  closes the failed engine, and opens the next one
//! reopen     does both in place, under the handles of callers
//! condition  whether the store takes writes
//! ```
//!
//! `opening/` handles damage that is found when a store is opened.

pub(crate) mod condition;
pub(crate) mod fault;
pub(crate) mod reopen;
mod successor;
pub(crate) mod tail;
