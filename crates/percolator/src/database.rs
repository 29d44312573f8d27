//! Opening a database: store, oracle, lock service and client in one process.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use bigtable::{MemoryStore, Store};
use bigtable_fjall::{FjallStore, Recovery};
use percolator_core::{
    Client, Collector, Error, GcOptions, Options, ProcessLocks, Result, Runtime, Services,
    WindowOracle, fresh_incarnation,
};

use crate::TokioRuntime;

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
    recovery: Option<Recovery>,
    /// Ends with the last handle.
    _collector: Option<Arc<Collector>>,
}

/// How a database on disk is opened.
///
/// ```
/// use percolator::{Durability, OpenOptions};
/// let options = OpenOptions { durability: Durability::Buffered, ..OpenOptions::default() };
/// assert_eq!(options.cache_bytes, 128 << 20);
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Whether acknowledged commits survive a power cut, or the end of the process only.
    pub durability: bigtable_fjall::Durability,
    /// Memory for blocks read from disk.
    pub cache_bytes: u64,
    /// How old versions are collected in the background; `None` keeps them until
    /// [`gc`](Client::gc) is called.
    pub gc: Option<GcOptions>,
    /// The client's own options.
    pub client: Options,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            durability: bigtable_fjall::Durability::Sync,
            cache_bytes: 128 << 20,
            gc: Some(GcOptions::default()),
            client: Options::default(),
        }
    }
}

impl Percolator {
    /// Opens the database in a directory, creating it if it is not there. Acknowledged commits
    /// survive a power cut; see [`open_with`](Percolator::open_with) for faster and weaker.
    ///
    /// Only one process may have a directory open.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("db");
    /// let db = percolator::Percolator::open(&dir).await?;
    /// assert!(percolator::Percolator::open(&dir).await.is_err());
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`](percolator_core::Error::Store) names the file and the remedy when the directory
    /// is locked by another process, belongs to another program, is of a newer format or damaged.
    pub async fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, OpenOptions::default()).await
    }

    /// As [`open`](Percolator::open), with options.
    ///
    /// # Errors
    /// As [`open`](Percolator::open).
    pub async fn open_with(dir: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let engine = bigtable_fjall::Options {
            durability: options.durability,
            cache_bytes: options.cache_bytes,
            upkeep_tables: percolator_core::upkeep_tables(),
            ..bigtable_fjall::Options::default()
        };
        let dir = dir.as_ref().to_owned();
        // It reads the journal, and syncs.
        let opening = tokio::task::spawn_blocking(move || FjallStore::open(dir, engine));
        let ended = |why| Error::Unavailable(format!("opening it did not end: {why}"));
        let store = opening.await.map_err(ended)??;
        let recovery = store.recovery().cloned();
        let db = Self::start(Arc::new(store), options.client, options.gc).await?;
        Ok(Percolator { recovery, ..db })
    }

    /// What opening the directory cut off the end of its journal, if anything: the part of a batch that
    /// a crash left, or batches that a power cut took from a [`Buffered`](crate::Durability::Buffered)
    /// database. The directory keeps the reports of earlier openings in its file `RECOVERIES`.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("db");
    /// let db = percolator::Percolator::open(&dir).await?;
    /// if let Some(cut) = db.recovery() {
    ///     eprintln!("{cut}");
    /// }
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// A database in memory, gone with its last handle.
    ///
    /// # Errors
    /// None but those of a store that is full.
    pub async fn in_memory() -> Result<Self> {
        let gc = Some(GcOptions::default());
        Self::start(Arc::new(MemoryStore::new()), Options::default(), gc).await
    }

    /// A database over any store, with oracle and lock service in this process: no other process may use
    /// the store; see [`connect`](Percolator::connect) for that. Garbage is collected
    /// when [`gc`](Client::gc) or [`collect_in_background`](Client::collect_in_background) is called.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn over(store: Arc<dyn Store>, options: Options) -> Result<Self> {
        Self::start(store, options, None).await
    }

    async fn start(store: Arc<dyn Store>, options: Options, gc: Option<GcOptions>) -> Result<Self> {
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
        let holder = fresh_incarnation(&*runtime);
        let oracle = Arc::new(WindowOracle::open(&*store, holder).await?);
        let locks = Arc::new(ProcessLocks::new(runtime.clone()));
        let services = Services { store, oracle, locks, runtime };
        Ok(Self::with(Client::open(services, options).await?, gc))
    }

    /// A second client of the same database, with a liveness token of its own: what it leaves behind
    /// when it is dropped in the middle of a commit is cleaned up by others at once.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn another_client(&self) -> Result<Self> {
        let services = self.client.services().clone();
        let client = Client::open(services, self.client.options().clone()).await?;
        Ok(Self::with(client, self.gc.clone()))
    }

    pub(crate) fn with(client: Client, gc: Option<GcOptions>) -> Self {
        let collector = gc.clone().map(|gc| Arc::new(client.collect_in_background(gc)));
        Percolator { client, gc, recovery: None, _collector: collector }
    }
}

impl Deref for Percolator {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}
