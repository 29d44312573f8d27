//! Implements the rivals of Figure 7: programs that cluster all documents that arrived since
//! they last began.
//!
//! ```text
//! row     as MapReduce does: three passes over the whole repository, bodies included
//! delta   keeps the tables of all keys in memory and looks at new documents alone
//! ```
//!
//! A third rival, a column engine, is a separate program outside of this crate.

mod delta;
mod row;

pub use delta::DeltaBatch;
pub use row::{Files, RowBatch};

use std::io;

use crate::Document;

/// A batch program. Each cycle takes the documents that arrived during the previous one.
///
/// ```
/// use clustering::batch::{Batch, DeltaBatch, Files, RowBatch};
/// use clustering::{Corpus, rule};
/// let (dir, corpus) = (tempfile::tempdir()?, Corpus::new(100, 1));
/// let arrivals: Vec<_> = (100..120).map(|id| corpus.document(id)).collect();
/// let mut batches: Vec<Box<dyn Batch>> = vec![
///     Box::new(RowBatch::create(&dir.path().join("row"), corpus, 100, 2, Files::New)?),
///     Box::new(DeltaBatch::create(&dir.path().join("delta"), corpus, 100)?),
/// ];
/// let documents: Vec<_> = (0..120).map(|id| corpus.document(id)).collect();
/// let expected = rule::passes(&documents, 3);
/// for batch in &mut batches {
///     batch.cycle(&arrivals)?;
///     assert_eq!(batch.clusters()?, expected);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Batch {
    /// The program's name in tables and plots.
    fn name(&self) -> &'static str;

    /// Clusters the documents with which the repository began, followed by `arrivals` in the
    /// order of arrival. When this returns, all of them can be found.
    ///
    /// # Errors
    /// The errors of file operations, and of another program if the batch runs one.
    fn cycle(&mut self, arrivals: &[Document]) -> io::Result<()>;

    /// Returns the representative of each document of the last cycle, in the order of arrival.
    /// This is not part of the measurement.
    ///
    /// # Errors
    /// The errors of [`cycle`](Batch::cycle).
    fn clusters(&mut self) -> io::Result<Vec<u64>>;
}
