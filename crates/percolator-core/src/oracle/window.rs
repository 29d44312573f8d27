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

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bigtable::sync::locked;
use bigtable::{Table, Timestamp};

use crate::mutants::{self, off};
use crate::oracle::StampRange;
use crate::oracle::lease::Lease;
use crate::oracle::record::{Record, read, replace};
use crate::{Error, Result};

/// How often one change of the record is tried.
const WRITES_MAX: u32 = 4;

/// The window of an oracle, and its record in the store. Its oracle lets one call at a time
/// change the record.
#[derive(Debug)]
pub(super) struct Window {
    table: Arc<dyn Table>,
    /// The next timestamp to issue.
    next: AtomicU64,
    /// The first timestamp that is not reserved.
    limit: AtomicU64,
    schema_version: AtomicU64,
    /// How many timestamps one write to the store reserves.
    size: u64,
    /// `None` when no other process can serve this store.
    lease: Option<Lease>,
    /// The stored record as this oracle last wrote it; `None` once another oracle has taken over.
    record: Mutex<Option<Record>>,
    /// How many attempts to change the record have begun for requests.
    begun: AtomicU64,
    /// The last such attempt that failed in the store, by its number, and the error. `None` after
    /// a write that succeeded.
    failed: Mutex<Option<(u64, Error)>>,
}

impl Window {
    /// The window of an oracle that has just stored this record.
    pub(super) fn new(
        table: Arc<dyn Table>,
        record: Record,
        size: u64,
        lease: Option<Lease>,
    ) -> Self {
        Window {
            table,
            next: AtomicU64::new(record.limit),
            limit: AtomicU64::new(record.limit),
            schema_version: AtomicU64::new(record.schema_version),
            size,
            lease,
            record: Mutex::new(Some(record)),
            begun: AtomicU64::new(0),
            failed: Mutex::default(),
        }
    }

    /// Whether this oracle may serve without a write to the store.
    pub(super) fn leads(&self) -> bool {
        self.lease.as_ref().is_none_or(Lease::holds) || off(mutants::NO_LEASE)
    }

    /// Takes timestamps out of the window; `None` if it has too few.
    pub(super) fn take_stamped(&self, count: u32) -> Option<StampRange> {
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

    /// The highest timestamp issued so far.
    pub(super) fn last(&self) -> Timestamp {
        Timestamp::new(self.next.load(Ordering::SeqCst) - 1).expect("the window lies below 2^53")
    }

    pub(super) fn schema_version(&self) -> u64 {
        self.schema_version.load(Ordering::SeqCst)
    }

    /// Extends the lease and fills up the window, so that requests wait for neither.
    pub(super) async fn renew(&self) -> Result<()> {
        let filled = |old: Record| {
            let full = self.next.load(Ordering::SeqCst).saturating_add(self.size);
            // `extend` reports the error when timestamps run out; here the limit is only
            // capped.
            let limit = old.limit.max(full.min(Timestamp::MAX.as_u64() - 1));
            Ok(Record { limit, ..old })
        };
        let record = self.write(filled).await?;
        self.limit.store(record.limit, Ordering::SeqCst);
        Ok(())
    }

    /// Stops serving, and records that, so that a successor need not wait.
    pub(super) async fn resign(&self) -> Result<()> {
        let last = locked(&self.record).take();
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
            lease.end();
        }
    }

    /// Whether this oracle has resigned, or knows that another one has taken over.
    pub(super) fn is_over(&self) -> bool {
        self.limit.load(Ordering::SeqCst) == 0
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

    /// How many attempts have begun. A request notes the number when it is made.
    pub(super) fn attempts_begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Changes the record, unless an attempt failed that began after the request was made. All
    /// requests that wait write the same record, so one failure answers them all. If each of them
    /// tried in turn, the last one would wait for as many failures as there are requests. A write
    /// that succeeds ends that.
    async fn attempt(
        &self,
        asked: u64,
        change: impl Fn(Record) -> Result<Record>,
    ) -> Result<Record> {
        if let Some((_, why)) = locked(&self.failed).as_ref().filter(|(number, _)| *number > asked)
        {
            return Err(why.clone());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let written = self.write(change).await;
        if let Err(why @ Error::Store(_)) = &written {
            *locked(&self.failed) = Some((number, why.clone()));
        }
        written
    }

    /// Reserves more timestamps, unless `count` are left by now.
    pub(super) async fn extend(&self, count: u64, asked: u64) -> Result<()> {
        if self.next.load(Ordering::SeqCst) + count <= self.limit.load(Ordering::SeqCst) {
            return Ok(());
        }
        let extended = |old: Record| match old.limit.saturating_add(self.size.max(count)) {
            limit if limit < Timestamp::MAX.as_u64() => Ok(Record { limit, ..old }),
            _ => Err(Error::Oracle("the 2^53 timestamps are used up".to_owned())),
        };
        if off(mutants::WINDOW_NOT_STORED) {
            self.limit.fetch_add(self.size.max(count), Ordering::SeqCst);
            return Ok(());
        }
        let record = self.attempt(asked, extended).await?;
        self.limit.store(record.limit, Ordering::SeqCst);
        Ok(())
    }

    /// Replaces the stored record by the one that `change` returns, and extends the lease.
    async fn write(&self, change: impl Fn(Record) -> Result<Record>) -> Result<Record> {
        for _ in 0..WRITES_MAX {
            let old = locked(&self.record).clone().ok_or_else(superseded)?;
            let mut new = change(old.clone())?;
            let asked = self.lease.as_ref().map(|lease| (lease, lease.next_end()));
            new.lead = self.lease.as_ref().map(|lease| lease.sign(false));
            if replace(&*self.table, Some(&old), &new).await? {
                *locked(&self.record) = Some(new.clone());
                *locked(&self.failed) = None;
                if let Some((lease, until)) = asked {
                    lease.extend(until);
                }
                return Ok(new);
            }
            // A request of this oracle may have been applied late, after its reply was given
            // up. Only such a request carries this holder's name (H43).
            let own = |stored: &Record| {
                stored.holder == old.holder && !off(mutants::OWN_RECORD_IS_FOREIGN)
            };
            let stored = read(&*self.table).await?.filter(own);
            let lost = stored.is_none();
            *locked(&self.record) = stored;
            if lost && !off(mutants::SUPERSEDED_SERVES) {
                // Another oracle has taken over, so no timestamp of this oracle's window may
                // be issued any more (H42).
                self.limit.store(0, Ordering::SeqCst);
            }
        }
        Err(superseded())
    }

    /// Renews the lease, unless it holds by now.
    pub(super) async fn lead(&self, asked: u64) -> Result<()> {
        if !self.leads() {
            self.attempt(asked, Ok).await?;
        }
        Ok(())
    }

    /// Raises the schema version durably.
    pub(super) async fn raise_schema_version(&self, version: u64) -> Result<()> {
        let stored = locked(&self.record).as_ref().ok_or_else(superseded)?.schema_version;
        if version > stored {
            self.write(|old| Ok(Record { schema_version: version, ..old })).await?;
        }
        self.schema_version.fetch_max(version, Ordering::SeqCst);
        Ok(())
    }

    /// Raises the stored limit to `limit`. The window itself stays.
    pub(super) async fn raise(&self, limit: u64) -> Result<()> {
        self.write(|old| Ok(Record { limit: old.limit.max(limit), ..old })).await.map(drop)
    }
}

/// The error of an oracle that no longer holds the record.
pub(super) fn superseded() -> Error {
    Error::Oracle("another oracle has taken over this store: open it again".to_owned())
}
