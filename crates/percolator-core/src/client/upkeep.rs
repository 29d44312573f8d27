//! Garbage collection and inspection, seen by a client.

use std::time::Duration;

use bigtable::{RowKey, Timestamp};

use crate::gc::{background, round, safe_point, unfenced};
use crate::resolve::{explain, inspect, on_request};
use crate::trace::why;
use crate::{
    Age, CellState, Client, Collector, Column, GcOptions, GcReport, GcStatus, LockEnd, LockFate,
    LockView, Moment, ProcessInfo, Result, Status, Table, TableSize, Why, status,
};

impl Client {
    /// Collects garbage once: versions that were overwritten or deleted more than `retention` ago
    /// and that nobody has open. Goes as fast as it can;
    /// [`collect_in_background`](Client::collect_in_background) is for every day.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::{Column, Error};
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let then = client.snapshot().await?.timestamp();
    /// for balance in ["$10", "$3", "$7"] {
    ///     client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, balance)).await?;
    /// }
    /// let report = client.gc(std::time::Duration::ZERO).await?;
    /// assert!(report.safe_point > then && report.blocked_by.is_none());
    /// assert_eq!(report.counts.writes, 2);
    /// assert!(matches!(client.snapshot_at(then).await, Err(Error::TooOld { .. })));
    /// # Ok(()) });
    /// ```
    ///
    /// A retention protects the transactions of other clients that are younger. Older ones of a
    /// client that collects in the background hold the safe point back; those of a client that does
    /// not, as [`open`](Client::open) returns it, fail with
    /// [`Error::TooOld`](crate::Error::TooOld). So no retention should be shorter than the longest
    /// transaction.
    ///
    /// On a store without a floor no retention is shorter than
    /// [`retention_min`](Client::retention_min), and a client that collects for the first time
    /// watches for so long before it does.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for too short a retention; those of store, oracle
    /// and lock service. The next round goes on where this one ended.
    pub async fn gc(&self, retention: Duration) -> Result<GcReport> {
        round::gc(&self.shared, retention).await
    }

    /// Where garbage collection stands. Changes no table, and no timestamp is issued; notes when
    /// the latest one was, and takes back registrations that have lapsed.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// let open = client.begin().await?;
    /// client.begin().await?;
    /// let status = client.gc_status(std::time::Duration::ZERO).await?;
    /// assert_eq!(status.next, open.start_ts());
    /// assert!(status.last.is_none());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`gc`](Client::gc).
    pub async fn gc_status(&self, retention: Duration) -> Result<GcStatus> {
        round::gc_status(&self.shared, retention).await
    }

    /// How old timestamps are, as far as the samples say that garbage collection takes now and
    /// then. Notes when the latest one was; no timestamp is issued.
    ///
    /// # Errors
    /// Those of store and oracle.
    pub async fn ages(&self, timestamps: &[Timestamp]) -> Result<Vec<Age>> {
        safe_point::ages(&self.shared, timestamps).await
    }

    /// Collects garbage in the background from now on, and keeps this client registered as a reader
    /// of what it has open. A database that nobody writes to costs nothing and gets no timestamps.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::admin::GcOptions;
    /// use percolator::Column;
    /// use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// let options = GcOptions { retention: second, interval: second, ..GcOptions::default() };
    /// let collector = client.collect_in_background(options);
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// for balance in ["$10", "$3"] {
    ///     client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, balance)).await?;
    /// }
    /// client.runtime().sleep(Duration::from_secs(5)).await;
    /// assert_eq!(client.cell_history(&accounts, "Bob", &bal).await?.len(), 2);
    /// drop(collector);
    /// # Ok(()) });
    /// ```
    pub fn collect_in_background(&self, options: GcOptions) -> Collector {
        background::collect_in_background(&self.shared, options)
    }

    /// The shortest retention: zero, unless the store has no floor. Then it is four times the
    /// longest life of a request, of any client that this one has learnt of.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// assert!(client.retention_min().is_zero());
    /// # Ok(()) });
    /// ```
    pub fn retention_min(&self) -> Duration {
        unfenced::retention_min(&self.shared)
    }

    /// Whether garbage collection is possible with this retention.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when it is shorter than
    /// [`retention_min`](Client::retention_min).
    pub fn check_retention(&self, retention: Duration) -> Result<()> {
        unfenced::check_retention(&self.shared, retention)
    }

    /// Writes what this client is and does into the store from now on, every ten seconds, until it
    /// is closed or dropped: one row of at most 1 KiB, without a timestamp and without a sync. A
    /// process of a cluster calls it once, after it has connected. A failure changes nothing else.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::admin::ProcessInfo;
    /// client.publish_status(ProcessInfo { role: "worker".to_owned(), ..Default::default() });
    /// client.runtime().sleep(std::time::Duration::from_secs(2)).await;
    /// let statuses = client.statuses().await?;
    /// assert!(statuses[0].process.role == "worker" && statuses[0].alive);
    /// # Ok(()) });
    /// ```
    pub fn publish_status(&self, process: ProcessInfo) {
        status::publish(&self.shared, process);
    }

    /// What the clients of this store say of themselves, and whether they live. Clients that do not
    /// [`publish_status`](Client::publish_status) are not in it. No timestamp is issued.
    ///
    /// # Errors
    /// Those of store and lock service.
    pub async fn statuses(&self) -> Result<Vec<Status>> {
        status::statuses(&self.shared).await
    }

    /// Why a cell is as it is: the transaction that wrote what a reader at that timestamp finds, or
    /// at the latest one; the changes that led to it; and what it has set off. `None` if there is
    /// no such write. See [`Why`] for an example.
    ///
    /// Of transactions that were not [traced](crate::Options::trace), or are not any more, nothing
    /// is known, and the answer says so. Nothing is changed, and no timestamp is issued.
    ///
    /// # Errors
    /// [`Error::TooOld`](crate::Error::TooOld) below the safe point,
    /// [`Error::NotIssued`](crate::Error::NotIssued) above the latest timestamp; those of store,
    /// oracle and lock service.
    pub async fn why(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        column: &Column,
        at: Option<Timestamp>,
    ) -> Result<Option<Why>> {
        why::why(&self.shared, table, row, column, at).await
    }

    /// Everything Percolator keeps of a cell, newest first.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn cell_history(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        column: &Column,
    ) -> Result<Vec<Moment>> {
        inspect::cell_history(&self.shared, table, row, column).await
    }

    /// Everything that decides what the records of a cell mean, to be
    /// [explained](CellState::explain). Nothing is resolved or changed, and no timestamp is issued.
    ///
    /// # Errors
    /// Those of store, oracle and lock service.
    pub async fn cell_state(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        column: &Column,
    ) -> Result<CellState> {
        explain::cell_state(&self.shared, table, row, column).await
    }

    /// The locks in all tables, at most `limit`, in order of table and cell.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn held_locks(&self, limit: usize) -> Result<Vec<LockView>> {
        inspect::held_locks(&self.shared, limit).await
    }

    /// Counts the rows of a table and the bytes of their newest versions, up to so many rows. Reads
    /// what is there at the moment, and waits for no lock.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::Column;
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// client.transact(async |mut tx| {
    ///     tx.set(&accounts, "Bob", &bal, "$10")?;
    ///     tx.set(&accounts, "Joe", &bal, "$2")
    /// }).await?;
    /// let size = client.table_size(&accounts, 1000).await?;
    /// assert_eq!((size.rows, size.bytes, size.whole), (2, 17, true));
    /// assert!(!client.table_size(&accounts, 1).await?.whole);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Those of the store.
    pub async fn table_size(&self, table: &Table, rows_max: usize) -> Result<TableSize> {
        inspect::table_size(&self.shared, table, rows_max).await
    }

    /// What will become of a lock, as far as its primary's row and the lock service say.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::admin::LockFate;
    /// use percolator::Column;
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let mut tx = client.begin().await?;
    /// tx.set(&accounts, "Bob", &bal, "$3")?;
    /// let prewritten = tx.prewrite().await?;
    /// let locks = client.held_locks(10).await?;
    /// assert_eq!(client.lock_fate(&locks[0]).await?, LockFate::OwnerAlive);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Those of store and lock service.
    pub async fn lock_fate(&self, lock: &LockView) -> Result<LockFate> {
        inspect::lock_fate(&self.shared, lock).await
    }

    /// Resolves a lock as the next reader of its cell would, and with it all others of its
    /// transaction in the same row. The lock of an owner who lives stays.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::{Client, Column};
    /// use percolator::admin::LockEnd;
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let other = Client::open(client.services().clone(), Default::default()).await?;
    /// let mut tx = other.begin().await?;
    /// tx.set(&accounts, "Bob", &bal, "$3")?;
    /// let prewritten = tx.prewrite().await?;
    /// let locks = client.held_locks(10).await?;
    /// assert_eq!(client.resolve_lock(&locks[0]).await?, LockEnd::OwnerAlive);
    /// client.services().locks.unregister(other.incarnation());
    /// assert_eq!(client.resolve_lock(&locks[0]).await?, LockEnd::RolledBack);
    /// assert_eq!(client.resolve_lock(&locks[0]).await?, LockEnd::Gone);
    /// # drop(prewritten);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Those of store and lock service; [`Error::Closed`](crate::Error::Closed).
    pub async fn resolve_lock(&self, lock: &LockView) -> Result<LockEnd> {
        on_request::resolve_lock(&self.shared, lock).await
    }
}
