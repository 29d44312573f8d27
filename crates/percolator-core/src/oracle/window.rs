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

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bigtable::{
    ConditionalMutation, Mutation, Probe, RowKey, Selection, Table, TimeRange, Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::lock::Mutex;

use crate::codec::Reader;
use crate::layout::SYSTEM;
use crate::lock::Incarnation;
use crate::oracle::{Oracle, Stamp};
use crate::{Error, Result};

const ROW: &str = "oracle";
const QUALIFIER: &str = "window";

/// How many timestamps one write to the store reserves.
pub(crate) const WINDOW: u64 = 1_000_000;

/// How often one change of the record is tried.
const WRITES_MAX: u32 = 4;

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
    /// The stored record as this oracle last wrote it; `None` once another oracle has taken over.
    record: Mutex<Option<Record>>,
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
    /// # Errors
    /// [`Error::Oracle`] when another oracle takes over at the same moment; those of the store.
    pub async fn open(store: &dyn bigtable::Store, holder: Incarnation) -> Result<Self> {
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
        Ok(WindowOracle {
            table,
            next: AtomicU64::new(record.limit),
            limit: AtomicU64::new(record.limit),
            schema_version: AtomicU64::new(record.schema_version),
            record: Mutex::new(Some(record)),
        })
    }

    /// Takes the next timestamp out of the window, or finds it used up.
    fn take(&self) -> Option<Timestamp> {
        let mut next = self.next.load(Ordering::SeqCst);
        while next < self.limit.load(Ordering::SeqCst) {
            match self.next.compare_exchange_weak(
                next,
                next + 1,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return Timestamp::new(next),
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
        let extended = |old: Record| match old.limit.saturating_add(WINDOW) {
            limit if limit < Timestamp::MAX.as_u64() => Ok(Record { limit, ..old }),
            _ => Err(Error::Oracle("the 2^53 timestamps are used up".to_owned())),
        };
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
            if replace(&*self.table, Some(old), new).await? {
                *held = Some(new);
                return Ok(new);
            }
            // A request of this oracle's own may have arrived late, after its reply was given up:
            // only it has this holder's name (H43).
            *held = read(&*self.table).await?.filter(|stored| stored.holder == old.holder);
            if held.is_none() {
                // Another oracle has taken over: nothing of this one's memory may be served any
                // more (H42).
                self.limit.store(0, Ordering::SeqCst);
            }
        }
        Err(superseded())
    }
}

#[async_trait]
impl Oracle for WindowOracle {
    async fn timestamp(&self) -> Result<Stamp> {
        loop {
            if let Some(timestamp) = self.take() {
                // After the timestamp, never before: whoever sees an old version here holds a
                // timestamp below that of the sweep which follows the raise (H59).
                let schema_version = self.schema_version.load(Ordering::SeqCst);
                return Ok(Stamp { timestamp, schema_version });
            }
            self.extend().await?;
        }
    }

    async fn peek(&self) -> Result<Timestamp> {
        let next = self.next.load(Ordering::SeqCst);
        if self.limit.load(Ordering::SeqCst) == 0 {
            return Err(superseded());
        }
        Ok(Timestamp::new(next - 1).expect("the window lies below 2^53"))
    }

    async fn schema_version(&self) -> Result<u64> {
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
