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
//! transaction handles is another entry, under the commit timestamp of that change. So one
//! lookup by timestamp leads from a write to its causes, or from a change to the transactions
//! that it set off.
//!
//! Invariants: a trace is written raw, after the commit. It belongs to no transaction and
//! takes no timestamp, so waiting for idleness, observers and collection never see it. Nothing
//! depends on it: transactions that do not fit into the queue, or cannot be written, are
//! counted and left out. No caller waits for the trace.
//!
//! **Expiry.** A row is kept for about a day, and the table keeps the newest 2^20
//! transactions. A client sweeps once a minute, as long as it writes traces. The rows of a
//! shard are in order of time. So a sweep begins where the last one ended, and ends at the
//! first row that is young enough. Its work is in proportion to the rows written in the
//! meantime, and it does not pass over the deletions of earlier sweeps.
//!
//! A run may handle an old change. The entry of that change then has an old key, before the
//! row at which the last sweep ended. So once an hour a sweep passes over all rows. Until such
//! an entry expires, it may also end each sweep in between.
//!
//! Each client counts the transactions of all clients after every 16,384 of its own. So the
//! table may exceed its bound by that many for each client. If no client traces a store any
//! more, its rows stay.
//!
//! **Sampling.** `1/N` decides once for each cascade, at its root: the transaction that no
//! observer began. The root's commit timestamp decides. An observer's transaction is traced if
//! one of the transactions that set it off is traced.
//!
//! A client remembers its own last decisions, and finds those of other clients in the table.
//! Until it finds them, it holds the observer's transaction back, for at most five seconds.
//! Held-back transactions take at most half of the queue. When room is needed, the client
//! gives up the oldest of them. It does not count these as lost, because most of them belong
//! to cascades that are not kept.

pub(crate) mod queue;
pub(crate) mod record;
pub(crate) mod sampling;
pub(crate) mod why;
pub(crate) mod write;

mod find;
mod rows;
mod sweep;
