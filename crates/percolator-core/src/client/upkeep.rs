//! Adds garbage collection, inspection and status rows to [`Client`].

use std::time::Duration;

use bigtable::{RowKey, Timestamp};

use crate::gc::{background, round, safe_point, unfenced};
use crate::resolve::{explain, inspect, on_request};
use crate::trace::why;
use crate::{
    Age, CellState, Client, Collector, Column, GcOptions, GcReport, GcStatus, LockEnd, LockFate,
    LockView, LockWaiter, Moment, ProcessInfo, Result, Status, Table, TableSize, Why, status,
};

impl Client {
    /// Collects garbage once: versions that were overwritten or deleted more than `retention`
    /// ago. Versions that a transaction of this client or a registered reader can still see
    /// are kept. It goes as fast as it can. For regular use, call
    /// [`collect_in_background`](Client::collect_in_background).
    ///
    /// A retention above zero needs an earlier sample of time and timestamp. This method,
    /// [`ages`](Client::ages) and the background collector take samples. Without one that is as
    /// old as `retention`, the round collects nothing.
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
    /// The retention protects younger transactions of other clients. Older transactions are
    /// protected only if their client collects in the background, which holds the safe point
    /// back. Otherwise they fail with [`Error::TooOld`](crate::Error::TooOld); a client as
    /// [`open`](Client::open) returns it does not collect. So the retention should not be
    /// shorter than the longest transaction.
    ///
    /// On a store without a floor no retention may be shorter than
    /// [`retention_min`](Client::retention_min). A client that collects there for the first
    /// time watches for that long before it collects.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the retention is too short; those of
    /// store, oracle and lock service. After a failure, the next round goes on where this one
    /// ended.
    pub async fn gc(&self, retention: Duration) -> Result<GcReport> {
        round::gc(&self.shared, retention).await
    }

    /// Reports the progress of garbage collection. Writes nothing, and issues no timestamp.
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

    /// Estimates the ages of timestamps, from the samples that garbage collection takes now
    /// and then. It records when the latest timestamp was issued, and issues none itself.
    ///
    /// # Errors
    /// Errors of store and oracle.
    pub async fn ages(&self, timestamps: &[Timestamp]) -> Result<Vec<Age>> {
        safe_point::ages(&self.shared, timestamps).await
    }

    /// Collects garbage in the background from now on, and keeps this client registered as a
    /// reader of the timestamps that it has open. A database without writes costs nothing and
    /// issues no timestamps.
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

    /// The shortest retention. It is zero unless the store has no floor. Then it is four times
    /// the longest life of a request of any client that this client knows of.
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
    /// [`Error::Invalid`](crate::Error::Invalid) if it is shorter than
    /// [`retention_min`](Client::retention_min).
    pub fn check_retention(&self, retention: Duration) -> Result<()> {
        unfenced::check_retention(&self.shared, retention)
    }

    /// Writes this client's status into the store every ten seconds, until the client is
    /// closed or dropped. A status is one row of at most 1 KiB, written without a timestamp
    /// and without a sync. A process that joins a cluster does this by itself. Another call
    /// replaces its description of the process. A failure changes nothing else.
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

    /// The statuses of the store's clients, and whether each client lives. Clients that do not
    /// [`publish_status`](Client::publish_status) are missing. Issues no timestamp.
    ///
    /// # Errors
    /// Errors of store and lock service.
    pub async fn statuses(&self) -> Result<Vec<Status>> {
        status::statuses(&self.shared).await
    }

    /// Explains why a cell is as it is. A reader at `at`, or at the latest timestamp, finds a
    /// write. The answer has the transaction that wrote it, the changes that led to that
    /// transaction, and the runs that it set off. `None` if the reader finds no write. See
    /// [`Why`] for an example.
    ///
    /// Transactions that were not [traced](crate::Options::trace), or whose trace has expired,
    /// are not known, and the answer says so. The call changes nothing and issues no timestamp.
    ///
    /// # Errors
    /// [`Error::TooOld`](crate::Error::TooOld) below the safe point,
    /// [`Error::NotIssued`](crate::Error::NotIssued) above the latest timestamp. Errors of the
    /// store, the oracle and the lock service.
    pub async fn why(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        column: &Column,
        at: Option<Timestamp>,
    ) -> Result<Option<Why>> {
        why::why(&self.shared, table, row, column, at).await
    }

    /// Everything that Percolator stores for a cell, newest first.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn cell_history(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        column: &Column,
    ) -> Result<Vec<Moment>> {
        inspect::cell_history(&self.shared, table, row, column).await
    }

    /// Reads everything that determines the meaning of a cell's records, to be
    /// [explained](CellState::explain). Resolves and changes nothing, and issues no timestamp.
    ///
    /// # Errors
    /// Errors of store, oracle and lock service.
    pub async fn cell_state(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        column: &Column,
    ) -> Result<CellState> {
        explain::cell_state(&self.shared, table, row, column).await
    }

    /// The oldest locks in all tables, at most `limit`, the oldest first. Reads all locks.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn held_locks(&self, limit: usize) -> Result<Vec<LockView>> {
        inspect::held_locks(&self.shared, limit).await
    }

    /// Counts the rows of a table and the bytes of their newest versions, in at most
    /// `rows_max` rows. Reads the store's current state, and waits for no lock.
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
    /// Errors of the store.
    pub async fn table_size(&self, table: &Table, rows_max: usize) -> Result<TableSize> {
        inspect::table_size(&self.shared, table, rows_max).await
    }

    /// Lists the readers that wait for locks, the oldest wait of each client first. It has all
    /// waits of this client, and those of other clients that their
    /// [statuses](Client::statuses) name. A writer never waits: it aborts.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::Column;
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let mut tx = client.begin().await?;
    /// tx.set(&accounts, "Bob", &bal, "$3")?;
    /// let prewritten = tx.prewrite().await?;
    /// let reader = client.begin().await?;
    /// let at = reader.start_ts();
    /// client.runtime().spawn(Box::pin(async move {
    ///     reader.get(&accounts, "Bob", &bal).await.ok();
    /// }));
    /// client.runtime().sleep(std::time::Duration::from_millis(50)).await;
    /// let waiters = client.lock_waiters().await?;
    /// assert_eq!((waiters[0].at, &*waiters[0].cell.table), (at, "accounts"));
    /// # drop(prewritten);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Errors of the store and the lock service.
    pub async fn lock_waiters(&self) -> Result<Vec<LockWaiter>> {
        status::lock_waiters(&self.shared).await
    }

    /// Predicts how a lock will be resolved, from its primary's row and the lock service. It does
    /// not see how long the lock has stayed unchanged.
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
    /// Errors of store and lock service.
    pub async fn lock_fate(&self, lock: &LockView) -> Result<LockFate> {
        inspect::lock_fate(&self.shared, lock).await
    }

    /// Resolves a lock as the next reader of its cell would, together with all other locks of
    /// its transaction in the same row. A lock stays if its owner has a liveness token, unless this
    /// client has seen the lock unchanged for 10 seconds.
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
    /// Errors of store and lock service; [`Error::Closed`](crate::Error::Closed).
    pub async fn resolve_lock(&self, lock: &LockView) -> Result<LockEnd> {
        on_request::resolve_lock(&self.shared, lock).await
    }
}
