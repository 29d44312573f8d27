//! Bigtable tables on disk: the embedded engine, on [fjall](https://docs.rs/fjall).
//!
//! ```text
//!   FjallStore ── FjallTable            what callers hold (traits Store and Table)
//!        |            |
//!        |   read/    copy in-memory cells, then one snapshot of the engine
//!        |            |
//!        '-- commit/  one committer: predicates, one batch, durable, publish
//!                     |
//!     layout/         keyspaces: .catalog | <group> | <group>.history | ...
//!     upkeep/         buffers become runs, journals go, space is given back
//!     failure/        the disk fails, or is full, while the store is open
//!     opening/        before the engine opens: is all there, and whole?
//! ```
//!
//! One fjall keyspace holds one **locality group** of all tables of the store. What a group's
//! [`Layout`](bigtable::Layout) makes of it is described in `layout/group.rs`.
//!
//! Invariants:
//! * A mutation is durable (to the store's [`Durability`]) before any reader can see it, and
//!   visible before it is acknowledged.
//! * Every change passes through one committer, so a predicate is evaluated against exactly the
//!   state that its mutations apply to.
//! * A read opens its snapshot after it has copied the in-memory cells, never before; the snapshot
//!   shows whole batches only.
//! * No future of the store syncs, sleeps, or waits for the commit lock: the committer thread does
//!   what may take long (`waits.rs`). A future that meets a failed write opens the engine anew, and
//!   blocks.
//! * After a failed write nothing is answered until the journal was cut behind the last
//!   acknowledged batch, and the engine was opened anew in place (`failure/reopen.rs`,
//!   `failure/tail.rs`).

mod commit;
mod directory;
mod engine;
mod failure;
#[cfg(test)]
mod held;
mod layout;
#[doc(hidden)]
pub mod mutants;
mod opening;
mod options;
mod read;
mod store;
mod table;
mod upkeep;
mod waits;

pub use commit::edit::RowEdit;
pub use failure::condition::Condition;
#[doc(hidden)]
pub use layout::key::check as check_key;
#[doc(hidden)]
pub use layout::pack::check as check_pack;
pub use opening::{Checked, Problem, Recovery, Repair, Saved, check};
pub use options::{Durability, Options};
pub use store::FjallStore;
pub use table::FjallTable;
#[cfg(feature = "count-waits")]
#[doc(hidden)]
pub use waits::counted;
