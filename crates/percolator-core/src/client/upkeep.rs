//! Garbage collection and inspection, seen by a client.

use std::time::Duration;

use bigtable::RowKey;

use crate::gc::{background, round, unfenced};
use crate::resolve::inspect;
use crate::{
    Client, Collector, Column, GcOptions, GcReport, GcStatus, LockFate, LockView, Moment,
    ProcessInfo, Result, Status, Table, status,
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

    /// The locks in all tables, at most `limit`, in order of table and cell.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn held_locks(&self, limit: usize) -> Result<Vec<LockView>> {
        inspect::held_locks(&self.shared, limit).await
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
}
