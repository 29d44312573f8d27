//! Opens and closes a database: the store, the oracle, the lock service and the client of one
//! process.

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

/// A database in this process. It dereferences to [`Client`], which has all operations on
/// data.
///
/// Keep it for as long as you use the database. When the last `Percolator` is dropped, garbage
/// collection in the background ends, even if some `Client` still works.
///
/// Its background work runs in the tokio runtime in which the database was opened, and ends with
/// that runtime. The runtime needs timers (`enable_time`).
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
    /// Ends when the last handle is dropped.
    _collector: Option<Arc<Collector>>,
}

/// The state that all clients of a database in this process share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The store, if `Percolator::open` opened it.
    #[cfg(feature = "embedded")]
    pub(crate) store: Option<FjallStore>,
    /// All clients, so that `close` can close them.
    pub(crate) clients: Mutex<Vec<WeakClient>>,
}

impl Percolator {
    /// Creates a database in memory, which is gone when its last handle is dropped.
    ///
    /// # Errors
    /// Only those of a store that is full.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn in_memory() -> Result<Self> {
        let gc = Some(GcOptions::default());
        let store = Arc::new(MemoryStore::new());
        Self::start(store, Options::default(), gc, Shared::default()).await
    }

    /// Opens a database over any store, with oracle and lock service in this process. No other
    /// process may use the store; for a store that processes share there is
    /// `Percolator::connect`. Garbage is collected only if you call [`gc`](Client::gc) or
    /// [`collect_in_background`](Client::collect_in_background).
    ///
    /// # Errors
    /// Errors of the store.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
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

    /// Opens a second client of the same database, with its own liveness token. A commit that is
    /// under way when the client is dropped is finished before the token is given up.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn another_client(&self) -> Result<Self> {
        self.another_client_with(self.client.options().clone(), self.gc.clone()).await
    }

    /// Like [`another_client`](Percolator::another_client), with other options. `gc` says how
    /// the client collects garbage in the background; `None` means not at all.
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
    /// Errors of the store.
    pub async fn another_client_with(
        &self,
        options: Options,
        gc: Option<GcOptions>,
    ) -> Result<Self> {
        let client = Client::open(self.client.services().clone(), options).await?;
        Ok(Self::with(client, gc, self.shared.clone()))
    }

    /// Wraps a client of a cluster's services.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_cluster(client: Client, gc: Option<GcOptions>) -> Self {
        Self::with(client, gc, Arc::default())
    }

    fn with(client: Client, gc: Option<GcOptions>, shared: Arc<Shared>) -> Self {
        let mut clients = shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Forget dropped clients here: a program may open and drop clients for as long as it
        // runs.
        clients.retain(|client| client.upgrade().is_some());
        clients.push(client.downgrade());
        drop(clients);
        let collector = gc.clone().map(|gc| Arc::new(client.collect_in_background(gc)));
        Percolator { client, gc, shared, _collector: collector }
    }

    /// Closes the database. Waits for the workers and for commits in the background, and ends
    /// the collection of garbage. If `Percolator::open` opened the database in a directory, it
    /// then writes the buffers out and closes the files. The directory can be opened again at
    /// once, also by this process.
    ///
    /// A database that is dropped instead loses nothing, but the next opening has to read its
    /// journal.
    ///
    /// This closes all clients of the database in this process, including those of
    /// [`another_client`](Percolator::another_client), but not those of another
    /// `Percolator::connect`. [`Client::close`] describes what it waits for. From then on clones,
    /// tables and open transactions fail with [`Error::Closed`](percolator_core::Error::Closed). A
    /// store that you passed to [`over`](Percolator::over) or `Percolator::connect` stays open.
    /// Closing a closed database does nothing.
    ///
    /// An observer that never ends blocks this call: see
    /// [`close_within`](Percolator::close_within).
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
    /// [`Error::Store`](percolator_core::Error::Store) if the files could not be closed,
    /// because a request has not ended.
    pub async fn close(&self) -> Result<()> {
        for client in self.clients() {
            client.close().await;
        }
        self.close_store().await
    }

    /// Like [`close`](Percolator::close), but waits at most `longest` for each client of the
    /// database, as [`Client::close_within`] says, and returns what was left unfinished. Closes the
    /// files in any case, which may take a minute more.
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
