//! Whether garbage collection keeps off a timestamp, asked by those who read or commit at it.
//!
//! A store with a floor answers this in each row operation. Where there is none, the client's own
//! clock does (`gc/unfenced.rs`).

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

/// Whether the commit of a transaction may be sent: it will be applied before anything of the
/// transaction is collected, or not at all.
pub(crate) fn may_commit(shared: &Shared, start_ts: Timestamp) -> bool {
    let to_the_last = || off(mutants::COMMITS_TO_THE_LAST) && shared.readers().holds(start_ts);
    let holds = shared.readers().holds_for_a_request(start_ts) || to_the_last();
    holds || off(mutants::LAPSED_COMMITS)
}

/// To be asked when a read at `s` has its answer.
///
/// # Errors
/// [`Error::TooOld`] when collection may have been faster.
pub(crate) fn check_held(shared: &Shared, s: Timestamp) -> Result<()> {
    if shared.readers().holds(s) || off(mutants::LAPSED_READS) {
        Ok(())
    } else {
        Err(Error::TooOld { asked: s, floor: shared.readers().last() })
    }
}
