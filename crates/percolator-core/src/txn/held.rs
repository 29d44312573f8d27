//! Checks whether garbage collection still keeps the versions at a timestamp, for operations
//! that read or commit there.
//!
//! A store with a floor checks this in each row operation. On a store without one, the
//! client's own clock decides (`gc/unfenced.rs`).

use bigtable::Timestamp;

use crate::mutants::{self, off};
use crate::shared::Shared;
use crate::{Error, Result};

/// Whether records of a transaction may have been collected by now.
pub(crate) fn may_be_collected(shared: &Shared, start_ts: Timestamp) -> bool {
    match shared.unfenced() {
        None => start_ts <= shared.services().store.floor(),
        Some(_) => !shared.readers().holds(start_ts),
    }
}

/// Whether the commit of a transaction may be sent. If so, the store evaluates its predicate
/// before any record of the transaction is collected, or never.
pub(crate) fn may_commit(shared: &Shared, start_ts: Timestamp) -> bool {
    let to_the_last = || off(mutants::COMMITS_TO_THE_LAST) && shared.readers().holds(start_ts);
    let holds = shared.readers().holds_for_a_request(start_ts) || to_the_last();
    holds || off(mutants::LAPSED_COMMITS)
}

/// Checks a read at `s`. Call this after the answer has come.
///
/// # Errors
/// [`Error::TooOld`] if collection may have overtaken the read.
pub(crate) fn check_held(shared: &Shared, s: Timestamp) -> Result<()> {
    if shared.readers().holds(s) || off(mutants::LAPSED_READS) {
        Ok(())
    } else {
        Err(Error::TooOld { asked: s, floor: shared.readers().last() })
    }
}
