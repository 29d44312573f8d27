//! Garbage collection: dropping versions that nobody can read any more.
//!
//! ```text
//! readers      who still reads the past, in this client and in others
//! safe_point   how far collection may go: below every reader, behind the present by a retention
//!   1. the safe point becomes the store's floor: below it nothing is read, locked or decided
//! sweep        2. every lock below it is resolved; one whose owner lives ends the round
//! collect      3. what its newest write hides is dropped, and why that races with nothing
//! notifications   stale ones, where they lie in a table of their own
//! background   rounds by themselves, with a small share of the machine
//! unfenced     all of this where the store cannot compare a floor
//! round        these steps in their order
//! ```
//!
//! `collection` is what a client remembers of all this, `samples` translates a time to a timestamp,
//! `report` says what came of a round, and in `slot` lives the task of the background.
//!
//! Invariants: the safe point never goes back; nothing is collected before the floor is durable and
//! the locks below it are resolved; a round that a crash cuts short is done again. Secondary
//! commits, roll-forward, rollback and tombs are never fenced: they finish what was decided.

pub(crate) mod background;
mod collect;
pub(crate) mod collection;
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
pub(crate) mod unfenced;
