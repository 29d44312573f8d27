//! Runs observers: finds dirty cells and handles them (paper section 2.4).
//!
//! ```text
//! observer   the traits that an application implements
//! change     the change that an observer runs for
//! hints      a queue of cells that this process has made dirty, for its own workers
//! window     how many runs may be at work while their commits wait together for the disk
//! admit      makes loaders wait while observers are behind
//! register   stores the schema, raises its version, sweeps for changes made before
//! find       scans the notify family from random places, for cells without a hint
//! crew       the tasks that do all this, and how they end
//! handle     lock the row, begin, newest c > ack?, run, commit with ack := s, clear what was seen
//!            (in the commit itself where the column has no other observer)
//! hinted     the same without a look at the acknowledgement, for a change of this process
//! batch      the same for many weak notifications at once
//! gather     when a batch looks for changes, and when it has gathered enough
//! moved      asks the oracle whether anything may have changed, so that idle workers scan soon
//! ran        reports to a watcher how a run has ended
//! set_aside  moves a change whose observer keeps failing out of the way; replay brings it back
//! failures   counts failures, and delays the next attempt longer after each
//! skip       acknowledges a change that an operator wants skipped
//! skip_all   acknowledges the changes of a transaction that skips observers, in the transaction
//! row_lock   the advisory lock on a row that a worker handles, renewed while its observers run
//! leave      writes notifications, into the row or into the table beside it
//! notified   reads and clears the notifications of a cell
//! pause      marks observers that must not run until they are resumed
//! elsewhere  cells that wait for observers of other processes (resting: for how long)
//! idle       nothing is dirty, and no timestamp was issued meanwhile
//! ```
//!
//! A **strong** observer runs after a write of its column. It acknowledges the change in its own
//! transaction, so at most one of its runs commits for each change. A **weak** observer handles
//! notifications on a notify-only column. It leaves no acknowledgement, and may run more than
//! once. A **lane** is the queue of hints for one column.

pub(crate) mod admission;
pub(crate) mod admit;
mod batch;
pub(crate) mod change;
pub(crate) mod context;
pub(crate) mod crew;
mod elsewhere;
pub(crate) mod failures;
mod find;
mod gather;
mod handle;
mod hinted;
pub(crate) mod hints;
pub(crate) mod idle;
pub(crate) mod leave;
mod moved;
pub(crate) mod notified;
pub(crate) mod observer;
pub(crate) mod options;
pub(crate) mod pause;
mod ran;
pub(crate) mod register;
mod resting;
mod row_lock;
pub(crate) mod set_aside;
pub(crate) mod skip;
pub(crate) mod skip_all;
mod window;
pub(crate) mod workers;
