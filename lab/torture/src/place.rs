//! The directory of a run, and where things are in it.

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
