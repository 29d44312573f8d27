//! Builds the errors of files and of the engine, each with a remedy.

use std::io;
use std::path::Path;
use std::time::Duration;

use bigtable::Error;

/// The remedy for damaged files.
pub(crate) const BACKUP: &str = "restore the directory from a backup; do not remove single files";

/// The reason why a request whose batch could not be written has no outcome yet. The store
/// finds out what the disk holds before it answers the caller.
const UNDECIDED: &str =
    "a write to the disk failed, and the store does not yet know what the disk holds";

/// Like [`UNDECIDED`], for a request that was not tried.
const UNTRIED: &str = "an earlier write to the disk failed, and the store has not recovered yet";
const STOPPED: &str = "the engine has stopped";
const COMMITTER_STOPPED: &str = "the committer has stopped";
const REOPENED: &str =
    "the disk failed, the store reopened its engine, and the request was not applied";

/// The error of a batch that could not be written.
pub(crate) fn undecided() -> Error {
    Error::Unknown { why: UNDECIDED.to_owned() }
}

pub(crate) fn untried() -> Error {
    Error::Unavailable { why: UNTRIED.to_owned() }
}

/// The error if the engine's committer accepts no more requests.
pub(crate) fn too_late() -> Error {
    Error::Unavailable { why: COMMITTER_STOPPED.to_owned() }
}

/// The error if the committer stopped while it worked on the request.
pub(crate) fn abandoned() -> Error {
    Error::Unknown { why: COMMITTER_STOPPED.to_owned() }
}

/// The error while the engine takes no writes.
pub(crate) fn stopped() -> Error {
    Error::Unavailable { why: STOPPED.to_owned() }
}

/// The error if the engine was opened anew, and nothing was applied.
pub(crate) fn reopened() -> Error {
    Error::Unavailable { why: REOPENED.to_owned() }
}

/// The error while the engine fails repeatedly: writes resume after `left`.
pub(crate) fn failing(left: Duration) -> Error {
    let why =
        format!("the disk keeps failing: the store takes writes again in {} s", left.as_secs() + 1);
    Error::Unavailable { why }
}

pub(crate) fn is_undecided(error: &Error) -> bool {
    matches!(error, Error::Unknown { why } if why == UNDECIDED)
}

fn is_unavailable(error: &Error, wanted: &str) -> bool {
    matches!(error, Error::Unavailable { why } if why == wanted)
}

pub(crate) fn is_untried(error: &Error) -> bool {
    is_unavailable(error, UNTRIED)
}

pub(crate) fn is_stopped(error: &Error) -> bool {
    is_unavailable(error, STOPPED)
}

pub(crate) fn is_too_late(error: &Error) -> bool {
    is_unavailable(error, COMMITTER_STOPPED)
}

pub(crate) fn is_reopened(error: &Error) -> bool {
    is_unavailable(error, REOPENED)
}

/// A failure below the store's interface, without the path of the store.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The engine reported an error.
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
    /// Converts the fault to the error for the caller of the store at `path`.
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

/// Converts an I/O error at `path` to an error with a remedy for the user.
pub(crate) fn io(path: &Path, doing: &str, error: &io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "give this user read and write permission, or choose another directory"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space on this file system, then open the store again"
        }
        io::ErrorKind::FileTooLarge => "raise the limit of a file's size (`ulimit -f`)",
        io::ErrorKind::Unsupported => "choose a directory on another file system",
        io::ErrorKind::ReadOnlyFilesystem => "choose a directory on a writable file system",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "choose a path that names a directory, or nothing yet"
        }
        _ => "check the disk and the file system, then open the store again",
    };
    files(path, format!("{doing} failed: {error}"), remedy)
}

/// Converts an error of the engine to an error with a remedy for the user.
pub(crate) fn engine(path: &Path, doing: &str, error: &fjall::Error) -> Error {
    use fjall::Error as E;
    match error {
        E::Io(error) => io(path, doing, error),
        E::Storage(fjall::LsmError::Io(error)) => io(path, doing, error),
        E::Locked => in_use(path),
        E::InvalidVersion(Some(version)) => files(
            path,
            format!(
                "the data is in the engine's format {version:?}, which this release cannot read"
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

/// The error after the program has closed the store.
pub(crate) fn closed(path: &Path) -> Error {
    files(path, "the store was closed", "open it again")
}

/// The error if the directory is open in another process, or already in this one.
pub(crate) fn in_use(path: &Path) -> Error {
    Error::InUse { dir: path.to_owned() }
}
