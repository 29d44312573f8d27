//! Runs a transaction, from its start timestamp to its last lock (paper section 2.2, Figure
//! 6).
//!
//! ```text
//! begin        a timestamp, and what is kept for it    open_readers  the timestamps that are open
//! transaction  get, set, delete, notify                snapshot   reads alone
//! transact     runs a function again after a conflict
//! get, scan    one cell, many rows                     held       are these versions kept?
//! read_ahead   the columns that come next              predictor  which those are
//! buffer       writes that are not committed yet
//! plan         the writes by row, and the primary      limits     do they fit in requests?
//! prewrite     lock every row                          heartbeat  the locks of a long prewrite
//! commit       the primary's row, then the others      settle     a reply was lost
//! one_step     both phases in one batch, where store and oracle are in this process
//! abort        remove one's own locks                  finish     the future was dropped
//!                                                      unfinished or is not polled
//! watched      names, causes and times, for a watcher and the trace
//! rows         the only builder of row operations
//! ```

pub(crate) mod abort;
pub(crate) mod begin;
pub(crate) mod buffer;
pub(crate) mod commit;
pub(crate) mod finish;
pub(crate) mod get;
pub(crate) mod heartbeat;
pub(crate) mod held;
pub(crate) mod limits;
pub(crate) mod lock_waits;
pub(crate) mod one_step;
pub(crate) mod open_readers;
pub(crate) mod plan;
pub(crate) mod predictor;
pub(crate) mod prewrite;
pub(crate) mod read_ahead;
pub(crate) mod row_plan;
pub(crate) mod rows;
pub(crate) mod scan;
pub(crate) mod settle;
pub(crate) mod snapshot;
pub(crate) mod transact;
pub(crate) mod transaction;
mod unfinished;
pub(crate) mod watched;
