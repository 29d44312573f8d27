//! Opens a database in a directory of this machine, and reports what its recovery cut off.

use std::path::Path;
use std::sync::Arc;

use bigtable::Store as _;
use bigtable_fjall::{FjallStore, Recovery};
use percolator_core::{Error, GcOptions, Options, Result, SYSTEM_TABLE};

use crate::Percolator;
use crate::database::Shared;

/// The table in which a table server lists its tables: `CATALOG_TABLE` of `bigtable-grpc`.
const SERVED: &str = ".tables";

/// The options of opening a database on disk. Needs the feature `embedded`.
///
/// ```
/// use percolator::{Durability, OpenOptions};
/// let options = OpenOptions { durability: Durability::Buffered, ..OpenOptions::default() };
/// assert_eq!(options.cache_bytes, 128 << 20);
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Whether acknowledged commits survive a power cut, or only the end of the process.
    /// Default: `Sync`.
    pub durability: bigtable_fjall::Durability,
    /// The cache for blocks read from disk, in bytes. Default: 134,217,728 bytes.
    pub cache_bytes: u64,
    /// How old versions are collected in the background. `None` keeps them until
    /// [`gc`](percolator_core::Client::gc) is called. Default: that of its type.
    pub gc: Option<GcOptions>,
    /// The client's options. Default: that of its type.
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
    /// Opens the database in a directory, and creates it if there is none. Acknowledged
    /// commits survive a power cut; [`open_with`](Percolator::open_with) offers a faster and
    /// weaker durability. [`close`](Percolator::close) closes the database. Needs the feature
    /// `embedded`.
    ///
    /// Only one process may have a directory open.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path().join("db");
    /// use percolator::Percolator;
    /// let db = Percolator::open(&dir).await?;
    /// assert!(Percolator::open(&dir).await.is_err());
    /// db.close().await?;
    /// Percolator::open(&dir).await?.close().await?;
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`] names the file and the remedy. It is returned if another process has
    /// the directory open, or if the directory belongs to another program, has a newer format
    /// or is damaged.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, OpenOptions::default()).await
    }

    /// Like [`open`](Percolator::open), with options. Needs the feature `embedded`.
    ///
    /// # Errors
    /// As [`open`](Percolator::open).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn open_with(dir: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let engine = bigtable_fjall::Options {
            durability: options.durability,
            cache_bytes: options.cache_bytes,
            upkeep_tables: percolator_core::upkeep_tables(),
            ..bigtable_fjall::Options::default()
        };
        let dir = dir.as_ref().to_owned();
        // On a thread for blocking work, because opening reads the journal and syncs.
        let opening = tokio::task::spawn_blocking(move || FjallStore::open(dir, engine));
        let ended = |why| Error::Unavailable(format!("opening the store was interrupted: {why}"));
        let store = opening.await.map_err(ended)??;
        check_is_no_servers(&store).await?;
        let shared = Shared { store: Some(store.clone()), ..Shared::default() };
        Self::start(Arc::new(store), options.client, options.gc, shared).await
    }

    /// Returns what opening the directory cut off the end of its journal, if anything. That is
    /// the part of a batch that a crash left, or the batches that a
    /// [`Buffered`](crate::Durability::Buffered) database lost in a power cut. The directory
    /// keeps the reports of earlier openings in its file `RECOVERIES`. Needs the feature
    /// `embedded`.
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
        self.shared.store.as_ref()?.recovery()
    }
}

/// Refuses the directory of a table server. A database in it would lie beside the server's tables,
/// where no client of the server finds it.
async fn check_is_no_servers(store: &FjallStore) -> Result<()> {
    let names = store.table_names().await?;
    let has = |table: &str| names.iter().any(|name| name == table);
    if !has(SERVED) || has(SYSTEM_TABLE) {
        return Ok(());
    }
    Err(Error::Store(bigtable::Error::Files {
        path: store.directory().to_owned(),
        problem: "the directory holds the tables of a table server, and no database that a \
                  program opens itself"
            .to_owned(),
        remedy: "serve it with `percolator serve table --data DIR`, and reach it with --config \
                 FILE, or with `Config` in a program"
            .to_owned(),
    }))
}

/// Closes the files of a store.
pub(crate) async fn close(store: FjallStore) -> Result<()> {
    // On a thread for blocking work, because closing waits for the disk.
    let closing = tokio::task::spawn_blocking(move || store.close());
    let ended = |why| Error::Unavailable(format!("closing the store was interrupted: {why}"));
    Ok(closing.await.map_err(ended)??)
}
