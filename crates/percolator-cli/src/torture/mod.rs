//! `torture`: a mixed workload in a child process that is killed again and again, and the judgement.
//!
//! ```text
//!   parent (cmd/torture.rs)    starts the child, kills it, starts it again; judges at the end
//!   child  (work.rs)           opens the store, transfers, writes, deletes, notifies, loads web pages
//!   world                      tables, columns, observers; opening, for both
//!   ledger                     what was begun, and what became of it, in a file that survives kill -9
//!   judge                      what must hold, whatever the kills have done
//! ```
//!
//! Invariants: a line of the ledger is one write, made before a transaction begins and after its commit has
//! returned, so that the file never claims more than the child was told, nor less than it has tried.

pub(crate) mod judge;
pub(crate) mod ledger;
pub(crate) mod work;
pub(crate) mod world;

use std::path::{Path, PathBuf};

/// Where things are in a run's directory.
#[derive(Debug, Clone)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(dir: impl Into<PathBuf>) -> Self {
        Place(dir.into())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    /// The store under torture.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// The web site that is loaded.
    pub(crate) fn site(&self) -> PathBuf {
        self.0.join("site")
    }

    /// What was begun and acknowledged.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.0.join("ledger")
    }

    /// What the children said on stderr.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }
}
