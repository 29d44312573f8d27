//! Caches the outcomes of other transactions, and lets only one task of this client resolve a
//! transaction at a time.
//!
//! Invariant: only verdicts that the primary's row decided are kept. "Still alive" is never
//! kept, because the next look may find the owner dead (H34).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use bigtable::Timestamp;
use bigtable::sync::locked;

use crate::mutants::{self, off};

/// How many verdicts a client remembers.
const VERDICTS_MAX: usize = 4096;

/// The final outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Committed(Timestamp),
    RolledBack,
}

#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    verdicts: BTreeMap<Timestamp, Verdict>,
    /// Start timestamps in the order in which their verdicts came.
    order: VecDeque<Timestamp>,
    /// Transactions that a task is resolving now.
    flights: BTreeMap<Timestamp, Weak<futures::lock::Mutex<()>>>,
}

impl Verdicts {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        locked(&self.state)
    }

    pub(crate) fn of(&self, start_ts: Timestamp) -> Option<Verdict> {
        self.state().verdicts.get(&start_ts).copied()
    }

    pub(crate) fn remember(&self, start_ts: Timestamp, verdict: Verdict) {
        let mut state = self.state();
        if state.verdicts.insert(start_ts, verdict).is_none() {
            state.order.push_back(start_ts);
        }
        if state.order.len() > VERDICTS_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            state.verdicts.remove(&oldest);
        }
    }

    /// The mutex under which one transaction is resolved. Many tasks that find locks of one
    /// dead transaction then ask its primary once (H26).
    pub(crate) fn flight(&self, start_ts: Timestamp) -> Arc<futures::lock::Mutex<()>> {
        let mut state = self.state();
        let shared = !off(mutants::NO_SINGLE_FLIGHT);
        if let Some(flight) = state.flights.get(&start_ts).and_then(Weak::upgrade)
            && shared
        {
            return flight;
        }
        state.flights.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::new(futures::lock::Mutex::new(()));
        state.flights.insert(start_ts, Arc::downgrade(&flight));
        flight
    }
}
