//! The crate's error type. Each variant tells the caller what to do next, and carries the
//! facts.
//!
//! Two events that look like errors are not: a page that is skipped ([`crate::html::Skip`]),
//! and a file that cannot be read during a walk ([`crate::walk::Problem`]). Both are counted
//! and reported, and the work goes on.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why an operation of this crate failed.
///
/// ```
/// use webindex::Error;
/// use webindex::address::Base;
///
/// let error = Base::parse("ftp://example.org/").unwrap_err();
/// assert!(matches!(error, Error::BadBase { .. }));
/// assert!(error.to_string().contains("https://"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The base URL cannot be put before file names: correct it.
    #[error("`{given}` cannot be a base URL: {problem}; give one like `https://example.org/docs/`")]
    BadBase {
        /// The given text.
        given: String,
        /// The problem with the text.
        problem: &'static str,
    },
    /// The text is not an http or https URL: correct it.
    #[error(
        "`{given}` is not a URL of a page: {problem}; give one like `https://example.org/a.html`"
    )]
    BadUrl {
        /// The given text.
        given: String,
        /// The problem with the text.
        problem: String,
    },
    /// The operating system refused an operation: the message names the operation and the
    /// file.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb with its object: "read the directory".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The directory holds something else: choose another one.
    #[error("{} is not empty and holds no {expected}; choose another directory", path.display())]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
        /// The content that was expected.
        expected: &'static str,
    },
    /// The search index has another format: the message says how to rebuild it.
    #[error(
        "the search index in {} has format {found}, and this program reads format {expected}; \
         {remedy}",
        path.display()
    )]
    IndexFormat {
        /// The index directory.
        path: PathBuf,
        /// The format found there.
        found: String,
        /// The format that this program writes.
        expected: &'static str,
        /// The remedy.
        remedy: &'static str,
    },
    /// A later version has changed the layout of the index's tables: use that version.
    #[error(
        "the tables of the web index have layout {found}, and this program knows the layouts up to \
         {expected}; use the version of Percolator that wrote them, or a later one"
    )]
    StoreLayout {
        /// The layout found in the store.
        found: String,
        /// The layout that this program writes.
        expected: String,
    },
    /// The directory holds no search index: load pages, or give another directory.
    #[error("{} holds no search index; `percolator webindex load` makes one", path.display())]
    NoIndex {
        /// The directory.
        path: PathBuf,
    },
    /// The query cannot be answered: correct it as the message says.
    #[error("{problem}")]
    Query {
        /// The query's problem, and the remedy.
        problem: String,
    },
    /// Another process writes to the search index: end it, then try again.
    #[error(
        "another process writes to the search index in {}; end it, then try again",
        path.display()
    )]
    IndexInUse {
        /// The index directory.
        path: PathBuf,
    },
    /// The search index's disk has too little free space, and nothing was written: free some
    /// space. The pages are exported afterwards.
    #[error(
        "the disk is full: {free} bytes are free for the search index in {}, and writing takes {wanted}; \
         nothing was written; free some space there",
        path.display()
    )]
    IndexFull {
        /// The index directory.
        path: PathBuf,
        /// The free bytes of the file system.
        free: u64,
        /// The free bytes that writing needs.
        wanted: u64,
    },
    /// This program has no search index: give its directory.
    #[error(
        "the command needs the search index, which a worker keeps in a directory of its own; give \
         that directory (`app.search` in percolator.toml, or PERCOLATOR_APP__SEARCH)"
    )]
    NoSearchIndex,
    /// The batch is older than pages that were confirmed since: make the batch anew from the
    /// present state.
    #[error(
        "batch {seq} is too old: the search index already has pages of batches up to {floor}; make \
         the batch again"
    )]
    Superseded {
        /// The batch's number.
        seq: u64,
        /// The floor: batches up to this number are refused.
        floor: u64,
    },
    /// The search index cannot be read or written: free space, or delete its directory as the
    /// message says.
    #[error(
        "cannot {action} the search index in {}: {source}; if the disk is not full, delete that \
         directory, and the next `percolator webindex load` rebuilds it",
        path.display()
    )]
    Index {
        /// The operation, as a verb.
        action: &'static str,
        /// The index directory.
        path: PathBuf,
        /// The search engine's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database failed: its own message says what to do.
    #[error(transparent)]
    Database(Box<percolator::Error>),
    /// The arguments contradict each other or are out of range: correct the call.
    #[error("{what} is {given}: give {allowed}")]
    OutOfRange {
        /// The argument.
        what: &'static str,
        /// Its value.
        given: u64,
        /// The allowed values, in words.
        allowed: String,
    },
}

/// Boxes the error, because it is far larger than the other variants.
impl From<percolator::Error> for Error {
    fn from(error: percolator::Error) -> Self {
        Error::Database(Box::new(error))
    }
}

impl Error {
    /// Returns the error for a failed file operation; `action` is a verb with its object.
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Error::Io { action, path: path.to_path_buf(), source }
    }
}
