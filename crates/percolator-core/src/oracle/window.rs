//! Issues timestamps from windows that it reserves in the store (paper section 2.3).
//!
//! ```text
//! stored record:  epoch | limit | schema version | holder ...
//!                         ^ every timestamp below may have been issued
//! memory:         next <= limit;  next rises by compare-and-swap, limit rises after a write
//! ```
//!
//! Invariants:
//!
//! * A window is in stable storage, synced, *before* any of its timestamps is issued. After a
//!   restart the oracle begins at the stored limit, so no timestamp is issued twice (H40).
//! * The record is extended by a conditional write on the record that was last seen, so two
//!   oracles cannot both succeed (H41).
//! * Within one process neither `next` nor `limit` goes back, so "below the limit, then swap"
//!   needs no lock (H44). The exception is the `limit` of an oracle that was superseded: it
//!   becomes zero.
//!
//! A window alone does not make fail-over safe. An oracle that was paused may wake inside its
//! window, and issue timestamps below those of its successor. So where several processes may
//! serve one store, each of them *leads* under a lease ([`WindowOracle::lead`]). When a
//! request has arrived, it checks on its own clock that its lease still holds, or renews the
//! lease. Only then it answers. Its successor answers nothing until that lease has expired. So
//! an answer that a pause delays still belongs to a request from before the successor's first
//! answer (H41). [`OracleNode`](crate::OracleNode) decides when to take over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bigtable::{Syncing, Table, Timestamp};
use futures::lock::Mutex;

use crate::mutants::{self, off};
use crate::oracle::record::{Lead, Record, read, replace};
use crate::oracle::{Oracle, Stamp, StampRange};
use crate::records::layout::{SYSTEM_TABLE, open_system};
use crate::records::lock::Incarnation;
use crate::{Error, InvalidKind, Result, Runtime};

/// How many timestamps one write to the store reserves.
pub(crate) const WINDOW: u64 = 1_000_000;

/// Most timestamps that one request may ask for.
pub const TIMESTAMPS_MAX: u32 = 65_536;

/// How far above the highest timestamp found those of a repaired or restored store begin. An
/// oracle reserves a million at a time.
const FAR: u64 = 1 << 40;

/// How often one change of the record is tried.
const WRITES_MAX: u32 = 4;

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

/// The oracle of a single process.
///
/// ```
/// # use percolator_core::face as percolator;
/// # use std::sync::Arc;
/// # futures::executor::block_on(async {
/// use percolator::admin::Incarnation;
/// use percolator::cluster::{Oracle, WindowOracle};
/// let store = bigtable::MemoryStore::new();
/// let oracle = WindowOracle::open(&store, Incarnation(1)).await?;
/// let last = oracle.timestamp().await?.timestamp;
/// drop(oracle);
/// let restarted = WindowOracle::open(&store, Incarnation(2)).await?;
/// assert!(restarted.timestamp().await?.timestamp > last);
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct WindowOracle {
    table: Arc<dyn Table>,
    /// The next timestamp to issue.
    next: AtomicU64,
    /// The first timestamp that is not reserved.
    limit: AtomicU64,
    schema_version: AtomicU64,
    /// How many timestamps one write to the store reserves.
    window: u64,
    /// `None` when no other process can serve this store.
    lease: Option<Lease>,
    /// The stored record as this oracle last wrote it; `None` once another oracle has taken over.
    record: Mutex<Option<Record>>,
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

impl WindowOracle {
    /// Takes over the store's oracle record under a new epoch. `holder` must be fresh.
    ///
    /// Use this only for a store that no two processes have open at the same time. An oracle
    /// that was opened earlier in this way must no longer serve. For any other store use
    /// [`lead`](WindowOracle::lead).
    ///
    /// # Errors
    /// [`Error::Oracle`] if another oracle takes over at the same moment, and errors of the
    /// store.
    pub async fn open(store: &dyn bigtable::Store, holder: Incarnation) -> Result<Self> {
        let table = open_table(store).await?;
        let stored = read(&*table).await?;
        let oracle = WindowOracle::replacing(table, stored, holder, WINDOW, None).await?;
        oracle.ok_or_else(superseded)
    }

    /// Raises the store's oracle record, so that every timestamp issued from now on is above
    /// `to`.
    ///
    /// Use it after a store was repaired or restored, when it may hold cells with timestamps
    /// above its record. No oracle may serve the store meanwhile, and `holder` must be fresh.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # futures::executor::block_on(async {
    /// use bigtable::Timestamp;
    /// use percolator::admin::Incarnation;
    /// use percolator::cluster::{Oracle, WindowOracle};
    /// let store = bigtable::MemoryStore::new();
    /// let to = WindowOracle::far_above(Timestamp::ZERO)?;
    /// WindowOracle::raise(&store, Incarnation(1), to).await?;
    /// let oracle = WindowOracle::open(&store, Incarnation(2)).await?;
    /// assert!(oracle.timestamp().await?.timestamp > to);
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`open`](WindowOracle::open).
    pub async fn raise(
        store: &dyn bigtable::Store,
        holder: Incarnation,
        to: Timestamp,
    ) -> Result<()> {
        let oracle = WindowOracle::open(store, holder).await?;
        let mut held = oracle.record.lock().await;
        let limit = to.as_u64().saturating_add(1).min(Timestamp::MAX.as_u64());
        let raised = |old: Record| Ok(Record { limit: old.limit.max(limit), ..old });
        oracle.write(&mut held, raised).await.map(drop)
    }

    /// The timestamp above which a repaired or restored store begins, if `seen` is the highest
    /// one in it. Others may have seen later ones, which the store has lost.
    ///
    /// See [`raise`](WindowOracle::raise) for an example.
    ///
    /// # Errors
    /// [`Error::Oracle`] if there are no such timestamps any more.
    pub fn far_above(seen: Timestamp) -> Result<Timestamp> {
        let above = Timestamp::new(seen.as_u64().saturating_add(FAR));
        above.ok_or_else(|| Error::Oracle("the 2^53 timestamps are used up".to_owned()))
    }

    /// Takes over the store's oracle record from the oracle that serves it, and waits until
    /// that oracle's lease has expired on `runtime`'s clock. Safe with any number of oracles
    /// that lead. Reserves `window` timestamps at a time. `holder` must be fresh.
    ///
    /// Clocks may run up to 9 percent too fast or too slow, and must go on while the machine
    /// sleeps.
    ///
    /// As [`open`](WindowOracle::open), and [`Error::Invalid`] for an empty window.
    pub async fn lead(
        store: &dyn bigtable::Store,
        holder: Incarnation,
        runtime: Arc<dyn Runtime>,
        window: u64,
    ) -> Result<Self> {
        if window == 0 {
            return Err(Error::invalid(
                InvalidKind::Options,
                "the oracle's window is 0: give at least 1 timestamp",
            ));
        }
        let table = open_table(store).await?;
        let stored = read(&*table).await?;
        let (lease, succeeds) = (Lease::new(runtime.clone(), String::new()), stored.is_some());
        let oracle = WindowOracle::replacing(table, stored, holder, window, Some(lease)).await?;
        let oracle = oracle.ok_or_else(superseded)?;
        if succeeds && !off(mutants::NO_WAIT_FOR_LEASE) {
            // This oracle now owns the record, so the other one can no longer renew its lease.
            runtime.sleep(lease_wait()).await;
        }
        Ok(oracle)
    }

    /// Makes this oracle the holder of the record, if `stored` is still the stored record.
    pub(super) async fn replacing(
        table: Arc<dyn Table>,
        stored: Option<Record>,
        holder: Incarnation,
        window: u64,
        lease: Option<Lease>,
    ) -> Result<Option<Self>> {
        let mut record = match &stored {
            Some(old) => Record { epoch: old.epoch.saturating_add(1), holder, ..old.clone() },
            None => Record { epoch: 1, limit: 1, schema_version: 0, holder, lead: None },
        };
        record.lead = lease.as_ref().map(|lease| lease.sign(false));
        if !replace(&*table, stored.as_ref(), &record).await? {
            return Ok(None);
        }
        Ok(Some(WindowOracle {
            table,
            next: AtomicU64::new(record.limit),
            limit: AtomicU64::new(record.limit),
            schema_version: AtomicU64::new(record.schema_version),
            window,
            lease,
            record: Mutex::new(Some(record)),
        }))
    }

    /// Issues consecutive timestamps, at most [`TIMESTAMPS_MAX`]. Each is higher than every
    /// one whose reply was sent before this request was made.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `count` is zero or too large; [`Error::Oracle`] if no timestamps
    /// can be issued.
    pub async fn timestamps(&self, count: u32) -> Result<StampRange> {
        if count == 0 || count > TIMESTAMPS_MAX {
            let what = format!("{count} timestamps in one request: ask for 1 to {TIMESTAMPS_MAX}");
            return Err(Error::invalid(InvalidKind::Options, what));
        }
        self.lead_now().await?;
        loop {
            if let Some(range) = self.take_stamped(count) {
                return Ok(range);
            }
            self.extend(u64::from(count)).await?;
        }
    }

    fn take_stamped(&self, count: u32) -> Option<StampRange> {
        let early = off(mutants::VERSION_BEFORE_TIMESTAMP).then(|| {
            let version = self.schema_version.load(Ordering::SeqCst);
            // Spins for long enough that another thread can raise the version meanwhile.
            (0..2000).for_each(|_| std::hint::spin_loop());
            version
        });
        let first = self.take(u64::from(count))?;
        // Read the version after taking the timestamps. A client that sees an old version here
        // then holds timestamps below that of the sweep. The sweep follows the raise, and
        // finds the client's writes (H59).
        let schema_version = early.unwrap_or_else(|| self.schema_version.load(Ordering::SeqCst));
        Some(StampRange { first, count, schema_version })
    }

    /// Extends the lease and fills up the window, so that requests wait for neither.
    pub(super) async fn renew(&self) -> Result<()> {
        let mut held = self.record.lock().await;
        let filled = |old: Record| {
            let full = self.next.load(Ordering::SeqCst).saturating_add(self.window);
            // `extend` reports the error when timestamps run out; here the limit is only
            // capped.
            let limit = old.limit.max(full.min(Timestamp::MAX.as_u64() - 1));
            Ok(Record { limit, ..old })
        };
        let record = self.write(&mut held, filled).await?;
        self.limit.store(record.limit, Ordering::SeqCst);
        Ok(())
    }

    /// Stops serving, and records that, so that a successor need not wait.
    pub(super) async fn resign(&self) -> Result<()> {
        let mut held = self.record.lock().await;
        let last = held.take();
        // Close before the record is written: a successor may serve as soon as it reads the
        // record.
        if !off(mutants::RESIGNED_BEFORE_CLOSED) {
            self.close();
        }
        let (Some(last), Some(lease)) = (last, &self.lease) else { return Ok(()) };
        let resigned = Record { lead: Some(lease.sign(true)), ..last.clone() };
        // If another oracle has taken over meanwhile, there is nothing left to do.
        let replaced = replace(&*self.table, Some(&last), &resigned).await;
        if off(mutants::RESIGNED_BEFORE_CLOSED) {
            self.close();
        }
        replaced.map(drop)
    }

    /// Stops serving at once, even if the lease still holds.
    fn close(&self) {
        self.limit.store(0, Ordering::SeqCst);
        if let Some(lease) = &self.lease {
            lease.until.store(0, Ordering::SeqCst);
        }
    }

    /// Whether this oracle has resigned, or knows that another one has taken over.
    pub(super) fn is_over(&self) -> bool {
        self.limit.load(Ordering::SeqCst) == 0
    }

    /// Ensures that this oracle led at some moment after the call: by its lease, or otherwise
    /// by writing to the store. A successor serves nothing before that moment. So every answer
    /// of this oracle, after however long a pause, belongs to a request from before the
    /// successor's first answer (H41).
    async fn lead_now(&self) -> Result<()> {
        let Some(lease) = &self.lease else { return Ok(()) };
        if lease.holds() || off(mutants::NO_LEASE) {
            return Ok(());
        }
        let mut held = self.record.lock().await;
        if !lease.holds() {
            self.write(&mut held, Ok).await?;
        }
        Ok(())
    }

    /// Takes the next timestamps out of the window and returns the first. `None` if the window
    /// has too few.
    fn take(&self, count: u64) -> Option<Timestamp> {
        let mut next = self.next.load(Ordering::SeqCst);
        while next + count <= self.limit.load(Ordering::SeqCst) {
            match self.next.compare_exchange_weak(
                next,
                next + count,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return Timestamp::new(next),
                Err(seen) => next = seen,
            }
        }
        None
    }

    async fn extend(&self, count: u64) -> Result<()> {
        let mut held = self.record.lock().await;
        if self.next.load(Ordering::SeqCst) + count <= self.limit.load(Ordering::SeqCst) {
            return Ok(());
        }
        let extended = |old: Record| match old.limit.saturating_add(self.window.max(count)) {
            limit if limit < Timestamp::MAX.as_u64() => Ok(Record { limit, ..old }),
            _ => Err(Error::Oracle("the 2^53 timestamps are used up".to_owned())),
        };
        if off(mutants::WINDOW_NOT_STORED) {
            self.limit.fetch_add(self.window.max(count), Ordering::SeqCst);
            return Ok(());
        }
        let record = self.write(&mut held, extended).await?;
        self.limit.store(record.limit, Ordering::SeqCst);
        Ok(())
    }

    /// Replaces the stored record by the one that `change` returns, and extends the lease.
    async fn write(
        &self,
        held: &mut Option<Record>,
        change: impl Fn(Record) -> Result<Record>,
    ) -> Result<Record> {
        for _ in 0..WRITES_MAX {
            let old = held.clone().ok_or_else(superseded)?;
            let mut new = change(old.clone())?;
            let asked = self.lease.as_ref().map(|lease| (lease, lease.runtime.now()));
            new.lead = self.lease.as_ref().map(|lease| lease.sign(false));
            if replace(&*self.table, Some(&old), &new).await? {
                *held = Some(new.clone());
                if let Some((lease, asked)) = asked {
                    lease.extend(asked + LEASE);
                }
                return Ok(new);
            }
            // A request of this oracle may have been applied late, after its reply was given
            // up. Only such a request carries this holder's name (H43).
            let own = |stored: &Record| {
                stored.holder == old.holder && !off(mutants::OWN_RECORD_IS_FOREIGN)
            };
            *held = read(&*self.table).await?.filter(own);
            if held.is_none() && !off(mutants::SUPERSEDED_SERVES) {
                // Another oracle has taken over, so no timestamp of this oracle's window may
                // be issued any more (H42).
                self.limit.store(0, Ordering::SeqCst);
            }
        }
        Err(superseded())
    }
}

impl Lease {
    pub(super) fn new(runtime: Arc<dyn Runtime>, address: String) -> Self {
        Lease { runtime, address, until: AtomicU64::new(0), attempts: AtomicU64::new(0) }
    }

    /// Signs the next attempt to write the record. No two signatures are equal, so a standby
    /// that sees the record unchanged knows that no lease began meanwhile.
    fn sign(&self, resigned: bool) -> Lead {
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst) + 1;
        Lead { attempt, resigned, address: self.address.clone() }
    }

    fn holds(&self) -> bool {
        self.runtime.now() < Duration::from_nanos(self.until.load(Ordering::SeqCst))
    }

    fn extend(&self, until: Duration) {
        let nanos = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.until.fetch_max(nanos, Ordering::SeqCst);
    }
}

#[async_trait]
impl Oracle for WindowOracle {
    async fn timestamp(&self) -> Result<Stamp> {
        let StampRange { first, schema_version, .. } = self.timestamps(1).await?;
        Ok(Stamp { timestamp: first, schema_version })
    }

    fn issues_in_memory(&self) -> bool {
        true
    }

    fn timestamp_in_memory(&self) -> Option<Stamp> {
        let leads = self.lease.as_ref().is_none_or(Lease::holds) || off(mutants::NO_LEASE);
        let StampRange { first, schema_version, .. } = leads.then(|| self.take_stamped(1))??;
        Some(Stamp { timestamp: first, schema_version })
    }

    async fn peek(&self) -> Result<Timestamp> {
        self.lead_now().await?;
        let next = self.next.load(Ordering::SeqCst);
        if self.is_over() {
            return Err(superseded());
        }
        Ok(Timestamp::new(next - 1).expect("the window lies below 2^53"))
    }

    async fn schema_version(&self) -> Result<u64> {
        self.lead_now().await?;
        Ok(self.schema_version.load(Ordering::SeqCst))
    }

    async fn raise_schema_version(&self, version: u64) -> Result<()> {
        let mut held = self.record.lock().await;
        if version > held.as_ref().ok_or_else(superseded)?.schema_version {
            let raised = |old| Ok(Record { schema_version: version, ..old });
            self.write(&mut held, raised).await?;
        }
        self.schema_version.fetch_max(version, Ordering::SeqCst);
        Ok(())
    }
}

/// Opens Percolator's own table.
pub(super) async fn open_table(store: &dyn bigtable::Store) -> Result<Arc<dyn Table>> {
    Ok(open_system(store, SYSTEM_TABLE).await?)
}

fn superseded() -> Error {
    Error::Oracle("another oracle has taken over this store: open it again".to_owned())
}
