//! Errors of files and of the engine, told with what to do about them.

use std::io;
use std::path::Path;

use bigtable::Error;

/// What to do about damaged files.
pub(crate) const BACKUP: &str = "restore the directory from a backup; do not remove single files";

/// What went wrong below the store's interface, before it is known whose files these are.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The engine reported it.
    Engine(fjall::Error),
    /// The engine returned something that this crate never wrote.
    Damaged(&'static str),
}

impl From<fjall::Error> for Fault {
    fn from(error: fjall::Error) -> Self {
        Fault::Engine(error)
    }
}

impl Fault {
    /// The error for the caller of the store at `path`.
    pub(crate) fn at(&self, path: &Path, doing: &str) -> Error {
        match self {
            Fault::Engine(error) => engine(path, doing, error),
            Fault::Damaged(what) => {
                files(path, format!("{doing} failed, the files are damaged: {what}"), BACKUP)
            }
        }
    }
}

/// An [`Error::Files`].
pub(crate) fn files(path: &Path, problem: impl Into<String>, remedy: &str) -> Error {
    Error::Files { path: path.to_owned(), problem: problem.into(), remedy: remedy.to_owned() }
}

/// What an I/O error at `path` means to the one who opened the store.
pub(crate) fn io(path: &Path, doing: &str, error: &io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "give this user read and write permission, or choose another directory"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space on this file system, then open the store again"
        }
        io::ErrorKind::ReadOnlyFilesystem => "choose a directory on a writable file system",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "choose a path that names a directory, or nothing yet"
        }
        _ => "check the disk and the file system, then open the store again",
    };
    files(path, format!("{doing} failed: {error}"), remedy)
}

/// What an error of the engine means.
pub(crate) fn engine(path: &Path, doing: &str, error: &fjall::Error) -> Error {
    use fjall::Error as E;
    match error {
        E::Io(error) => io(path, doing, error),
        E::Storage(fjall::LsmError::Io(error)) => io(path, doing, error),
        E::Locked => in_use(path),
        E::InvalidVersion(Some(version)) => files(
            path,
            format!(
                "the data is in the engine's format {version:?}, which this release does not know"
            ),
            "open it with the release of this program that wrote it, or a newer one",
        ),
        E::Poisoned => files(
            path,
            "an earlier write to the disk failed",
            "check the disk and its free space, then open the store again",
        ),
        error => files(path, format!("{doing} failed, the files are damaged: {error:?}"), BACKUP),
    }
}

/// The directory is open in another process, or twice in this one.
pub(crate) fn in_use(path: &Path) -> Error {
    files(
        path,
        "another process has this directory open",
        "stop that process, or choose another directory",
    )
}
