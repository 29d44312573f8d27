//! Registers a snapshot at once, so that no collection of any client passes it.
//!
//! On a store with a floor a timestamp is registered only when it has been open for a while
//! (`readers.rs`). A retention that is shorter than this ends the reads of another client. So a
//! caller that reads for long can hold its snapshot from the beginning.
//!
//! The registration is stored before the snapshot takes its timestamp *s*. A round that reads
//! the registrations later finds it. A round that has read them before took its own latest
//! timestamp before that, and its safe point is not above that timestamp. So the safe point is
//! not above *s*.
//!
//! A snapshot of the past can still fall below the safe point of a round that has read the
//! registrations before. Then its reads fail, and never return too little (H35).

use std::sync::Arc;

use bigtable::Timestamp;

use crate::gc::readers::renew_registration;
use crate::shared::Shared;
use crate::txn::begin::{snapshot, snapshot_at};
use crate::{Result, Snapshot};

/// Returns a snapshot at a timestamp, or at the latest one, that is registered from now on.
pub(crate) async fn held_snapshot(shared: &Arc<Shared>, at: Option<Timestamp>) -> Result<Snapshot> {
    let open = async || match at {
        Some(at) => snapshot_at(shared, at).await,
        None => snapshot(shared).await,
    };
    if shared.unfenced().is_some() {
        // Each open timestamp of such a store is young or registered.
        return open().await;
    }
    let hold = shared.readers().hold();
    // The registration names this one, until the next renewal.
    let first = open().await?;
    let count = shared.runtime().random();
    renew_registration(shared, first.timestamp(), count).await?;
    Ok(open().await?.held_by(hold))
}
