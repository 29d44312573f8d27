//! Decides which of several processes serves timestamps: one leads, and the others stand by
//! (paper section 2.3).
//!
//! ```text
//! stand by    reads the record repeatedly; the leader's renewals change it
//! take over   after the *same* record was seen for longer than any lease lasts, on this
//!             process's own monotonic clock: one conditional write on that exact record
//! lead        renews lease and window; ends when another has taken over, or by resigning
//! ```
//!
//! Why a new leader can serve at once: a lease begins when its holder sends a write, and lasts
//! for a fixed time. The record was written before it was first seen, and its lease began
//! before that. A later renewal would have changed the record, and the conditional write would
//! have failed. The wait is a fifth longer than a lease, for clocks that run unevenly (H41).

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{Store, Table};

use crate::mutants::{self, off};
use crate::oracle::lease::{Lease, lease_wait};
use crate::oracle::record::{ADDRESS_BYTES_MAX, Record, read};
use crate::oracle::window_oracle::{WindowOracle, open_table};
use crate::outage::{Ended, Outage};
use crate::runtime::fresh_incarnation;
use crate::{Error, InvalidKind, Result, Runtime};

/// How often a standby reads the record. It reads once more when the last lease that it saw is
/// over. So it notices a leader's death at most one such interval late, and replaces the
/// leader within three seconds.
const LOOK: Duration = Duration::from_millis(250);

/// How often a leader renews its lease: well before the lease expires, so that no request
/// waits for a renewal.
const RENEW: Duration = Duration::from_millis(500);

/// How long a leader waits before it repeats a failed renewal.
const RENEW_AGAIN: Duration = Duration::from_millis(100);

/// The options of a process that may serve timestamps.
///
/// ```
/// # use percolator_core::face as percolator;
/// let options = percolator::cluster::OracleOptions::default();
/// assert!(options.address.is_empty());
/// ```
#[derive(Debug, Clone)]
pub struct OracleOptions {
    /// The address at which clients reach this process, at most 255 bytes. Standbys pass the
    /// leader's address on to clients. Default: none.
    pub address: String,
    /// How many timestamps are reserved ahead. A change of leaders leaves at most this many
    /// unused. Default: 10,000,000 timestamps.
    pub window: u64,
}

impl Default for OracleOptions {
    fn default() -> Self {
        OracleOptions { address: String::new(), window: 10_000_000 }
    }
}

/// The current role of an oracle process.
///
/// See [`OracleNode`].
#[derive(Debug, Clone)]
pub enum OracleRole {
    /// This process serves. The oracle itself refuses requests once it may no longer answer
    /// them.
    Leads(Arc<WindowOracle>),
    /// This process stands by.
    StandsBy {
        /// The address of the last known leader.
        leader: Option<String>,
        /// The error that keeps this process from reading the record or taking over, if there
        /// is one.
        trouble: Option<Error>,
    },
}

/// A process that may serve timestamps. Of all such processes, one at a time leads.
///
/// ```
/// # use percolator_core::face as percolator;
/// # use std::sync::Arc;
/// use percolator::cluster::{Oracle, OracleNode, OracleOptions, OracleRole};
/// use percolator::runtime::Runtime;
/// # let runtime = percolator_core::testing::VirtualRuntime::new(1);
/// # runtime.clone().block_on(async {
/// # let (runtime, store) = (Arc::new(runtime), Arc::new(bigtable::MemoryStore::new()));
/// let node = OracleNode::new(store, runtime.clone(), OracleOptions::default())?;
/// let node = Arc::new(node);
/// let own = node.clone();
/// runtime.spawn(Box::pin(async move { own.run().await }));
/// # runtime.sleep(std::time::Duration::from_millis(1)).await;
/// let OracleRole::Leads(oracle) = node.role() else { panic!("it is the only one") };
/// oracle.timestamp().await?;
/// node.resign().await?;
/// assert!(oracle.timestamp().await.is_err());
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct OracleNode {
    store: Arc<dyn Store>,
    runtime: Arc<dyn Runtime>,
    options: OracleOptions,
    state: Mutex<State>,
    /// The failures to read or write the oracle's record.
    outage: Mutex<Outage>,
}

#[derive(Debug)]
struct State {
    role: OracleRole,
    resigned: bool,
}

/// A record, and since when it has been seen unchanged.
struct Seen {
    record: Record,
    since: Duration,
}

impl OracleNode {
    /// Creates a process that stands by once [`run`](OracleNode::run) runs.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty window or an address that is too long.
    pub fn new(
        store: Arc<dyn Store>,
        runtime: Arc<dyn Runtime>,
        options: OracleOptions,
    ) -> Result<Self> {
        if options.window == 0 {
            return Err(Error::invalid(
                InvalidKind::Options,
                "the oracle's window is 0: give at least 1 timestamp",
            ));
        }
        if options.address.len() > ADDRESS_BYTES_MAX {
            let len = options.address.len();
            let what =
                format!("the oracle's address has {len} bytes: give at most {ADDRESS_BYTES_MAX}");
            return Err(Error::invalid(InvalidKind::Options, what));
        }
        let role = OracleRole::StandsBy { leader: None, trouble: None };
        let state = Mutex::new(State { role, resigned: false });
        Ok(OracleNode { store, runtime, options, state, outage: Mutex::default() })
    }

    /// Reads the leader's address from the record in the store. The leader may have died
    /// since. `None` if no process leads, or if the leader has given no address.
    ///
    /// # Errors
    /// Errors of the store, and [`Error::Corrupt`] if the record cannot be decoded.
    pub async fn leader(store: &dyn Store) -> Result<Option<String>> {
        let table = open_table(store).await?;
        Ok(read(&*table).await?.as_ref().and_then(Record::address))
    }

    /// Returns what this process does at the moment.
    pub fn role(&self) -> OracleRole {
        self.state().role.clone()
    }

    /// Stands by, leads, and stands by again, until the process has
    /// [resigned](OracleNode::resign).
    pub async fn run(&self) {
        while !self.state().resigned {
            match self.stand_by().await {
                Ok(Some(oracle)) => {
                    let oracle = Arc::new(oracle);
                    if self.begin(&oracle) {
                        self.lead(&oracle).await;
                        self.follow(None, None);
                    } else if let Err(error) = oracle.resign().await {
                        tracing::warn!(
                            %error,
                            "this oracle could not write its resignation to the oracle's record"
                        );
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    if let Some(unlogged) = self.failed() {
                        tracing::warn!(
                            event = "oracle_error", %error, unlogged,
                            "this standby oracle cannot read the oracle's record, and tries again"
                        );
                    }
                    self.follow(None, Some(error));
                    self.runtime.sleep(LOOK).await;
                }
            }
        }
    }

    /// Ends this process's part. If it leads, it stops serving at once, and the next leader
    /// need not wait for the end of the lease.
    ///
    /// # Errors
    /// Errors of the store. The next leader has to wait then.
    pub async fn resign(&self) -> Result<()> {
        let role = {
            let mut state = self.state();
            state.resigned = true;
            let role = OracleRole::StandsBy { leader: None, trouble: None };
            std::mem::replace(&mut state.role, role)
        };
        match role {
            OracleRole::Leads(oracle) => oracle.resign().await,
            OracleRole::StandsBy { .. } => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Begins to lead, unless the process has resigned. Returns whether it leads.
    fn begin(&self, oracle: &Arc<WindowOracle>) -> bool {
        let mut state = self.state();
        if !state.resigned {
            state.role = OracleRole::Leads(oracle.clone());
        }
        !state.resigned
    }

    fn follow(&self, leader: Option<String>, trouble: Option<Error>) {
        self.state().role = OracleRole::StandsBy { leader, trouble };
    }

    /// Waits until no process leads any more, and takes over. Returns `None` after resigning.
    async fn stand_by(&self) -> Result<Option<WindowOracle>> {
        let table = open_table(&*self.store).await?;
        let mut seen: Option<Seen> = None;
        while !self.state().resigned {
            let stored = read(&*table).await?;
            self.well();
            // Take the time after the reply: the record was certainly written before it.
            let now = self.runtime.now();
            let since = match (&stored, &seen) {
                (Some(stored), Some(seen)) if *stored == seen.record => seen.since,
                _ => now,
            };
            let free = match &stored {
                None => true,
                Some(record) => {
                    record.resigned()
                        || now.saturating_sub(since) > lease_wait()
                        || off(mutants::NO_WAIT_FOR_LEASE)
                }
            };
            if free && let Some(oracle) = self.take_over(&table, stored.clone()).await? {
                log_take_over(&self.options.address, stored.as_ref());
                return Ok(Some(oracle));
            }
            self.follow(stored.as_ref().and_then(Record::address), None);
            seen = stored.map(|record| Seen { record, since });
            let left = (since + lease_wait()).saturating_sub(self.runtime.now());
            self.runtime.sleep(LOOK.min(left + Duration::from_millis(1))).await;
        }
        Ok(None)
    }

    async fn take_over(
        &self,
        table: &Arc<dyn Table>,
        stored: Option<Record>,
    ) -> Result<Option<WindowOracle>> {
        let lease = Lease::new(self.runtime.clone(), self.options.address.clone());
        let holder = fresh_incarnation(&*self.runtime);
        let window = self.options.window;
        WindowOracle::replacing(table.clone(), stored, holder, window, Some(lease)).await
    }

    /// Renews the lease and the window until another oracle has taken over or this one has
    /// resigned.
    async fn lead(&self, oracle: &WindowOracle) {
        tracing::info!(
            event = "oracle_leads", address = %self.options.address,
            "this process serves timestamps"
        );
        while !oracle.is_over() {
            let pause = match oracle.renew().await {
                Ok(()) => {
                    self.well();
                    RENEW
                }
                Err(error) => {
                    if let Some(unlogged) = self.failed() {
                        tracing::warn!(
                            event = "oracle_error", %error, unlogged,
                            "the oracle's lease could not be renewed, and this process tries again"
                        );
                    }
                    RENEW_AGAIN
                }
            };
            if !oracle.is_over() {
                self.runtime.sleep(pause).await;
            }
        }
        tracing::info!(
            event = "oracle_leads_no_more", address = %self.options.address,
            "this process no longer serves timestamps"
        );
    }

    /// Counts a failure. Returns how many were not logged before it, if it is to be logged.
    fn failed(&self) -> Option<u64> {
        locked(&self.outage).failed(self.runtime.now())
    }

    /// Logs the end of an outage after a success.
    fn well(&self) {
        let ended = locked(&self.outage).succeeded(|| self.runtime.now());
        if let Some(Ended { lasted, failed }) = ended {
            tracing::info!(
                event = "well_again",
                failed,
                "well again after {lasted:.1?}: the oracle's record can be read and written"
            );
        }
    }
}

/// Logs that this process has become the leader, and why the place was free.
fn log_take_over(address: &str, before: Option<&Record>) {
    let why = match before {
        None => "no oracle led before",
        Some(record) if record.resigned() => "the last leader has resigned",
        Some(_) => "the last leader's lease has expired",
    };
    let from = before.and_then(Record::address);
    tracing::info!(event = "oracle_takes_over", address, from, "this oracle takes over: {why}");
}
