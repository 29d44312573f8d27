//! Makes a new store from a backup.
//!
//! The store is made beside its place, in a directory whose name ends in `.restoring`. When
//! the store is whole, the directory is renamed. So a crash leaves either nothing or the whole
//! store at its place.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use bigtable::{Error, Result, StoreId};

use crate::backup::lay_out::{How, lay_out};
use crate::backup::list::List;
use crate::backup::no_backup;
use crate::directory::{self, remove, sync_directory};
use crate::failure::fault;

/// Marks a directory that an unfinished restore has made. The file is locked while that
/// restore runs.
const MARK: &str = "RESTORING";

/// A store that is made from a backup, before it is at its place. If it is dropped without
/// [`finish`](Restoring::finish), it is removed.
///
/// See [`FjallStore::backup`](crate::FjallStore::backup) for an example.
#[derive(Debug)]
pub struct Restoring {
    making: PathBuf,
    to: PathBuf,
    restored: Restored,
    finished: bool,
    /// Closing the file releases the lock.
    _lock: File,
}

/// A store that was made from a backup.
///
/// See [`FjallStore::backup`](crate::FjallStore::backup) for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The id of the store that was backed up.
    pub from: StoreId,
    /// The id of the new store.
    pub id: StoreId,
    /// When the backup was made, in seconds since 1970.
    pub made: u64,
    /// How many files were copied.
    pub files: usize,
    /// Bytes of these files.
    pub bytes: u64,
}

impl Restoring {
    /// Makes a store from the backup in `from`, beside the directory `to`. Compares all of the
    /// backup with its checksums. The new store has a new id.
    ///
    /// `to` must be empty or not exist. It is neither a symbolic link nor the root of a file
    /// system.
    ///
    /// This blocks for as long as it takes to copy the backup.
    ///
    /// # Errors
    /// [`Error::Files`] if `from` holds no whole backup, or a damaged one. Also if `to` is not as
    /// above, or if the directory that contains `to` cannot be written. [`Error::InUse`] while
    /// another restore to `to` runs, or while a backup is written to `from`.
    pub fn begin(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Restoring> {
        // A slash at the end would lead through a symbolic link, so it is removed.
        let (from, to) = (from.as_ref(), to.as_ref().components().as_path());
        let _lock = directory::lock_shared(from)?;
        let list = List::read(from)?.ok_or_else(|| no_backup(from))?;
        check_place(to)?;
        let making = beside(to)?;
        let lock = take(&making)?;
        let id = directory::fresh_id().map_err(|e| fault::io(to, "choosing an id", &e))?;
        let described = list.describe();
        let restored = Restored {
            from: list.store,
            id,
            made: list.made,
            files: described.files,
            bytes: described.bytes,
        };
        let restoring =
            Restoring { making, to: to.to_owned(), restored, finished: false, _lock: lock };
        let making = &restoring.making;
        directory::write_id(making, id).map_err(|e| fault::io(making, "writing the id", &e))?;
        lay_out(from, &list, making, How::Copied)?;
        Ok(restoring)
    }

    /// The directory of the new store until [`finish`](Restoring::finish). The store may be
    /// opened and changed there, and must be closed again.
    pub fn path(&self) -> &Path {
        &self.making
    }

    /// The ids of both stores, and the size of the copy.
    pub fn restored(&self) -> &Restored {
        &self.restored
    }

    /// Moves the store to its place.
    ///
    /// # Errors
    /// [`Error::Files`] if the place is no longer empty, or if the file system refuses the
    /// move.
    pub fn finish(mut self) -> Result<Restored> {
        check_place(&self.to)?;
        let moving = |e: io::Error| fault::io(&self.to, "moving the restored store here", &e);
        if cfg!(not(unix)) {
            let _ = fs::remove_dir(&self.to);
        }
        fs::rename(&self.making, &self.to).map_err(moving)?;
        if let Some(parent) = self.to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_directory(parent).map_err(moving)?;
        }
        remove(&self.to.join(MARK)).map_err(moving)?;
        self.finished = true;
        Ok(self.restored.clone())
    }
}

impl Drop for Restoring {
    fn drop(&mut self) {
        if !self.finished {
            // If this fails, the next restore removes the files.
            let _ = clear(&self.making)
                .and_then(|()| remove(&self.making.join(MARK)))
                .and_then(|()| fs::remove_dir(&self.making));
        }
    }
}

/// Checks that a directory can be moved to this place.
fn check_place(to: &Path) -> Result<()> {
    let reading = |e: io::Error| fault::io(to, "reading the directory", &e);
    let about = match fs::symlink_metadata(to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about.map_err(reading)?,
    };
    let fixed = if about.is_symlink() {
        Some("a symbolic link")
    } else {
        is_root(to, &about).map_err(reading)?.then_some("the root of a file system")
    };
    if let Some(fixed) = fixed {
        let problem = format!("this is {fixed}, and the restored store cannot be moved to it");
        return Err(fault::files(to, problem, "name a directory inside it"));
    }
    if fs::read_dir(to).map_err(reading)?.next().is_some() {
        return Err(fault::files(
            to,
            "the directory is not empty, and a restore does not replace files",
            "choose an empty directory, or one that does not exist yet",
        ));
    }
    Ok(())
}

/// Whether something is mounted at this directory.
#[cfg(unix)]
fn is_root(dir: &Path, about: &Metadata) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = fs::metadata(parent.unwrap_or(Path::new(".")))?;
    Ok(about.is_dir() && (about.dev() != parent.dev() || is_mounted(dir)))
}

/// Whether the system knows the directory as the root of a mount. That also finds a directory of
/// the same file system that is mounted here. An old system does not say it, and then the move at
/// the end fails.
#[cfg(target_os = "linux")]
fn is_mounted(dir: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let about = statx(CWD, dir, AtFlags::empty(), StatxFlags::empty());
    about.is_ok_and(|about| about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn is_mounted(_dir: &Path) -> bool {
    false
}

#[cfg(not(unix))]
fn is_root(_dir: &Path, _about: &Metadata) -> io::Result<bool> {
    Ok(false)
}

/// The directory in which the store is made.
fn beside(to: &Path) -> Result<PathBuf> {
    let Some(name) = to.file_name() else {
        let remedy = "name a directory that does not exist yet";
        return Err(fault::files(to, "the path does not end in a name", remedy));
    };
    let mut making = OsString::from(name);
    making.push(".restoring");
    Ok(to.with_file_name(making))
}

/// Creates and locks the directory in which the store is made. Removes the files that an
/// interrupted restore has left there.
fn take(making: &Path) -> Result<File> {
    let io = |e: io::Error| fault::io(making, "making the directory", &e);
    let mark = making.join(MARK);
    match fs::symlink_metadata(making) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            directory::create(making).map_err(io)?;
        }
        Ok(_) => {
            if !mark.exists() && fs::read_dir(making).map_err(io)?.next().is_some() {
                let problem =
                    "the restore needs this path for its unfinished store, and the path is taken";
                return Err(fault::files(making, problem, "move it away, then restore again"));
            }
        }
        Err(error) => return Err(io(error)),
    }
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&mark);
    let lock = lock.map_err(io)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Error::InUse { dir: making.to_owned() }),
        Err(TryLockError::Error(error)) => return Err(io(error)),
    }
    clear(making).map_err(io)?;
    Ok(lock)
}

/// Removes all but the mark, without which no restore removes anything.
fn clear(making: &Path) -> io::Result<()> {
    for entry in fs::read_dir(making)? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(&path)?;
        } else if !path.ends_with(MARK) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_goes_last() {
        let dir = tempfile::tempdir().unwrap();
        let making = dir.path().join("new.restoring");
        let lock = take(&making).unwrap();
        fs::create_dir_all(making.join("engine/keyspaces")).unwrap();
        for file in ["engine/0.jnl", "ID", "Z"] {
            fs::write(making.join(file), "").unwrap();
        }
        clear(&making).unwrap();
        let left = fs::read_dir(&making).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), [MARK]);
        // A kill here leaves what the next restore takes over.
        drop(lock);
        take(&making).unwrap();
        remove(&making.join(MARK)).unwrap();
        take(&making).unwrap();
    }
}
