//! Opening a database: store, oracle, lock service and client in one process.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bigtable::{MemoryStore, Store};
#[cfg(feature = "embedded")]
use bigtable_fjall::FjallStore;
use percolator_core::{
    Client, CloseReport, Collector, GcOptions, Options, ProcessLocks, Result, Runtime, Services,
    WeakClient, WindowOracle, fresh_incarnation,
};

use crate::tokio_runtime::TokioRuntime;

/// A database in this process. Everything a [`Client`] can do, it can.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator::{Column, Percolator};
/// let db = Percolator::in_memory().await?;
/// let (accounts, bal) = (db.table("accounts").await?, Column::literal("bal"));
/// db.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
/// let bob = db.snapshot().await?.get(&accounts, "Bob", &bal).await?;
/// assert_eq!(bob.as_deref(), Some(&b"$10"[..]));
/// # Ok::<(), percolator::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Percolator {
    client: Client,
    gc: Option<GcOptions>,
    pub(crate) shared: Arc<Shared>,
    /// Ends with the last handle.
    _collector: Option<Arc<Collector>>,
}

/// What all clients of a database in this process share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The store, if it was opened here.
    #[cfg(feature = "embedded")]
    pub(crate) store: Option<FjallStore>,
    /// All clients, to close them.
    pub(crate) clients: Mutex<Vec<WeakClient>>,
}

impl Percolator {
    /// A database in memory, gone with its last handle.
    ///
    /// # Errors
    /// None but those of a store that is full.
    pub async fn in_memory() -> Result<Self> {
        let gc = Some(GcOptions::default());
        let store = Arc::new(MemoryStore::new());
        Self::start(store, Options::default(), gc, Shared::default()).await
    }

    /// A database over any store, with oracle and lock service in this process. No other process
    /// may use the store; `Percolator::connect` is for a store that processes share. Garbage is
    /// collected when [`gc`](Client::gc) or
    /// [`collect_in_background`](Client::collect_in_background) is called.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn over(store: Arc<dyn Store>, options: Options) -> Result<Self> {
        Self::start(store, options, None, Shared::default()).await
    }

    pub(crate) async fn start(
        store: Arc<dyn Store>,
        options: Options,
        gc: Option<GcOptions>,
        shared: Shared,
    ) -> Result<Self> {
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
        let holder = fresh_incarnation(&*runtime);
        let oracle = Arc::new(WindowOracle::open(&*store, holder).await?);
        let locks = Arc::new(ProcessLocks::new(runtime.clone()));
        let services = Services { store, oracle, locks, runtime };
        Ok(Self::with(Client::open(services, options).await?, gc, Arc::new(shared)))
    }

    /// A second client of the same database, with a liveness token of its own: what it leaves
    /// behind when it is dropped in the middle of a commit is cleaned up by others at once.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn another_client(&self) -> Result<Self> {
        self.another_client_with(self.client.options().clone(), self.gc.clone()).await
    }

    /// As [`another_client`](Percolator::another_client), with options of its own. The client
    /// collects garbage in the background as `gc` says, and not at all if that is `None`.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use percolator::{Options, Percolator, transaction::CommitPath};
    /// let db = Percolator::in_memory().await?;
    /// let options = Options { commit_path: CommitPath::TwoPhases, ..Options::default() };
    /// let other = db.another_client_with(options, None).await?;
    /// assert_eq!(other.options().commit_path, CommitPath::TwoPhases);
    /// assert_ne!(other.incarnation(), db.incarnation());
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of the store.
    pub async fn another_client_with(
        &self,
        options: Options,
        gc: Option<GcOptions>,
    ) -> Result<Self> {
        let client = Client::open(self.client.services().clone(), options).await?;
        Ok(Self::with(client, gc, self.shared.clone()))
    }

    /// A database over the services of a cluster.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_cluster(client: Client, gc: Option<GcOptions>) -> Self {
        Self::with(client, gc, Arc::default())
    }

    fn with(client: Client, gc: Option<GcOptions>, shared: Arc<Shared>) -> Self {
        let mut clients = shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // A program may open and drop clients for as long as it runs.
        clients.retain(|client| client.upgrade().is_some());
        clients.push(client.downgrade());
        drop(clients);
        let collector = gc.clone().map(|gc| Arc::new(client.collect_in_background(gc)));
        Percolator { client, gc, shared, _collector: collector }
    }

    /// Closes the database: waits for the workers and for commits that go on in the background,
    /// ends the collection of garbage, and then, if `Percolator::open` opened the database in a
    /// directory, writes its buffers out and closes its files. The directory can be opened again at
    /// once, also by this process. A database that is dropped instead loses nothing, but the next
    /// opening has to read its journal.
    ///
    /// All clients of the database in this process are closed, those of
    /// [`another_client`](Percolator::another_client) included; [`Client::close`] says what of each
    /// is waited for. From then on clones, tables and open transactions fail with
    /// [`Error::Closed`](percolator_core::Error::Closed). A store that was handed over, with
    /// [`over`](Percolator::over) or `Percolator::connect`, stays open. Closing a database that is
    /// closed does nothing.
    ///
    /// An observer that never ends holds this up: see [`close_within`](Percolator::close_within).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use percolator::{Error, Percolator};
    /// let db = Percolator::in_memory().await?;
    /// let clone = db.clone();
    /// db.close().await?;
    /// assert!(matches!(clone.begin().await, Err(Error::Closed)));
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`](percolator_core::Error::Store) if the files could not be closed, because a
    /// request does not come to its end.
    pub async fn close(&self) -> Result<()> {
        for client in self.clients() {
            client.close().await;
        }
        self.close_store().await
    }

    /// As [`close`](Percolator::close), but waits for so long at most for each client of the
    /// database, and returns what is left. The files are closed in any case.
    ///
    /// # Errors
    /// As [`close`](Percolator::close).
    pub async fn close_within(&self, longest: Duration) -> Result<CloseReport> {
        let mut all = CloseReport::default();
        for client in self.clients() {
            let report = client.close_within(longest).await;
            all.runs_abandoned += report.runs_abandoned;
            all.commits_left += report.commits_left;
        }
        self.close_store().await.map(|()| all)
    }

    fn clients(&self) -> Vec<Client> {
        let mut clients = self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let living = clients.iter().filter_map(WeakClient::upgrade).collect();
        clients.retain(|client| client.upgrade().is_some());
        living
    }

    async fn close_store(&self) -> Result<()> {
        #[cfg(feature = "embedded")]
        if let Some(store) = self.shared.store.clone() {
            crate::embedded::close(store).await?;
        }
        Ok(())
    }
}

impl Deref for Percolator {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}
