//! Takes away defences by wrapping a client's store or oracle, so that the protocol's own
//! files need no switch for them. Two defences are taken from the simulated store server instead.
//! It is silent after a power cut, and it locks a row whose change waits for the log.
//!
//! ```text
//!   percolator-core, with this defence as with every other
//!   mutated     leaves probes, bounds and mutations out of requests; tells the client of only one
//!               tablet; hands out timestamps that were taken ahead
//!   the client's store and oracle
//! ```
//!
//! Each mutant has the effect that a switch in the protocol would have. The wrapper recognises
//! requests by what they write. Only a build with `--cfg mutants` wraps anything. In every
//! other build `services` returns its argument.

mod ahead;
mod list;
mod requests;
mod table;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::Syncing;
use bigtable::mutants::off;
use percolator_core::Services;

use crate::oracle_layer::Layered;
use ahead::{Ahead, Phases};
pub use list::ALL;
use list::NO_SILENCE;
pub(crate) use list::WAITING_ROW_IS_FREE;
#[cfg(mutants)]
pub use list::switch_off;
use table::MutatedStore;

/// Returns a client's services, without the defence that is switched off.
pub(crate) fn services(services: Services) -> Services {
    if !ALL.iter().any(|mutant| off(*mutant)) {
        return services;
    }
    let Services { store, oracle, locks, runtime } = services;
    let phases = Arc::new(Phases::new(oracle.clone()));
    Services {
        store: Arc::new(MutatedStore { inner: store, phases: phases.clone() }),
        oracle: Arc::new(Layered {
            inner: oracle,
            layer: Ahead { phases, kept: Mutex::default() },
        }),
        locks,
        runtime,
    }
}

/// Returns how long a store is silent after a power cut of its machine.
pub(crate) fn silence() -> Duration {
    if off(NO_SILENCE) { Duration::ZERO } else { Syncing::SILENCE }
}
