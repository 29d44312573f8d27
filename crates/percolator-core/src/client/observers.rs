//! Adds observers to [`Client`]: registering them, running them, waiting for them, pausing
//! them.

use std::time::Duration;

use bigtable::{TimeRange, Timestamp};

use crate::observe::observer::Registration;
use crate::observe::{admit, idle, pause, register, set_aside, skip, workers};
use crate::records::schema::{Observed, Schema};
use crate::{
    Backlog, Client, Column, Failing, IdleReport, Result, SetAside, WorkerOptions, Workers, status,
};

impl Client {
    /// Registers observers in the store's schema and starts workers that run them. Strong observers
    /// that are new to the schema also run for values that were written before.
    ///
    /// # Errors
    /// * [`Error::Invalid`](crate::Error::Invalid) for two observers of one name on one column, and
    ///   for a column with both strong and weak observers. A batching observer must be alone on its
    ///   column. A name has the form `[-_.a-zA-Z0-9]+`.
    /// * Errors of store and oracle.
    ///
    /// # Cancellation
    /// If the future is dropped, no worker starts. The schema may name the observers already.
    /// Call this again, or call [`retire_observer`](Client::retire_observer) for each of them.
    pub async fn observe(
        &self,
        registrations: Vec<Registration>,
        options: WorkerOptions,
    ) -> Result<Workers> {
        workers::observe(&self.shared, registrations, options).await
    }

    /// Registers observers in the store's schema without running them here. From now on,
    /// writes to their columns leave notifications for the processes that
    /// [`observe`](Client::observe).
    ///
    /// Notifications on a notify-only column without observers are refused. A program that
    /// notifies observers which start later, or in another process, declares them first.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::observe::{Observed, Strength};
    /// use percolator::Column;
    /// let (table, column) = ("docs".to_owned(), Column::literal("doc:text"));
    /// let observer = "count-words".to_owned();
    /// client.declare(&[Observed { table, column, observer, strength: Strength::Strong }]).await?;
    /// assert_eq!(client.observers().await?[0].observer, "count-words");
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a column with both strong and weak
    /// observers; those of store and oracle.
    pub async fn declare(&self, observers: &[Observed]) -> Result<()> {
        register::declare(&self.shared, observers).await
    }

    /// Removes observers from the schema: writes to their columns no longer notify them. If a
    /// column has no observer left, its notifications and its changes that were set aside are
    /// dropped. Returns how many registrations had that name.
    ///
    /// A strong observer that is registered again under the same name receives the changes made
    /// meanwhile, except deletions that garbage collection has dropped by then. A weak one does
    /// not receive them.
    ///
    /// # Errors
    /// Errors of store and oracle.
    pub async fn retire_observer(&self, observer: &str) -> Result<usize> {
        register::retire_observer(&self.shared, observer).await
    }

    /// The registered observers of the whole store.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn observers(&self) -> Result<Vec<Observed>> {
        Ok(Schema::read(self.shared.system()).await?.entries.into_keys().collect())
    }

    /// Waits until no cell is dirty and no timestamp was issued meanwhile, or until `timeout`.
    /// Issues no timestamps itself. It does not wait for running transactions of clients.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// let report = client.wait_idle(None).await?;
    /// assert!(report.idle && report.set_aside.is_empty());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Errors of store and oracle.
    pub async fn wait_idle(&self, timeout: Option<Duration>) -> Result<IdleReport> {
        idle::wait_idle(&self.shared, timeout).await
    }

    /// Counts the notifications that wait, by column.
    ///
    /// ```
    /// # percolator_core::doc_test(|client| async move {
    /// assert!(client.backlog().await?.is_empty());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn backlog(&self) -> Result<Vec<Backlog>> {
        idle::backlog(&self.shared, usize::MAX).await
    }

    /// Counts like [`backlog`](Client::backlog), but stops in each table after about `cells_max`
    /// cells. The count of such a table is then not [whole](Backlog::whole). Use it if you look
    /// often.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn backlog_within(&self, cells_max: usize) -> Result<Vec<Backlog>> {
        idle::backlog(&self.shared, cells_max).await
    }

    /// Whether a column still has a notification of `upto` or of an earlier timestamp. Unlike
    /// [`backlog`](Client::backlog), it stops at the first one that it finds.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::Column;
    /// let now = client.snapshot().await?.timestamp();
    /// assert!(!client.is_behind("docs", &Column::literal("doc:text"), now).await?);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn is_behind(&self, table: &str, column: &Column, upto: Timestamp) -> Result<bool> {
        idle::has_notification(&self.shared, table, column, TimeRange::up_to(upto)).await
    }

    /// The observers of the schema that no worker of this client runs, according to the schema
    /// that this client knows. Empty if the client has no workers at all. Changes for these
    /// observers wait until another process runs them.
    pub fn missing_observers(&self) -> Vec<Observed> {
        idle::missing_observers(&self.shared)
    }

    /// How many hints wait for this process's workers: a cheap estimate of their backlog.
    pub fn hints_waiting(&self) -> usize {
        idle::hints_waiting(&self.shared)
    }

    /// The changes on which observers of this client have failed and that they will try again:
    /// at most `limit`, in order of table and cell. Changes of other clients are not included.
    /// Changes that observers have given up are in [`set_aside`](Client::set_aside).
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::*;
    /// use std::time::Duration;
    /// struct Fails;
    /// impl Observer for Fails {
    ///     async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> {
    ///         Err(Error::application("no luck"))
    ///     }
    /// }
    ///
    /// const TEXT: Column = Column::literal("doc:text");
    /// let fails = Registration::strong("fails", "docs", &TEXT, Fails);
    /// let workers = client.observe(vec![fails], WorkerOptions::default()).await?;
    /// let docs = client.table("docs").await?;
    /// client.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "to be or not")).await?;
    /// client.runtime().sleep(Duration::from_millis(50)).await;
    /// let failing = client.failing(10);
    /// assert_eq!((failing[0].attempts, &*failing[0].error), (1, "no luck"));
    /// assert!(failing[0].next_attempt > Duration::ZERO);
    /// workers.stop().await;
    /// # Ok(()) });
    /// ```
    pub fn failing(&self, limit: usize) -> Vec<Failing> {
        self.shared.failures().failing(self.shared.runtime().now(), limit)
    }

    /// As [`failing`](Client::failing), with those of other clients that their
    /// [statuses](Client::statuses) name.
    ///
    /// # Errors
    /// Errors of the store and the lock service.
    pub async fn all_failing(&self) -> Result<Vec<Failing>> {
        status::all_failing(&self.shared).await
    }

    /// The notifications that were set aside because their observers kept failing, in all tables.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn set_aside(&self) -> Result<Vec<SetAside>> {
        set_aside::set_aside(&self.shared).await
    }

    /// Makes set-aside notifications of an observer dirty again, so that they are tried again.
    /// Other observers that failed on the same change also try again. Without a name, replays
    /// those of all observers. Returns how many notifications came back.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn replay(&self, observer: Option<&str>) -> Result<usize> {
        set_aside::replay(&self.shared, observer).await
    }

    /// Makes one set-aside notification dirty again; all observers that failed on it try
    /// again. Returns `false` if it is no longer set aside.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn replay_one(&self, aside: &SetAside) -> Result<bool> {
        set_aside::replay_one(&self.shared, aside).await
    }

    /// Makes an observer skip a change that was set aside. Returns `false` if the change is no
    /// longer set aside. The observer runs again when the cell changes again.
    ///
    /// For a strong observer the change is acknowledged in a transaction, unless the cell has
    /// changed since. The notification comes back, and the next worker clears it. For a weak
    /// observer the notification is dropped. If other observers failed on the same change, it
    /// stays set aside for them.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::*;
    /// struct Fails;
    /// impl Observer for Fails {
    ///     async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> {
    ///         Err(Error::application("cannot parse"))
    ///     }
    /// }
    ///
    /// const TEXT: Column = Column::literal("doc:text");
    /// let parse = Registration::strong("parse", "docs", &TEXT, Fails);
    /// let workers = client.observe(vec![parse], WorkerOptions::default()).await?;
    /// let docs = client.table("docs").await?;
    /// client.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "to be or not")).await?;
    /// let report = client.wait_idle(None).await?;
    /// assert!(client.skip(&report.set_aside[0]).await?);
    /// assert!(client.wait_idle(None).await?.set_aside.is_empty());
    /// workers.stop().await;
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`Error::Aborted`](crate::Error::Aborted) if other transactions keep writing the cell;
    /// those of store and oracle.
    pub async fn skip(&self, aside: &SetAside) -> Result<bool> {
        skip::skip(&self.shared, aside).await
    }

    /// Pauses an observer in all processes until it is [resumed](Client::resume_observer); the
    /// pause survives restarts. Returns how many registrations have that name.
    ///
    /// No run begins after this method has returned. A run that began before may still commit.
    /// Changes made meanwhile are not lost: they stay notified, and after the pause all
    /// changes of a cell are handled by one run. Other observers of the same column go on,
    /// except that weak observers of one column pause together.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// # use percolator::*;
    /// # struct Count;
    /// # impl Observer for Count {
    /// #     async fn observe(&self, _: &mut Transaction, _: &Change) -> Result<()> { Ok(()) }
    /// # }
    /// const TEXT: Column = Column::literal("doc:text");
    /// let count = Registration::strong("count", "docs", &TEXT, Count);
    /// let workers = client.observe(vec![count], WorkerOptions::default()).await?;
    /// client.pause_observer("count").await?;
    /// let docs = client.table("docs").await?;
    /// client.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "to be or not")).await?;
    /// assert_eq!(client.wait_idle(None).await?.paused[0].observer, "count");
    /// client.resume_observer("count").await?;
    /// assert!(client.wait_idle(None).await?.paused.is_empty());
    /// assert!(client.backlog().await?.is_empty());
    /// workers.stop().await;
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// Errors of store and oracle.
    ///
    /// # Cancellation
    /// If the future is dropped, the observer may be paused, and some processes may learn
    /// about it later. Call this method again.
    pub async fn pause_observer(&self, observer: &str) -> Result<usize> {
        pause::set_paused(&self.shared, observer, true).await
    }

    /// Resumes a [paused](Client::pause_observer) observer, which then handles everything that
    /// it has missed. Returns how many registrations have that name. Workers of other
    /// processes learn about it in their next pass over the store, within
    /// [`idle_max`](crate::WorkerOptions::idle_max), or a batching observer's longer interval.
    ///
    /// # Errors
    /// Errors of store and oracle.
    pub async fn resume_observer(&self, observer: &str) -> Result<usize> {
        pause::set_paused(&self.shared, observer, false).await
    }

    /// The observers that are paused.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn paused_observers(&self) -> Result<Vec<Observed>> {
        pause::paused(&self.shared).await
    }

    /// Names observers whose changes in the store [`admit`](Client::admit) does not count for this
    /// client: batching observers with a long interval. Such an observer gathers changes until no
    /// more come, so a loader must not wait for it.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::observe::{Observed, Strength};
    /// use percolator::Column;
    /// let (table, column) = ("docs".to_owned(), Column::literal("export:changed"));
    /// let (observer, strength) = ("export".to_owned(), Strength::Weak);
    /// client.leave_out_of_backlog([Observed { table, column, observer, strength }]);
    /// client.admit().await?;
    /// # Ok(()) });
    /// ```
    pub fn leave_out_of_backlog(&self, observers: impl IntoIterator<Item = Observed>) {
        self.shared.admission().left_out().extend(observers);
    }

    /// Waits while too many changes wait for observers, or while the store lacks room for new
    /// locks and notifications. Programs that bring in new work call it before each piece.
    ///
    /// The backlog is bounded by [`backlog_max`](crate::Options::backlog_max). If this client
    /// has workers, changes that wait for them count. With
    /// [`backlog_of_store`](crate::Options::backlog_of_store), which is set in a cluster, the
    /// notifications in the store count. The client counts them every half second at most. Columns
    /// with a paused observer are left out. Changes for a batching observer of this client count
    /// only in the store, and not if they are [left out](Client::leave_out_of_backlog).
    ///
    /// If an observer calls it, also through other functions, it returns at once, because
    /// observers are what clears the backlog. A task that an observer has spawned is not
    /// recognised as part of the observer.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::Column;
    /// let (docs, text) = (client.table("docs").await?, Column::literal("doc:text"));
    /// for n in 0..10_000u32 {
    ///     client.admit().await?;
    ///     client.transact(async |mut tx| tx.set(&docs, n.to_string(), &text, "..")).await?;
    /// }
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`Error::Overloaded`](crate::Error::Overloaded) after
    /// [`admit_wait_max`](crate::Options::admit_wait_max); it says which changes wait, and
    /// what helps. [`Error::Closed`](crate::Error::Closed).
    pub async fn admit(&self) -> Result<()> {
        admit::admit(&self.shared).await
    }
}
