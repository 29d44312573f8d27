//! The rivals of Figure 7: programs that cluster whatever has arrived since they last began.
//!
//! ```text
//! row     as MapReduce does: three passes over the whole repository, bodies included
//! delta   keeps the tables of all keys in memory and looks at new documents alone
//! ```
//!
//! A third, a column engine, is a program of its own and not in this crate.

mod delta;
mod row;

pub use delta::DeltaBatch;
pub use row::{Files, RowBatch};

use std::io;

use crate::Document;

/// A batch program: cycle after cycle, each takes what arrived during the one before.
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
    /// What it is called in tables and plots.
    fn name(&self) -> &'static str;

    /// Clusters the repository it began with and these documents, which follow it in the order of
    /// arrival; they can be found when it returns.
    ///
    /// # Errors
    /// Those of files, and of another program if it is one.
    fn cycle(&mut self, arrivals: &[Document]) -> io::Result<()>;

    /// The representative of each document of the last cycle, in the order of arrival; not part of
    /// what is measured.
    ///
    /// # Errors
    /// As [`cycle`](Batch::cycle).
    fn clusters(&mut self) -> io::Result<Vec<u64>>;
}
