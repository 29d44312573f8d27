//! Defines [`Client`], the public face: everything that a program does with a database. Each
//! method calls one function in the module that implements it.

mod observers;
mod upkeep;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bigtable::Timestamp;

use crate::gc::hold::held_snapshot;
use crate::gc::unfenced::{check_life, keep_held, publish_life};
use crate::records::format;
use crate::records::layout::{SYSTEM_TABLE, open_system};
use crate::records::placement::Placement;
use crate::records::schema::Schema;
use crate::runtime::fresh_incarnation;
use crate::shared::{Services, Shared};
use crate::trace::write::start;
use crate::txn::begin::{begin, snapshot, snapshot_at};
use crate::txn::transact::{self, Attempt, Receipt};
use crate::{
    CloseReport, Incarnation, Options, Oracle, Result, Runtime, Snapshot, Stats, Table,
    Transaction, close,
};

/// A client of one store: begins transactions, reads the past, runs observers. Cloning is
/// cheap. All clones are one client with one liveness token, which is given up when the last
/// clone is dropped.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::Column;
/// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
/// let mut tx = client.begin().await?;
/// tx.set(&accounts, "Bob", &bal, "$10")?;
/// tx.commit().await?;
/// let tx = client.begin().await?;
/// assert_eq!(tx.get(&accounts, "Bob", &bal).await?.as_deref(), Some(&b"$10"[..]));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// The name of the transactions that this handle begins.
    name: Option<Arc<str>>,
}

/// A handle that does not keep its client open.
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// assert_eq!(client.downgrade().upgrade().unwrap().incarnation(), client.incarnation());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct WeakClient(Weak<Shared>);

impl WeakClient {
    /// The client, if it still has a handle.
    pub fn upgrade(&self) -> Option<Client> {
        Some(Client { shared: self.0.upgrade()?, name: None })
    }
}

impl Client {
    /// Opens a client under a fresh incarnation and registers its liveness token.
    ///
    /// # Errors
    /// * [`Error::Store`](crate::Error::Store) if the store holds data of a newer format.
    /// * [`Error::Invalid`](crate::Error::Invalid) if the store has no floor and its requests
    ///   may live too long.
    /// * Errors of store and services.
    pub async fn open(services: Services, options: Options) -> Result<Self> {
        let incarnation = fresh_incarnation(&*services.runtime);
        let life = services.store.request_life_max();
        check_life(life)?;
        let system = open_system(&*services.store, SYSTEM_TABLE).await?;
        let placement = format::check(&*system, Placement::of(&*services.store)).await?;
        let schema = Schema::read(&*system).await?;
        // Register last: if something failed after this, nobody would give the token up.
        services.locks.register(incarnation).await?;
        let shared = Shared::new(services, options, incarnation, system, placement, schema);
        let shared = Arc::new(shared);
        start(&shared);
        if let Some(life) = life {
            publish_life(&shared, life).await?;
            keep_held(&shared, life);
        }
        Ok(Client { shared, name: None })
    }

    /// A handle of this client whose transactions carry a name, which the watcher and traces
    /// show. In all else it is like any other handle.
    ///
    /// Names are for people who look at many transactions at once. Name each kind of
    /// transaction, not each single one.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::Column;
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let deposits = client.named("deposit");
    /// deposits.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
    /// assert_eq!(deposits.incarnation(), client.incarnation());
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn named(&self, name: impl Into<Arc<str>>) -> Client {
        Client { shared: self.shared.clone(), name: Some(name.into()) }
    }

    /// Opens a table, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a malformed name; those of the store.
    pub async fn table(&self, name: &str) -> Result<Table> {
        self.shared.table(name).await
    }

    /// The names of the store's tables, sorted, without Percolator's own.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn table_names(&self) -> Result<Vec<String>> {
        self.shared.table_names().await
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`Error::Oracle`](crate::Error::Oracle) if the oracle issues no timestamp. Errors of the
    /// store if observers were registered meanwhile and the schema cannot be read.
    pub async fn begin(&self) -> Result<Transaction> {
        begin(&self.shared, self.name.as_ref()).await
    }

    /// A read-only view of the data as it was at `ts`.
    ///
    /// # Errors
    /// [`Error::NotIssued`](crate::Error::NotIssued) above the latest timestamp,
    /// [`Error::TooOld`](crate::Error::TooOld) below the safe point.
    pub async fn snapshot_at(&self, ts: Timestamp) -> Result<Snapshot> {
        snapshot_at(&self.shared, ts).await
    }

    /// A read-only view of the data as of the latest timestamp issued. Issues no timestamp
    /// itself.
    ///
    /// # Errors
    /// [`Error::Oracle`](crate::Error::Oracle) when the oracle cannot be reached.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        snapshot(&self.shared).await
    }

    /// A read-only view of the data at a timestamp, or as of the latest timestamp issued, that no
    /// garbage collection of any client passes. Use it to read for long, such as for an export.
    ///
    /// Any snapshot is kept from the collection of its own client. From that of other clients it
    /// is kept after 20 seconds at most, and this one from the beginning. That takes a write to
    /// the store, which is repeated every 10 seconds until the snapshot is dropped. It is repeated
    /// only if this client [collects in the background](Client::collect_in_background). If it is
    /// not repeated, other clients forget the snapshot after 30 seconds. Then its reads may fail
    /// with [`Error::TooOld`](crate::Error::TooOld). A client without its liveness token is
    /// forgotten at once. On a store without a floor, every client keeps its open timestamps
    /// registered, and this method does no more than `snapshot_at`.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::Column;
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
    /// let snapshot = client.held_snapshot(None).await?;
    /// client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$3")).await?;
    /// client.gc(std::time::Duration::ZERO).await?;
    /// let bob = snapshot.get(&accounts, "Bob", &bal).await?;
    /// assert_eq!(bob.as_deref(), Some(&b"$10"[..]));
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`snapshot_at`](Client::snapshot_at), or as [`snapshot`](Client::snapshot) without a
    /// timestamp; those of the store.
    pub async fn held_snapshot(&self, at: Option<Timestamp>) -> Result<Snapshot> {
        held_snapshot(&self.shared, at).await
    }

    /// Runs `work` in a transaction and commits it. The closure runs again, in a new transaction,
    /// after each error that [`is_retryable`](crate::Error::is_retryable), whether `begin`, the
    /// closure or the commit returned it. So it must be safe to repeat. These errors are
    /// conflicts, rollbacks, `TooOld`, `Locked`, and failures of the store that pass. Each attempt
    /// may wait for a lock for [`read_wait_max`](crate::Options::read_wait_max).
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::{Column, Error};
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let balance = client.transact(async |mut tx| {
    ///     let old = tx.get(&accounts, "Bob", &bal).await?.map_or(0, |value| value[0]);
    ///     tx.set(&accounts, "Bob", &bal, vec![old + 1])?;
    ///     Ok(old + 1)
    /// }).await?;
    /// assert_eq!(balance, 1);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// * The error of the last attempt, once the client's
    ///   [`attempts_max`](crate::Options::attempts_max) attempts are used up.
    /// * Every other error at once: [`Error::Unknown`](crate::Error::Unknown), an abort because
    ///   the oracle gave no timestamp, and those that the closure returns.
    ///
    /// # Cancellation
    /// If the future is dropped while the closure runs or between two attempts, nothing was
    /// written. If it is dropped while an attempt commits, [the commit is
    /// finished](Transaction::commit) in the background.
    pub async fn transact<T, F, W>(&self, work: F) -> Result<T>
    where
        F: Fn(Attempt) -> W,
        W: Future<Output = Result<T>>,
    {
        Ok(transact::transact(&self.shared, self.name.as_ref(), work).await?.value)
    }

    /// Works like [`transact`](Client::transact), and also returns the commit timestamp.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::{Column, Receipt};
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let set = async |mut tx: percolator::Attempt| tx.set(&accounts, "Bob", &bal, "$10");
    /// let Receipt { commit_ts, .. } = client.transact_receipt(set).await?;
    /// let then = client.snapshot_at(commit_ts).await?;
    /// assert_eq!(then.get(&accounts, "Bob", &bal).await?.as_deref(), Some(&b"$10"[..]));
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`transact`](Client::transact).
    pub async fn transact_receipt<T, F, W>(&self, work: F) -> Result<Receipt<T>>
    where
        F: Fn(Attempt) -> W,
        W: Future<Output = Result<T>>,
    {
        transact::transact(&self.shared, self.name.as_ref(), work).await
    }

    /// Makes every commit that any client reported before this call safe from a power cut, and
    /// then returns. If the store syncs each commit, there is nothing to do. A server behind a
    /// network syncs as it was configured; a client cannot make it sync more.
    ///
    /// A program that can repeat its work, such as a bulk load, may open its database with
    /// less durability. It calls this method before it reports that it is done.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::Column;
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
    /// client.sync().await?;
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if the store cannot write. Committed data still
    /// exists unless the machine stops, and the next call tries again.
    ///
    /// # Cancellation
    /// If the future is dropped, the sync goes on. Nothing else depends on it.
    pub async fn sync(&self) -> Result<()> {
        self.shared.check_open()?;
        Ok(self.shared.services().store.sync().await?)
    }

    /// The counts of this client since it was opened.
    pub fn stats(&self) -> Stats {
        self.shared.counters().read()
    }

    /// Ends everything that this client does in the background, and waits for it.
    ///
    /// Workers finish the cell they are at, however long that takes. Secondary rows, and
    /// commits whose caller dropped the future, are committed. Collectors stop where they are.
    /// Then the client gives up its liveness token.
    ///
    /// From then on transactions, snapshots, reads and commits of any clone of this client fail
    /// with [`Error::Closed`](crate::Error::Closed). So do `sync`, `admit` and `resolve_lock`.
    /// Other administrative calls are not refused, and work as long as the store is open. `close`
    /// waits for a commit that another task has begun. A caller that holds the future of a commit
    /// without polling it therefore delays `close`. Other clients of the same store go on. Closing
    /// a closed client does nothing. An observer must not await this method, because it would wait
    /// for itself.
    ///
    /// ```
    /// # use percolator_core::face as percolator;
    /// # percolator_core::doc_test(|client| async move {
    /// use percolator::{Column, Error};
    /// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
    /// let open = client.begin().await?;
    /// client.close().await;
    /// assert!(matches!(client.begin().await, Err(Error::Closed)));
    /// assert!(matches!(open.get(&accounts, "Bob", &bal).await, Err(Error::Closed)));
    /// # Ok(()) });
    /// ```
    pub async fn close(&self) {
        close::close(&self.shared, None).await;
    }

    /// Works like [`close`](Client::close), but waits at most for `longest`. It waits a second
    /// more for each [`observe`](Client::observe) whose workers block their thread, and two seconds
    /// for the last rows of a trace. Returns a report of the work that is left.
    pub async fn close_within(&self, longest: Duration) -> CloseReport {
        close::close(&self.shared, Some(longest)).await
    }

    /// A weak handle of this client, for a task that must not keep it alive.
    pub fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.shared))
    }

    /// The name of this life of this client.
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation()
    }

    /// The services that the client uses.
    pub fn services(&self) -> &Services {
        self.shared.services()
    }

    /// The timestamp oracle.
    pub fn oracle(&self) -> &dyn Oracle {
        self.shared.oracle()
    }

    /// The runtime.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        self.shared.runtime()
    }

    /// The options.
    pub fn options(&self) -> &Options {
        self.shared.options()
    }
}

impl Transaction {
    /// The client that began the transaction.
    pub fn client(&self) -> Client {
        Client { shared: self.shared.clone(), name: None }
    }
}
