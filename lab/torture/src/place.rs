//! Names the files in the directory of a run.

use std::path::{Path, PathBuf};

/// The directory of a run, and its files.
#[derive(Debug, Clone)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(dir: impl Into<PathBuf>) -> Self {
        Place(dir.into())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    /// The directory of the store that is tested.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// The web site that the index loads.
    pub(crate) fn site(&self) -> PathBuf {
        self.0.join("site")
    }

    /// The ledger of transactions.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.0.join("ledger")
    }

    /// The children's standard error.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }
}
