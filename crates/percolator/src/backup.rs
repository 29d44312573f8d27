//! Makes backups of a database in a directory, and new databases from backups.

use std::path::Path;

use bigtable::Store;
use bigtable_fjall::{BackedUp, Durability, FjallStore, Restored, Restoring};
use percolator_core::{
    Error, InvalidKind, Oracle, Result, SYSTEM_TABLE, WindowOracle, fresh_incarnation,
};

use crate::Percolator;
use crate::embedded::close;
use crate::tokio_runtime::TokioRuntime;

impl Percolator {
    /// Writes a backup of the database as it is at one moment. Transactions go on meanwhile.
    /// The backup has every commit that was acknowledged before this call. Needs the feature
    /// `embedded`.
    ///
    /// The directory `to` is empty, does not exist, or holds an earlier backup of the same
    /// database. In the last case only new contents are written, and the new backup replaces
    /// the earlier one.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (data, copy) = (dir.path().join("d"), dir.path().join("c"));
    /// # let new = dir.path().join("n");
    /// use percolator::{Column, Percolator};
    /// let db = Percolator::open(&data).await?;
    /// let (accounts, bal) = (db.table("accounts").await?, Column::literal("bal"));
    /// db.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await?;
    /// db.backup(&copy).await?;
    ///
    /// Percolator::restore(&copy, &new).await?;
    /// let restored = Percolator::open(&new).await?;
    /// let accounts = restored.table("accounts").await?;
    /// let bob = restored.snapshot().await?.get(&accounts, "Bob", &bal).await?;
    /// assert_eq!(bob.as_deref(), Some(&b"$10"[..]));
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if [`open`](Percolator::open) did not open this database.
    /// [`Error::Store`] if a file is damaged, if `to` holds something else, or if `to` cannot
    /// be written. An earlier backup in `to` stays.
    ///
    /// # Cancellation
    /// The backup goes on in the background.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<BackedUp> {
        let Some(store) = self.shared.store.clone() else {
            let what = "this database was not opened in a directory, so this process cannot back \
                        it up: make the backup in the process that opened the store's directory";
            return Err(Error::invalid(InvalidKind::Options, what));
        };
        let to = to.as_ref().to_owned();
        blocking("making the backup", move || store.backup(to)).await
    }

    /// Makes a database from a backup, in a directory that is empty or does not exist. All of
    /// the backup is compared with its checksums before the directory exists.
    ///
    /// The new database has a new [id](Store::id), and its timestamps begin 2^40 above those
    /// of the backup. So no client takes a timestamp of the old database for one of the new.
    /// Needs the feature `embedded`.
    ///
    /// See [`backup`](Percolator::backup) for an example.
    ///
    /// # Errors
    /// [`Error::Store`] if the backup is damaged or not whole, or if `to` is not empty or
    /// cannot be written. [`Error::Invalid`] if the backup holds no database, but for example
    /// the tables of a table server. The command `percolator restore` restores those.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn restore(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Restored> {
        let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
        let (restoring, store) = blocking("restoring the backup", move || {
            let restoring = Restoring::begin(from, to)?;
            let options = bigtable_fjall::Options {
                durability: Durability::Sync,
                ..bigtable_fjall::Options::default()
            };
            let store = FjallStore::open(restoring.path(), options)?;
            Ok((restoring, store))
        })
        .await?;
        let raised = raise(&store).await;
        // The files may be removed only after the store is closed.
        let closed = close(store).await;
        raised.and(closed)?;
        blocking("restoring the backup", move || restoring.finish()).await
    }
}

/// Raises the timestamps of a database that nobody has open. The old database went on after the
/// backup, and clients may have seen its later timestamps.
async fn raise(store: &FjallStore) -> Result<()> {
    if !store.table_names().await?.iter().any(|name| name == SYSTEM_TABLE) {
        let what = "the backup holds the store of a table server, and no database: restore it with \
                    `percolator restore`";
        return Err(Error::invalid(InvalidKind::Options, what));
    }
    let runtime = TokioRuntime::current();
    let issued = WindowOracle::open(store, fresh_incarnation(&runtime)).await?.peek().await?;
    let to = WindowOracle::far_above(issued)?;
    WindowOracle::raise(store, fresh_incarnation(&runtime), to).await
}

async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> bigtable::Result<T> + Send + 'static,
) -> Result<T> {
    let ended = |why| Error::Unavailable(format!("{what} was interrupted: {why}"));
    Ok(tokio::task::spawn_blocking(work).await.map_err(ended)??)
}
