//! The disk fails, or is full, while the store is open.
//!
//! ```text
//! fault      errors of the engine and of the system, as callers see them
//! tail       the journal is cut behind the last acknowledged batch
//! successor  the failed engine is closed, and the next one is opened
//! reopen     that is done in place, under the handles that callers hold
//! condition  whether the store takes writes, for those who want to know
//! ```
//!
//! Damage that an opening finds is the business of `opening/`.

pub(crate) mod condition;
pub(crate) mod fault;
pub(crate) mod reopen;
mod successor;
pub(crate) mod tail;
