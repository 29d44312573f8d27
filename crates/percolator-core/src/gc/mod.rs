//! Garbage collection: drops versions that no reader can read any more.
//!
//! ```text
//! readers      which timestamps of the past are open, in this client and in others
//! hold         registers a snapshot at once, for a caller that reads for long
//! safe_point   how far collection may go: no higher than any reader, a retention behind now
//!   1. the safe point becomes the store's floor: below it nothing is read, locked or committed
//! sweep        2. every lock below it is resolved; a lock of a living owner ends the round
//! collect      3. versions that a newer write hides are dropped; why that races with nothing
//! notifications   drops stale notifications, where they lie in a table of their own
//! background   runs rounds repeatedly, with a small share of the machine
//! unfenced     all of this where the store cannot compare a floor
//! round        runs these steps in order
//! ```
//!
//! `collection` holds a client's memory of all this. `registration` is the record of a client
//! that reads the past. `samples` translates a time into a timestamp. `report` says what a
//! round did, and `tally` when the next one begins. `slot` holds the background task.
//!
//! Invariants:
//!
//! * The safe point never goes back.
//! * Nothing is collected before the floor is durable and the locks below it are resolved.
//! * A round that a crash cuts short is done again.
//! * The floor refuses prewrites, commits of a primary, and one-step commits of transactions
//!   that began below it. It refuses no secondary commit, roll-forward or roll-back: these act
//!   on a lock, and collection waits until every lock below the floor is gone.
//! * The floor refuses a tomb in one case. Its owner has sent a commit, whose record may have
//!   been collected (`txn/settle.rs`).

pub(crate) mod background;
mod collect;
pub(crate) mod collection;
pub(crate) mod hold;
mod notifications;
mod pace;
pub(crate) mod readers;
mod record;
pub(crate) mod registration;
pub(crate) mod report;
pub(crate) mod round;
pub(crate) mod safe_point;
pub(crate) mod samples;
pub(crate) mod slot;
mod sweep;
mod tally;
pub(crate) mod unfenced;
