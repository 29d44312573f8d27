//! Takes timestamps too early: commit timestamps before the locks (H08), start timestamps
//! before the transaction (H39).
//!
//! A client requests both kinds from its oracle in the same way, so this module must distinguish
//! them. Once the last prewrite of a transaction has placed its locks, the transaction's next
//! request is for its commit timestamp. So a request to the oracle that directly follows the
//! answer to such a prewrite is for a commit. Every other request is for a begin.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bigtable::mutants::off;
use bigtable::sync::locked;
use bigtable::{ConditionalMutation, Timestamp};
use percolator_core::{Oracle, Result, Stamp, async_trait};

use super::list::{COMMIT_TS_FIRST, STALE_BEGIN};
use super::requests::{abort_of, prewrite_of};
use crate::oracle_layer::OracleLayer;

/// The transactions of one client that have started to place locks and have no commit
/// timestamp yet.
#[derive(Debug)]
pub(super) struct Phases {
    oracle: Arc<dyn Oracle>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<Timestamp, Phase>,
    /// The transaction whose last prewrite in flight was the client's latest request.
    prewritten: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Phase {
    /// How many prewrites are in flight.
    in_flight: usize,
    /// The timestamp that was taken before the first prewrite.
    early: Option<Stamp>,
}

impl Phases {
    pub(super) fn new(oracle: Arc<dyn Oracle>) -> Self {
        Phases { oracle, state: Mutex::default() }
    }

    /// Records a request that is about to be sent. Returns the transaction whose prewrite it is.
    pub(super) async fn sends(&self, request: &ConditionalMutation) -> Option<Timestamp> {
        if !off(COMMIT_TS_FIRST) && !off(STALE_BEGIN) {
            return None;
        }
        self.passes();
        if let Some(start_ts) = abort_of(request) {
            locked(&self.state).open.remove(&start_ts);
        }
        let start_ts = prewrite_of(request)?;
        let known = locked(&self.state).open.contains_key(&start_ts);
        let early =
            if off(COMMIT_TS_FIRST) && !known { self.oracle.timestamp().await.ok() } else { None };
        let mut state = locked(&self.state);
        let phase = state.open.entry(start_ts).or_default();
        phase.in_flight += 1;
        phase.early = phase.early.or(early);
        Some(start_ts)
    }

    /// Records the answer to a prewrite: `found` is whether its predicate matched.
    pub(super) fn answered(&self, sent: Option<Timestamp>, found: &bigtable::Result<bool>) {
        let Some(start_ts) = sent else { return };
        let mut state = locked(&self.state);
        if let Some(phase) = state.open.get_mut(&start_ts) {
            phase.in_flight -= 1;
            let is_last = phase.in_flight == 0 && matches!(found, Ok(false));
            state.prewritten = is_last.then_some(start_ts);
        }
    }

    /// Records a request of any other kind.
    pub(super) fn passes(&self) {
        locked(&self.state).prewritten = None;
    }

    /// Removes and returns the transaction that requests its commit timestamp, if one does.
    fn prewritten(&self) -> Option<Phase> {
        let mut state = locked(&self.state);
        let start_ts = state.prewritten.take()?;
        state.open.remove(&start_ts)
    }
}

/// Takes timestamps too early, as the mutants demand.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) phases: Arc<Phases>,
    /// A timestamp that is kept for the next transaction.
    pub(super) kept: Mutex<Option<Stamp>>,
}

#[async_trait]
impl OracleLayer for Ahead {
    async fn timestamp(&self, inner: &dyn Oracle) -> Result<Stamp> {
        let prewritten = self.phases.prewritten();
        if let Some(early) = prewritten.as_ref().and_then(|phase| phase.early) {
            return Ok(early);
        }
        let stamp = inner.timestamp().await?;
        if prewritten.is_some() || !off(STALE_BEGIN) {
            return Ok(stamp);
        }
        let kept = locked(&self.kept).replace(stamp);
        match kept {
            Some(stale) => Ok(stale),
            None => inner.timestamp().await,
        }
    }

    fn in_memory(&self, inner: &dyn Oracle) -> Option<Stamp> {
        inner.timestamp_in_memory()
    }
}
