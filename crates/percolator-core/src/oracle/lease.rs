//! The lease of a leading oracle: until when it may serve without writing its record again (H41).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bigtable::Syncing;

use crate::Runtime;
use crate::mutants::{self, off};
use crate::oracle::record::Lead;

/// How long a leading oracle may serve after it began a successful write of the record. All
/// oracles of a store must agree on this length, so it is not an option.
const LEASE: Duration = Duration::from_secs(2);

/// How long a successor waits on its own clock: the lease, plus a fifth for clocks that run
/// unevenly.
const LEASE_WAIT: Duration = Duration::from_millis(2400);

// A restarted store that may have lost a renewal is silent for at least this long (H71).
const _: () = assert!(LEASE_WAIT.as_millis() <= Syncing::SILENCE.as_millis());

/// How long a successor waits on its own clock.
pub(super) fn lease_wait() -> Duration {
    if off(mutants::WAITS_LESS_THAN_A_LEASE) { Duration::from_millis(1950) } else { LEASE_WAIT }
}

/// Until when an oracle may serve without writing the record again.
#[derive(Debug)]
pub(super) struct Lease {
    runtime: Arc<dyn Runtime>,
    /// The address at which clients reach this oracle.
    address: String,
    /// The end of the lease on the runtime's monotonic clock, in nanoseconds.
    until: AtomicU64,
    /// How many writes of the record were attempted.
    attempts: AtomicU64,
}

impl Lease {
    pub(super) fn new(runtime: Arc<dyn Runtime>, address: String) -> Self {
        Lease { runtime, address, until: AtomicU64::new(0), attempts: AtomicU64::new(0) }
    }

    /// Signs the next attempt to write the record. No two signatures are equal, so a standby
    /// that sees the record unchanged knows that no lease began meanwhile.
    pub(super) fn sign(&self, resigned: bool) -> Lead {
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst) + 1;
        Lead { attempt, resigned, address: self.address.clone() }
    }

    pub(super) fn holds(&self) -> bool {
        self.runtime.now() < Duration::from_nanos(self.until.load(Ordering::SeqCst))
    }

    /// The end of a lease whose write begins now.
    pub(super) fn next_end(&self) -> Duration {
        self.runtime.now() + LEASE
    }

    pub(super) fn extend(&self, until: Duration) {
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.until.fetch_max(nanos, Ordering::SeqCst);
    }

    /// Ends the lease at once.
    pub(super) fn end(&self) {
        self.until.store(0, Ordering::SeqCst);
    }
}
