//! What can go wrong with a store, named by what the caller does next.

use std::path::PathBuf;

use crate::Timestamp;

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a store operation failed.
///
/// ```
/// use bigtable::{Error, Timestamp};
/// let error = Error::TooOld { asked: Timestamp::ZERO, floor: Timestamp::new(9).unwrap() };
/// assert!(!error.is_retryable());
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is at or below the store's garbage collection floor: begin again with a new
    /// timestamp.
    #[error("timestamp {asked} is below the store's floor {floor}: begin again")]
    TooOld {
        /// The timestamp of the request.
        asked: Timestamp,
        /// The store's floor.
        floor: Timestamp,
    },
    /// A bounded in-memory locality group is full and nothing was applied: wait and repeat.
    #[error(
        "locality group {group} holds its {cells_max} cells: wait for it to drain, then repeat"
    )]
    Overloaded {
        /// The full group.
        group: String,
        /// Its bound.
        cells_max: usize,
    },
    /// The store cannot answer now and nothing was applied: repeat.
    #[error("the store is unavailable ({why}): repeat")]
    Unavailable {
        /// What happened.
        why: String,
    },
    /// The disk under the store has too little free space, and nothing was applied. Reads go on.
    /// Free some space: the store then writes again by itself, without being opened again.
    #[error(
        "{}: the disk is full: {free} bytes are free, and a write needs {wanted}; nothing was applied, \
         and reads go on\n  help: free some space on this file system; writes then resume by \
         themselves", dir.display()
    )]
    Full {
        /// The store's directory.
        dir: PathBuf,
        /// Free bytes of its file system.
        free: u64,
        /// Free bytes that it takes to write.
        wanted: u64,
    },
    /// The mutation may or may not have been applied, or may yet be: read before going on.
    #[error("the outcome of the mutation is unknown ({why}): read before going on")]
    Unknown {
        /// What happened.
        why: String,
    },
    /// The request breaks a limit or names something the table does not have; nothing was applied.
    #[error("invalid request: {0}")]
    InvalidRequest(String),
    /// The disk failed, and the store cannot say what it holds: nothing is answered any more. Open
    /// the store anew, in a new process; what was acknowledged is there, and what failed may be.
    #[error(
        "{}: the store has halted: {problem}\n  help: check the disk, then open the store again",
        dir.display()
    )]
    Halted {
        /// The store's directory.
        dir: PathBuf,
        /// What happened.
        problem: String,
    },
    /// The store was restored from a backup, or another one was put in its place, after this process
    /// opened it. Nothing was applied, and nothing that the process has read before holds any more:
    /// end it, and start it again.
    #[error(
        "the store was restored from a backup, or replaced, after this process opened it; nothing \
         was applied\n  help: start this process again"
    )]
    Replaced,
    /// Another process has the store's directory open, or this one has it open already.
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
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
}

impl Error {
    /// [`Error::InvalidRequest`] in short.
    pub fn invalid(what: impl Into<String>) -> Self {
        Error::InvalidRequest(what.into())
    }

    /// Whether the same request may succeed later, and certainly was not applied now.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Overloaded { .. } | Error::Unavailable { .. } => true,
            // The floor never goes back; a full disk stays full until somebody acts, so its error
            // goes to the caller at once; an unknown outcome must be read first; the rest is wrong.
            Error::TooOld { .. }
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
