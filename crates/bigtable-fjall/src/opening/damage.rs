//! Describes damage that an opening finds, by file.

use std::io;
use std::path::{Path, PathBuf};

/// A difference between a store's directory and what the store wrote there.
#[derive(Debug, Clone)]
pub(crate) struct Damage {
    pub(crate) path: PathBuf,
    pub(crate) problem: String,
}

impl Damage {
    pub(crate) fn new(path: &Path, problem: impl Into<String>) -> Self {
        Damage { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Damage::new(path, "it is missing"),
            _ => Damage::new(path, format!("it cannot be read: {error}")),
        }
    }
}
