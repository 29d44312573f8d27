//! Makes backups of an open store, and new stores from backups.
//!
//! ```text
//!   DIR/BACKUP        the list: which files the store consists of, by checksum; written last
//!   DIR/LOCK          locked while a backup is written, checked or restored
//!   DIR/files/<sum>   their contents, named by checksum and length
//! ```
//!
//! `moment.rs` takes the commit lock only to list the files: the journals first, then the
//! manifest of each keyspace. In this order the journals hold every batch that a manifest
//! lacks. If the engine writes a buffer out meanwhile, its batches are in a listed journal and
//! in the run. So every acknowledged batch is in a journal or in a manifest's files.
//! `moment.rs` also opens the journals, and holds the engine's own handles of the other files,
//! which keeps them on disk. The files are copied without the lock, while the store goes on.
//!
//! Contents are named by their checksum, so the next backup into the same directory copies
//! only new ones. Nothing is linked: journals grow in place, and a link to one would grow with
//! it.
//!
//! Invariants:
//! * `BACKUP` names files that are whole and synced. It is replaced in one step, so after a crash
//!   the directory holds the earlier backup or the new one.
//! * A journal is compared with the checksums of its batches when it is copied. A file of a
//!   keyspace is compared with the checksum in its manifest. A restore compares each content with
//!   its name.
//! * A restored store has another id than the one that was backed up.
//!
//! ```text
//!   list.rs     the file BACKUP            pool.rs     the directory of a backup
//!   moment.rs   what there is to copy      copy.rs     copying it
//!   lay_out.rs  a store out of a backup    restore.rs  a new store
//!   check.rs    `check`, for backups too
//! ```

mod check;
mod copy;
mod lay_out;
mod list;
mod moment;
mod pool;
mod restore;

use std::path::Path;

use bigtable::{Error, Result};

pub use self::check::check;
pub use self::list::BackedUp;
pub use self::restore::{Restored, Restoring};
use crate::backup::copy::{Stop, copy};
use crate::backup::list::List;
use crate::backup::moment::Moment;
use crate::backup::pool::Pool;
use crate::failure::fault;
use crate::store::FjallStore;
use crate::waits::may_wait;

/// How often a backup is tried, because the engine may be opened anew meanwhile.
const TRIES_MAX: usize = 10;

impl FjallStore {
    /// Writes a backup of the store as it is at one moment, between two batches. Requests go
    /// on meanwhile. The backup has everything that was acknowledged before this call.
    ///
    /// The directory `to` is empty, does not exist, or holds an earlier backup of the same
    /// store. In the last case only the contents that it lacks are written, and the new backup
    /// replaces the earlier one.
    ///
    /// This blocks for as long as it takes to read all of the store. In an async program, call
    /// it where blocking is allowed. Closing the store ends the backup.
    ///
    /// ```
    /// use bigtable::Store;
    /// use bigtable_fjall::{FjallStore, Options, Restoring};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (data, copy) = (dir.path().join("d"), dir.path().join("c"));
    /// # let new = dir.path().join("n");
    /// let store = FjallStore::open(&data, Options::default())?;
    /// assert!(store.backup(&copy)?.new_files > 0);
    /// let again = store.backup(&copy)?;
    /// assert!(again.new_files < again.files);
    ///
    /// Restoring::begin(&copy, &new)?.finish()?;
    /// assert_ne!(FjallStore::open(&new, Options::default())?.id(), store.id());
    /// # Ok::<(), bigtable::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Files`] if a file of the store is damaged, if `to` holds something else, or if
    /// `to` cannot be written. An earlier backup in `to` stays. [`Error::InUse`] while another
    /// backup is written to `to`, or while that directory is checked or restored.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<BackedUp> {
        may_wait("making a backup");
        let running = &self.running;
        let mut pool = Pool::open(to.as_ref(), running.id)?;
        for _ in 0..TRIES_MAX {
            let moment = running.with(&running.open, |engine, ()| Moment::take(engine))?;
            let copied = copy(&moment, &mut pool);
            // The engine can be closed only when its files are no longer held.
            drop(moment);
            match copied {
                Ok(list) => {
                    let list = pool.publish(list)?;
                    return Ok(pool.report(&list));
                }
                Err(Stop::Closing) => running.wait_for_engine()?,
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        let why = format!("the store reopened its engine {TRIES_MAX} times while it was copied");
        Err(Error::Unavailable { why })
    }
}

/// Describes the backup in a directory from its list. The contents are not read.
///
/// # Errors
/// [`Error::Files`] if the directory holds no whole backup.
pub fn backup_of(dir: impl AsRef<Path>) -> Result<BackedUp> {
    let dir = dir.as_ref();
    match List::read(dir)? {
        Some(list) => Ok(list.describe()),
        None => Err(no_backup(dir)),
    }
}

fn no_backup(dir: &Path) -> Error {
    fault::files(
        dir,
        "the directory holds no whole backup: there is no file BACKUP",
        "name the directory of a whole backup; an interrupted backup must be made again",
    )
}
