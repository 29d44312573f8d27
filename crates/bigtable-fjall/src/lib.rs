//! Stores Bigtable tables on disk: the embedded engine, on [fjall](https://docs.rs/fjall).
//!
//! ```text
//!   store.rs, table.rs   the handles of callers (traits Store and Table)
//!        |
//!     failure/           the disk fails while the store is open; the engine is opened anew
//!        |
//!     opening/           checks lists, manifests and journals; opens the engine and its tables
//!     read/              copy in-memory cells, then take one snapshot of the engine
//!     commit/            one committer: predicates, one batch, durable, publish
//!     backup/            copies of an open store, and stores restored from them
//!     upkeep/            buffers become runs; frees journals, gives space back
//!        |
//!     engine.rs          the state of an open store, and its locks
//!        |
//!     layout/            keyspaces: .catalog | <group> | <group>.history | ...
//! ```
//!
//! Each folder is a room: it holds functions that work on an `Engine`, and the types of an
//! engine's fields. A file imports only from files below it, so no two files import each
//! other.
//!
//! One fjall keyspace holds one **locality group** of all tables of the store.
//! `layout/group.rs` describes what each [`Layout`](bigtable::Layout) puts into a keyspace.
//!
//! Invariants:
//! * A mutation is durable (to the store's [`Durability`]) before any reader can see it, and
//!   visible before it is acknowledged.
//! * Every change passes through the committer: the one thread that holds the commit lock. So
//!   a predicate is evaluated against exactly the state that its mutations apply to.
//! * A read first copies the in-memory cells, then opens its snapshot. The snapshot shows
//!   whole batches only.
//! * No future of the store syncs, sleeps, or waits for the commit lock. The committer thread
//!   does the work that may take long (`waits.rs`). There is one exception. A future that
//!   finds a failed write, or a stopped engine, opens the engine anew and blocks; other
//!   futures block until that is done.
//! * After a failed write the store answers nothing until two things are done. The journal is
//!   cut behind the last acknowledged batch (`failure/tail.rs`), and the engine is opened anew
//!   in place (`failure/reopen.rs`).

mod backup;
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

pub use backup::{BackedUp, Restored, Restoring, backup_of, check};
pub use commit::edit::RowEdit;
pub use failure::condition::Condition;
#[doc(hidden)]
pub use layout::key::check as check_key;
#[doc(hidden)]
pub use layout::pack::check as check_pack;
pub use opening::{Checked, Problem, Recovery, Repair, Saved, StandIn};
pub use options::{Durability, Options};
pub use store::FjallStore;
pub use table::FjallTable;
#[cfg(feature = "count-waits")]
#[doc(hidden)]
pub use waits::counted;
