//! A database in a directory of this machine: opening it, and what its recovery cut off.

use std::path::Path;
use std::sync::Arc;

use bigtable_fjall::{FjallStore, Recovery};
use percolator_core::{Error, GcOptions, Options, Result};

use crate::Percolator;
use crate::database::Shared;

/// How a database on disk is opened. Needs the feature `embedded`.
///
/// ```
/// use percolator::{Durability, OpenOptions};
/// let options = OpenOptions { durability: Durability::Buffered, ..OpenOptions::default() };
/// assert_eq!(options.cache_bytes, 128 << 20);
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Whether acknowledged commits survive a power cut, or the end of the process only. Default:
    /// `Sync`.
    pub durability: bigtable_fjall::Durability,
    /// Memory for blocks read from disk. Default: 134,217,728 bytes.
    pub cache_bytes: u64,
    /// How old versions are collected in the background; `None` keeps them until
    /// [`gc`](percolator_core::Client::gc) is called. Default: that of its type.
    pub gc: Option<GcOptions>,
    /// The client's own options. Default: that of its type.
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
    /// [`close`](Percolator::close) closes it. Needs the feature `embedded`.
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
    /// [`Error::Store`] names the file and the remedy when the directory
    /// is locked by another process, belongs to another program, is of a newer format or damaged.
    pub async fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, OpenOptions::default()).await
    }

    /// As [`open`](Percolator::open), with options. Needs the feature `embedded`.
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
        // Opening reads the journal, and syncs.
        let opening = tokio::task::spawn_blocking(move || FjallStore::open(dir, engine));
        let ended = |why| Error::Unavailable(format!("opening it did not end: {why}"));
        let store = opening.await.map_err(ended)??;
        let shared = Shared { store: Some(store.clone()), ..Shared::default() };
        Self::start(Arc::new(store), options.client, options.gc, shared).await
    }

    /// What opening the directory cut off the end of its journal, if anything: the part of a batch
    /// that a crash left, or batches that a power cut took from a
    /// [`Buffered`](crate::Durability::Buffered) database. The directory keeps the reports of
    /// earlier openings in its file `RECOVERIES`. Needs the feature `embedded`.
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

/// Closes the files of a store.
pub(crate) async fn close(store: FjallStore) -> Result<()> {
    // Closing waits for the disk.
    let closing = tokio::task::spawn_blocking(move || store.close());
    let ended = |why| Error::Unavailable(format!("closing it did not end: {why}"));
    Ok(closing.await.map_err(ended)??)
}
