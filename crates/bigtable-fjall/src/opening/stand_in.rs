//! Opens a store whose directory this process cannot write.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use bigtable::Result;

use super::check::Closed;
use super::prepare::refuse;
use super::survey::Thorough;
use crate::directory::ID_FILE;
use crate::failure::fault;

/// A stand-in for a store whose directory this process can read and not write: a temporary
/// directory, which this process may open and change. Nothing of it reaches the store, and it is
/// removed when it is dropped.
///
/// The stand-in has copies of the store's journals, and links to the files that the store never
/// changes. So it needs as much space as the journals, 64 MiB each, and is the store as it was at
/// this moment. While it exists, no process can open the store for writing, if the store has a
/// lock file.
///
/// ```
/// use bigtable::Store;
/// use bigtable_fjall::{FjallStore, Options, StandIn};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("store");
/// drop(FjallStore::open(&dir, Options::default())?);
/// let stand_in = StandIn::of(&dir)?;
/// let read = FjallStore::open(stand_in.path(), Options::default())?;
/// assert!(FjallStore::open(&dir, Options::default()).is_err(), "it is being read");
/// assert!(read.id().is_some());
/// # Ok::<(), bigtable::Error>(())
/// ```
#[derive(Debug)]
pub struct StandIn {
    copy: tempfile::TempDir,
    /// Keeps writers away until the file is closed.
    _lock: Option<File>,
}

impl StandIn {
    /// Makes a stand-in for the store in `dir`. Changes nothing there. This blocks for as long as
    /// it takes to copy the journals.
    ///
    /// # Errors
    /// [`Error::InUse`](bigtable::Error::InUse) if a process has the directory open.
    /// [`Error::Files`](bigtable::Error::Files) if the directory holds no store or a damaged one,
    /// or if the temporary directory cannot be written.
    pub fn of(dir: impl AsRef<Path>) -> Result<StandIn> {
        let dir = dir.as_ref();
        let closed = Closed::look(dir, Thorough::No)?;
        refuse(dir, &closed.survey.damages)?;
        if let Some(cut) = &closed.survey.cut {
            tracing::warn!("{}: the next opening will report: {cut}", dir.display());
        }
        let copy = closed.stand_in()?;
        // The store keeps its id, so that data outside of the store still belongs to it.
        match fs::copy(dir.join(ID_FILE), copy.path().join(ID_FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(fault::io(copy.path(), "copying the id", &error))
            }
            _ => Ok(StandIn { copy, _lock: closed.lock }),
        }
    }

    /// The directory to open instead of the store's.
    pub fn path(&self) -> &Path {
        self.copy.path()
    }
}
