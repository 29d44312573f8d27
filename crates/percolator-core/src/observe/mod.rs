//! Running observers: finding dirty cells and handling them (paper section 2.4).
//!
//! ```text
//! observer   the traits that an application implements     change     what one runs for
//! hints      cells that this process has made dirty, for its own workers
//! admit      those who bring in new work wait for those who handle it
//! register   stores the schema, raises its version, sweeps for changes made before
//! find       scans the notify family from random places; hints come first
//! crew       the tasks that do all this, and how they end
//! handle     lock the row, begin, newest c > ack?, run, commit with ack := s, clear what was seen
//!            (in the commit itself where the column has no other observer)
//! batch      the same for many weak notifications at once
//! ran        how a run has ended, for a watcher
//! set_aside  failing observers: growing delay, then out of the way, durably, and back by replay
//! skip       an operator has an observer skip a change that it keeps failing at
//! row_lock   the advisory lock on what a worker is at, renewed while its observers run
//! leave      leaving notifications, in the row or in the table beside it
//! notified   reading and clearing the notifications of a cell
//! pause      observers that are not to run until they are resumed
//! idle       nothing dirty, and no timestamp issued meanwhile
//! ```

pub(crate) mod admission;
pub(crate) mod admit;
mod batch;
pub(crate) mod change;
pub(crate) mod context;
pub(crate) mod crew;
mod elsewhere;
pub(crate) mod failures;
mod find;
mod handle;
pub(crate) mod hints;
pub(crate) mod idle;
pub(crate) mod leave;
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
pub(crate) mod workers;
