//! Implements the synthetic clustering repository of the paper's Figure 7 (§3.2) in two forms.
//! The incremental form clusters documents by three keys as they arrive. The batch programs
//! cluster them in cycles, with the same result.
//!
//! ```text
//! document   a crawled document: an id, keys drawn at random, a body of about 1 KB
//! rule       which documents are one cluster, by sorting in memory; how many clusters to expect
//! repository the incremental form: tables, observers, a key that is added later
//! batch      the rivals: row-wise passes that carry the bodies, and a batch of the new documents
//!            alone
//! ```
//!
//! All forms give the same answer. Tests compare them with [`rule`], which shares no code with
//! them. This is a separate crate, so that it compiles against `percolator`'s public API
//! alone.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use clustering::{Corpus, Repository};
//!
//! let corpus = Corpus::new(100, 7);
//! let repository = Repository::open(percolator::Percolator::in_memory().await?).await?;
//! let workers = repository.cluster(Default::default()).await?;
//! for id in 0..100 {
//!     repository.load(&corpus.document(id), corpus.body(id)).await?;
//! }
//! repository.database().wait_idle(None).await?;
//! let check = repository.verify(3).await?;
//! assert_eq!((check.documents, check.waiting, check.wrong), (100, 0, 0));
//! workers.stop().await;
//! # Ok::<(), percolator::Error>(()) }).unwrap();
//! ```

pub mod batch;
mod document;
mod observers;
mod repository;
pub mod rule;
mod verify;

pub use document::{BODY_BYTES, Corpus, Document, KEYS, KEYS_AT_FIRST, key_row};
pub use repository::{CLUSTER, DOCUMENTS, Lookups, Repository};
pub use verify::Check;
