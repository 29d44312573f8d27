//! The stored trace: which transaction wrote what, and because of which change.
//!
//! ```text
//! table percolator.trace   row: shard, bucket of 1,024 timestamps, client, number
//!   system:trace  entries of transactions and of the changes that set them off
//!   system:time   when the row was written, in milliseconds since 1970; how many transactions
//!
//! commit or run --> queue, bounded --> one row for each bucket, twice a second --> expiry
//! ```
//!
//! Each transaction is one entry, under its commit timestamp. Each change that an observer's
//! transaction handles is one more, under the commit timestamp of that change. So both directions
//! are looked up by a timestamp: from a write to its cause, and from a change to what it set off.
//!
//! Invariants: a trace is written raw, after the commit. It belongs to no transaction and takes no
//! timestamp, so waiting for idleness, observers and collection never see it. Nothing depends on
//! it: what does not fit into the queue, or cannot be written, is counted and left out. A caller
//! waits for no part of it.
//!
//! **Expiry.** A row is kept for a day at most, and the newest 2^20 transactions are. The rows of a
//! shard are in order of time. So a sweep, once a minute while something is written, begins where
//! the last one ended and goes on to the first row that is young. It deletes as much as was written
//! in the meantime, and does not go by what it has deleted before. Each client counts the
//! transactions of all after 16,384 of its own, so there may be so many more for each. Rows of a
//! store that nobody traces any more stay.
//!
//! **Sampling.** `1/N` decides once for each cascade, at its root: by the commit timestamp of the
//! transaction that no observer began. An observer's transaction is traced if a transaction is that
//! set it off. This client remembers its last decisions. Those of other clients it finds in the
//! table; until it has, the observer's transaction is held back, for five seconds at most.

pub(crate) mod queue;
pub(crate) mod record;
pub(crate) mod sampling;
pub(crate) mod why;
pub(crate) mod write;

mod find;
mod rows;
mod sweep;
