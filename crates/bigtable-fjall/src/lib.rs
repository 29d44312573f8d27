//! Bigtable tables on disk: the embedded engine, on [fjall](https://docs.rs/fjall).
//!
//! ```text
//!   FjallStore ── FjallTable            what callers hold (traits Store and Table; reopen.rs)
//!        |            |
//!        |   read, scan: copy in-memory cells, then one snapshot    (column.rs, history.rs, row.rs,
//!        |            |                                             glance.rs, scan.rs, published.rs)
//!        |            |
//!        '── committer: predicates, one batch, durable, publish     (commit.rs, edit.rs, draft.rs,
//!                     |                                            queue.rs, pending.rs, recent.rs,
//!                     |                                            seal.rs, churn.rs, room.rs)
//!                     |
//!     keyspaces:  .catalog | <group> | <group>.history | ...        (catalog.rs, group.rs, key.rs,
//!                                                                  pack.rs)
//!     before the engine opens: is all there, and whole?            (opening/, journals.rs)
//!     when the store closes: all buffers become runs               (closing.rs)
//! ```
//!
//! One fjall keyspace holds one **locality group** of all tables of the store. What a group's
//! [`Layout`](bigtable::Layout) makes of it is described in `group.rs`.
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
//! * After a failed write nothing is answered until the journal was cut behind the last acknowledged
//!   batch, and the engine was opened anew in place (`reopen.rs`, `tail.rs`).

mod calm;
mod catalog;
mod churn;
mod closing;
mod column;
mod commit;
mod condition;
mod directory;
mod draft;
mod drop;
mod edit;
mod engine;
mod fault;
mod glance;
mod group;
#[cfg(test)]
mod held;
mod history;
mod journals;
mod key;
mod memory;
#[doc(hidden)]
pub mod mutants;
mod old_journals;
mod opening;
mod options;
mod pack;
mod pending;
mod published;
mod puts;
mod queue;
mod recent;
mod reclaim;
mod reopen;
mod room;
mod row;
mod scan;
mod seal;
mod store;
mod table;
mod tail;
mod tally;
mod waits;

pub use condition::Condition;
pub use edit::RowEdit;
#[doc(hidden)]
pub use key::check as check_key;
pub use opening::{Checked, Problem, Recovery, Repair, Saved, check};
pub use options::{Durability, Options};
#[doc(hidden)]
pub use pack::check as check_pack;
pub use store::FjallStore;
pub use table::FjallTable;
#[cfg(feature = "count-waits")]
#[doc(hidden)]
pub use waits::counted;
