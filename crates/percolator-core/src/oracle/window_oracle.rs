//! The oracle of a process: takes timestamps from its window, and changes the window's record in
//! the store, one call at a time.

use std::sync::Arc;

use async_trait::async_trait;
use bigtable::sync::Turns;
use bigtable::{Table, Timestamp};

use crate::mutants::{self, off};
use crate::oracle::lease::{Lease, lease_wait};
use crate::oracle::record::{Record, read, replace};
use crate::oracle::window::{Window, superseded};
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
    window: Arc<Window>,
    /// The calls that change the record. A call that nobody polls is finished by the next (H77).
    turns: Turns,
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
        let limit = to.as_u64().saturating_add(1).min(Timestamp::MAX.as_u64());
        oracle.change(async move |window| window.raise(limit).await).await
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
    /// # Errors
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
        let window = Arc::new(Window::new(table, record, window, lease));
        Ok(Some(WindowOracle { window, turns: Turns::default() }))
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
        let asked = self.window.attempts_begun();
        self.lead_now(asked).await?;
        loop {
            if let Some(range) = self.window.take_stamped(count) {
                return Ok(range);
            }
            let count = u64::from(count);
            self.change(async move |window| window.extend(count, asked).await).await?;
        }
    }

    /// Extends the lease and fills up the window, so that requests wait for neither.
    pub(super) async fn renew(&self) -> Result<()> {
        self.change(async |window| window.renew().await).await
    }

    /// Stops serving, and records that, so that a successor need not wait.
    pub(super) async fn resign(&self) -> Result<()> {
        self.change(async |window| window.resign().await).await
    }

    /// Whether this oracle has resigned, or knows that another one has taken over.
    pub(super) fn is_over(&self) -> bool {
        self.window.is_over()
    }

    /// Ensures that this oracle led at some moment after the call: by its lease, or otherwise
    /// by writing to the store. A successor serves nothing before that moment. So every answer
    /// of this oracle, after however long a pause, belongs to a request from before the
    /// successor's first answer (H41). `asked` is the number of attempts that had begun at the
    /// time of the call.
    async fn lead_now(&self, asked: u64) -> Result<()> {
        if self.window.leads() {
            return Ok(());
        }
        self.change(async move |window| window.lead(asked).await).await
    }

    /// Changes the record, after the calls before this one.
    async fn change<F>(&self, change: impl FnOnce(Arc<Window>) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        // On the heap, because few calls get here. In place, the future of each call would have
        // room for the change.
        self.turns.run(Box::pin(change(self.window.clone()))).await
    }
}

#[async_trait]
impl Oracle for WindowOracle {
    async fn timestamp(&self) -> Result<Stamp> {
        if let Some(stamp) = self.timestamp_in_memory() {
            return Ok(stamp);
        }
        // The future of this rare path is on the heap. Otherwise that of each call would have room
        // for it.
        let StampRange { first, schema_version, .. } = Box::pin(self.timestamps(1)).await?;
        Ok(Stamp { timestamp: first, schema_version })
    }

    fn issues_in_memory(&self) -> bool {
        true
    }

    fn timestamp_in_memory(&self) -> Option<Stamp> {
        let leads = self.window.leads();
        let StampRange { first, schema_version, .. } =
            leads.then(|| self.window.take_stamped(1))??;
        Some(Stamp { timestamp: first, schema_version })
    }

    async fn peek(&self) -> Result<Timestamp> {
        self.lead_now(self.window.attempts_begun()).await?;
        let last = self.window.last();
        if self.is_over() {
            return Err(superseded());
        }
        Ok(last)
    }

    async fn schema_version(&self) -> Result<u64> {
        self.lead_now(self.window.attempts_begun()).await?;
        Ok(self.window.schema_version())
    }

    async fn raise_schema_version(&self, version: u64) -> Result<()> {
        self.change(async move |window| window.raise_schema_version(version).await).await
    }
}

/// Opens Percolator's own table.
pub(super) async fn open_table(store: &dyn bigtable::Store) -> Result<Arc<dyn Table>> {
    Ok(open_system(store, SYSTEM_TABLE).await?)
}
