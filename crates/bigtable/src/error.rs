//! Defines the errors of a store, one for each reaction of the caller.

use std::path::PathBuf;

use crate::Timestamp;

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a store operation failed.
///
/// ```
/// use bigtable::{Error, Timestamp};
/// let error = Error::TooOld { asked: Timestamp::ZERO, floor: Timestamp::new(9).unwrap() };
/// assert!(!error.is_retryable());
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request's timestamp is below the store's garbage collection floor. Begin again with
    /// a new timestamp.
    #[error("timestamp {asked} is below the store's floor {floor}: begin a new transaction")]
    TooOld {
        /// The timestamp of the request.
        asked: Timestamp,
        /// The store's floor.
        floor: Timestamp,
    },
    /// A bounded in-memory locality group is full, and nothing was applied. Wait, then repeat.
    #[error(
        "locality group {group} is full with {cells_max} cells: wait until it drains, then repeat \
         the request"
    )]
    Overloaded {
        /// The full group.
        group: String,
        /// The group's bound.
        cells_max: usize,
    },
    /// The store cannot answer now, and nothing was applied. Repeat the request.
    #[error("the store is unavailable ({why}): repeat the request")]
    Unavailable {
        /// The cause, in words.
        why: String,
    },
    /// The server refuses this client, or the client the server: for a certificate, or for a
    /// missing permission. Nothing was applied. A person must change one of them, so do not
    /// repeat the request at once. Servers and clients read renewed certificates by themselves.
    #[error("access refused: {0}")]
    Refused(String),
    /// The disk under the store has too little free space, and nothing was applied. Reads
    /// continue. Free some space; the store then accepts writes again without being reopened.
    #[error(
        "{}: the disk is full: {free} bytes are free, and a write needs {wanted}; nothing was applied, \
         and reads go on\n  help: free some space on this file system; writes then resume by \
         themselves", dir.display()
    )]
    Full {
        /// The store's directory.
        dir: PathBuf,
        /// Free bytes of the store's file system.
        free: u64,
        /// Free bytes that a write needs.
        wanted: u64,
    },
    /// The mutation may have been applied, or may still be applied later. Read before you
    /// continue.
    #[error(
        "the outcome of the mutation is unknown ({why}): read the row before you write it again"
    )]
    Unknown {
        /// The cause, in words.
        why: String,
    },
    /// The request breaks a limit, or names something that the table does not have. Nothing
    /// was applied.
    #[error("invalid request: {0}")]
    InvalidRequest(String),
    /// The disk failed, and the store cannot determine the disk's content. It answers nothing
    /// any more. Open the store again, in a new process. Acknowledged changes are in it;
    /// failed changes may be.
    #[error(
        "{}: the store has halted: {problem}\n  help: check the disk, then open the store again",
        dir.display()
    )]
    Halted {
        /// The store's directory.
        dir: PathBuf,
        /// The failure, in words.
        problem: String,
    },
    /// The store was restored from a backup, or replaced by another one, after this process
    /// opened it. Nothing was applied, and everything that the process has read before is out of
    /// date. End the process, and start it again.
    #[error(
        "the store was restored from a backup, or replaced, after this process opened it; nothing \
         was applied\n  help: start this process again"
    )]
    Replaced,
    /// Another process, or this one, already has the store's directory open.
    #[error(
        "{}: another process has this directory open\n  help: stop that process, or choose \
         another directory",
        dir.display()
    )]
    InUse {
        /// The store's directory.
        dir: PathBuf,
    },
    /// The store's files cannot be used as they are.
    #[error("{}: {problem}\n  help: {remedy}", path.display())]
    Files {
        /// The file or directory.
        path: PathBuf,
        /// The problem, in words.
        problem: String,
        /// The remedy.
        remedy: String,
    },
}

impl Error {
    /// Short for [`Error::InvalidRequest`].
    pub fn invalid(what: impl Into<String>) -> Self {
        Error::InvalidRequest(what.into())
    }

    /// Whether the request was certainly not applied, and may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Overloaded { .. } | Error::Unavailable { .. } => true,
            // The floor never goes back. A refusal and a full disk stay until an operator acts, so
            // the caller gets the error at once. An unknown outcome must be read first. The other
            // errors are permanent.
            Error::TooOld { .. }
            | Error::Refused(_)
            | Error::Full { .. }
            | Error::Unknown { .. }
            | Error::InvalidRequest(_)
            | Error::Halted { .. }
            | Error::Replaced
            | Error::InUse { .. }
            | Error::Files { .. } => false,
        }
    }
}
