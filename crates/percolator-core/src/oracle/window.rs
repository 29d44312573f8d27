//! An oracle that reserves timestamps by the window (paper section 2.3).
//!
//! ```text
//!   stored record:  epoch | limit | schema version | holder
//!                           ^ everything below may have been handed out
//!   memory:         next <= limit;  next rises by compare-and-swap, limit rises after a write
//! ```
//!
//! Invariants: a window is in stable storage, synced, *before* a timestamp of it is served (H40); the
//! record is extended by a conditional write on the record last seen, so two oracles cannot both
//! win (H41); in one life neither `next` nor `limit` ever goes back, but for the `limit` of an
//! oracle that was superseded, which ends at zero; so "below the limit, then swap" needs no lock
//! (H44); after a restart service begins at the stored limit.
//!
//! A window alone does not make fail-over safe: an oracle that was paused may wake inside its window
//! and serve timestamps below those of its successor. Where several processes may serve one store,
//! each therefore *leads* under a lease ([`WindowOracle::lead`]): it answers only what arrived before a
//! moment at which its lease still held on its own clock, and its successor, who has taken the record
//! over, waits until that lease has run out (H41).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bigtable::{
    ConditionalMutation, Mutation, Probe, RowKey, Selection, Table, TimeRange, Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::lock::Mutex;

use crate::codec::Reader;
use crate::layout::SYSTEM;
use crate::lock::Incarnation;
use crate::mutants::{self, off};
use crate::oracle::{Oracle, Stamp};
use crate::{Error, Result, Runtime};

const ROW: &str = "oracle";
const QUALIFIER: &str = "window";

/// How many timestamps one write to the store reserves.
pub(crate) const WINDOW: u64 = 1_000_000;

/// How often one change of the record is tried.
const WRITES_MAX: u32 = 4;

/// How long an oracle that leads may serve after it asked for the record and found it its own. All
/// oracles of a store must agree on it, so it is no option.
const LEASE: Duration = Duration::from_secs(2);

/// How long a successor waits on its own clock: the lease, and a fifth for clocks that run unevenly.
const LEASE_WAIT: Duration = Duration::from_millis(2400);

/// The oracle of a single process.
///
/// ```
/// # use std::sync::Arc;
/// # futures::executor::block_on(async {
/// use percolator_core::{Incarnation, Oracle, WindowOracle};
/// let store = bigtable::MemoryStore::new();
/// let oracle = WindowOracle::open(&store, Incarnation(1)).await?;
/// let last = oracle.timestamp().await?.timestamp;
/// drop(oracle);
/// let restarted = WindowOracle::open(&store, Incarnation(2)).await?;
/// assert!(restarted.timestamp().await?.timestamp > last);
/// # Ok::<(), percolator_core::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct WindowOracle {
    table: Arc<dyn Table>,
    /// The next timestamp to hand out.
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

/// Until when an oracle may serve without asking for the record again.
#[derive(Debug)]
struct Lease {
    runtime: Arc<dyn Runtime>,
    /// On the runtime's monotonic clock, in nanoseconds.
    until: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    epoch: u64,
    limit: u64,
    schema_version: u64,
    holder: Incarnation,
}

impl WindowOracle {
    /// Takes over the store's oracle record under a new epoch. `holder` must be fresh.
    ///
    /// Only for a store that no two processes have open at a time: an oracle that was opened so before
    /// must not serve any more. Use [`lead`](WindowOracle::lead) for any other.
    ///
    /// # Errors
    /// [`Error::Oracle`] when another oracle takes over at the same moment; those of the store.
    pub async fn open(store: &dyn bigtable::Store, holder: Incarnation) -> Result<Self> {
        let (oracle, _) = WindowOracle::take_over(store, holder, WINDOW, None).await?;
        Ok(oracle)
    }

    /// Takes over the store's oracle record from whoever serves it, and waits until the lease of that
    /// oracle has run out, on `runtime`'s clock; safe with any number of oracles that lead. Reserves
    /// `window` timestamps at a time. `holder` must be fresh.
    ///
    /// Clocks may run up to 9 percent too fast or too slow, and must go on while the machine sleeps.
    ///
    /// # Errors
    /// As [`open`](WindowOracle::open); [`Error::Invalid`] for an empty window.
    pub async fn lead(
        store: &dyn bigtable::Store,
        holder: Incarnation,
        runtime: Arc<dyn Runtime>,
        window: u64,
    ) -> Result<Self> {
        if window == 0 {
            return Err(Error::Invalid("an oracle's window of no timestamps".to_owned()));
        }
        let lease = Lease { runtime: runtime.clone(), until: AtomicU64::new(0) };
        let (oracle, succeeds) =
            WindowOracle::take_over(store, holder, window, Some(lease)).await?;
        if succeeds && !off(mutants::NO_WAIT_FOR_LEASE) {
            // The record is this oracle's now, so the other cannot renew its lease any more.
            runtime.sleep(LEASE_WAIT).await;
        }
        Ok(oracle)
    }

    /// Makes the record this oracle's own; returns also whether there was another before.
    async fn take_over(
        store: &dyn bigtable::Store,
        holder: Incarnation,
        window: u64,
        lease: Option<Lease>,
    ) -> Result<(Self, bool)> {
        let schema = crate::layout::system_schema();
        let table = store.open_table(crate::layout::SYSTEM_TABLE, &schema).await?;
        let stored = read(&*table).await?;
        let record = match stored {
            Some(old) => Record { epoch: old.epoch.saturating_add(1), holder, ..old },
            None => Record { epoch: 1, limit: 1, schema_version: 0, holder },
        };
        if !replace(&*table, stored, record).await? {
            return Err(superseded());
        }
        let oracle = WindowOracle {
            table,
            next: AtomicU64::new(record.limit),
            limit: AtomicU64::new(record.limit),
            schema_version: AtomicU64::new(record.schema_version),
            window,
            lease,
            record: Mutex::new(Some(record)),
        };
        Ok((oracle, stored.is_some()))
    }

    /// Makes sure that this oracle has led at a moment after the call: by its lease, or else by asking
    /// the store. A successor serves nothing before that moment, so whatever this oracle answers, after
    /// however long a pause, was asked for before the successor's first answer (H41).
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

    /// Takes the next timestamp out of the window, or finds it used up.
    fn take(&self) -> Option<Stamp> {
        let mut next = self.next.load(Ordering::SeqCst);
        while next < self.limit.load(Ordering::SeqCst) {
            match self.next.compare_exchange_weak(
                next,
                next + 1,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => {
                    // After the timestamp, never before: whoever sees an old version here holds a
                    // timestamp below that of the sweep which follows the raise (H59).
                    let schema_version = self.schema_version.load(Ordering::SeqCst);
                    let timestamp = Timestamp::new(next)?;
                    return Some(Stamp { timestamp, schema_version });
                }
                Err(seen) => next = seen,
            }
        }
        None
    }

    async fn extend(&self) -> Result<()> {
        let mut held = self.record.lock().await;
        if self.next.load(Ordering::SeqCst) < self.limit.load(Ordering::SeqCst) {
            return Ok(());
        }
        let extended = |old: Record| match old.limit.saturating_add(self.window) {
            limit if limit < Timestamp::MAX.as_u64() => Ok(Record { limit, ..old }),
            _ => Err(Error::Oracle("the 2^53 timestamps are used up".to_owned())),
        };
        if off(mutants::WINDOW_NOT_STORED) {
            self.limit.fetch_add(self.window, Ordering::SeqCst);
            return Ok(());
        }
        let record = self.write(&mut held, extended).await?;
        self.limit.store(record.limit, Ordering::SeqCst);
        Ok(())
    }

    /// Replaces the stored record by what `change` makes of it.
    async fn write(
        &self,
        held: &mut Option<Record>,
        change: impl Fn(Record) -> Result<Record>,
    ) -> Result<Record> {
        for _ in 0..WRITES_MAX {
            let old = held.ok_or_else(superseded)?;
            let new = change(old)?;
            let asked = self.lease.as_ref().map(|lease| (lease, lease.runtime.now()));
            if replace(&*self.table, Some(old), new).await? {
                *held = Some(new);
                if let Some((lease, asked)) = asked {
                    lease.extend(asked + LEASE);
                }
                return Ok(new);
            }
            // A request of this oracle's own may have arrived late, after its reply was given up:
            // only it has this holder's name (H43).
            let own = |stored: &Record| {
                stored.holder == old.holder && !off(mutants::OWN_RECORD_IS_FOREIGN)
            };
            *held = read(&*self.table).await?.filter(own);
            if held.is_none() && !off(mutants::SUPERSEDED_SERVES) {
                // Another oracle has taken over: nothing of this one's memory may be served any
                // more (H42).
                self.limit.store(0, Ordering::SeqCst);
            }
        }
        Err(superseded())
    }
}

impl Lease {
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
        self.lead_now().await?;
        loop {
            if let Some(stamp) = self.take() {
                return Ok(stamp);
            }
            self.extend().await?;
        }
    }

    fn issues_in_memory(&self) -> bool {
        true
    }

    fn timestamp_in_memory(&self) -> Option<Stamp> {
        let leads = self.lease.as_ref().is_none_or(Lease::holds) || off(mutants::NO_LEASE);
        leads.then(|| self.take()).flatten()
    }

    async fn peek(&self) -> Result<Timestamp> {
        self.lead_now().await?;
        let next = self.next.load(Ordering::SeqCst);
        if self.limit.load(Ordering::SeqCst) == 0 {
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
        if version > held.ok_or_else(superseded)?.schema_version {
            let raised = |old| Ok(Record { schema_version: version, ..old });
            self.write(&mut held, raised).await?;
        }
        self.schema_version.fetch_max(version, Ordering::SeqCst);
        Ok(())
    }
}

fn superseded() -> Error {
    Error::Oracle("another oracle has taken over this store: open it again".to_owned())
}

async fn read(table: &dyn Table) -> Result<Option<Record>> {
    let select = Selection::default().column(SYSTEM, QUALIFIER, TimeRange::ALL, 1);
    let row = table.read_row(&RowKey::from(ROW), &select).await?;
    row.newest(&SYSTEM, QUALIFIER.as_bytes()).map(|cell| Record::decode(&cell.value)).transpose()
}

/// Replaces the stored record `old` by `new`; `false` when another one is stored. A lost reply is settled
/// by reading: the record names its holder, so a write of one's own is recognised (H43).
async fn replace(table: &dyn Table, old: Option<Record>, new: Record) -> Result<bool> {
    let probe = Probe::new(SYSTEM, QUALIFIER, TimeRange::ALL);
    let write = vec![Mutation::set(SYSTEM, QUALIFIER, Timestamp::ZERO, new.encode())];
    let request = ConditionalMutation { sync: true, ..ConditionalMutation::new(ROW) };
    let (request, wanted) = match old {
        Some(old) => {
            let predicate = vec![probe.with_value_prefix(old.encode())];
            (ConditionalMutation { predicate, then: write, ..request }, true)
        }
        None => {
            (ConditionalMutation { predicate: vec![probe], otherwise: write, ..request }, false)
        }
    };
    match table.check_and_mutate_row(request).await {
        Ok(matched) if matched == wanted => Ok(true),
        Ok(_) => Ok(read(table).await? == Some(new)),
        Err(bigtable::Error::Unknown { .. }) if read(table).await? == Some(new) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

impl Record {
    fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(40);
        out.put_u64(self.epoch);
        out.put_u64(self.limit);
        out.put_u64(self.schema_version);
        out.put_u128(self.holder.0);
        out.freeze()
    }

    fn decode(value: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(value);
        let mut parse = || {
            Some(Record {
                epoch: reader.u64()?,
                limit: reader.u64()?,
                schema_version: reader.u64()?,
                holder: Incarnation(reader.u128()?),
            })
        };
        let possible = |record: &Record| (1..=Timestamp::MAX.as_u64()).contains(&record.limit);
        parse()
            .filter(possible)
            .ok_or_else(|| Error::Corrupt { record: "oracle", bytes: value.clone() })
    }
}
