//! Implements the incremental form: each document is written on arrival, and an observer
//! clusters it.
//!
//! ```text
//! table          row            columns
//! documents      hash of id     doc:body            about 1 KB
//!                               doc:keys            id and keys              -> cluster
//!                               doc:cluster         its representative, and when it was found
//!                               doc:representative  id and keys, if it is one  -> cluster-more
//!                               doc:merged          in a representative's row: the other one
//!                                                   that has the same fourth key
//! by_key_1..4    hash of key    cluster             the representative
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use percolator::{Bytes, Column, Percolator, Registration, Result, Table, WorkerOptions, Workers};

use crate::observers::{Cluster, ClusterMore, Counters};
use crate::{Document, KEYS_AT_FIRST};

/// The table of the documents.
pub const DOCUMENTS: &str = "documents";
/// The column with a document's cluster. Once it is written, the document can be found.
pub const CLUSTER: Column = Column::literal("doc:cluster");

const BODY: Column = Column::literal("doc:body");
pub(crate) const KEY: Column = Column::literal("doc:keys");
pub(crate) const REPRESENTATIVE: Column = Column::literal("doc:representative");
pub(crate) const MERGED: Column = Column::literal("doc:merged");
pub(crate) const INDEX: Column = Column::literal("cluster");

/// The tables with which clustering begins.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) documents: Table,
    pub(crate) indexes: [Table; KEYS_AT_FIRST],
}

/// The observers' lookups and writes in the index tables, including repeated runs.
///
/// See [`Repository::lookups`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lookups {
    /// The number of keys looked up.
    pub lookups: u64,
    /// The number of keys registered.
    pub registered: u64,
}

/// The repository in a database.
///
/// See the [crate's page](crate) for an example.
#[derive(Debug, Clone)]
pub struct Repository {
    db: Percolator,
    pub(crate) tables: Tables,
    counters: Arc<Counters>,
}

impl Repository {
    /// Opens the repository, and creates its tables if they do not exist.
    ///
    /// # Errors
    /// The errors of the database.
    pub async fn open(db: Percolator) -> Result<Self> {
        let indexes =
            [db.table("by_key_1").await?, db.table("by_key_2").await?, db.table("by_key_3").await?];
        let tables = Tables { documents: db.table(DOCUMENTS).await?, indexes };
        Ok(Repository { db, tables, counters: Arc::default() })
    }

    /// The database.
    pub fn database(&self) -> &Percolator {
        &self.db
    }

    /// Clusters all existing documents and all that arrive, in this process, until the workers
    /// are stopped.
    ///
    /// # Errors
    /// The errors of the database.
    pub async fn cluster(&self, options: WorkerOptions) -> Result<Workers> {
        let observer = Cluster { tables: self.tables.clone(), counters: self.counters.clone() };
        let cluster = Registration::strong("cluster", DOCUMENTS, &KEY, observer);
        self.db.observe(vec![cluster], options).await
    }

    /// Adds the fourth key while the repository is running, for existing documents and those
    /// that arrive.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use clustering::{Corpus, Repository};
    /// let corpus = Corpus::new(50, 1);
    /// let repository = Repository::open(percolator::Percolator::in_memory().await?).await?;
    /// let three = repository.cluster(Default::default()).await?;
    /// for id in 0..50 {
    ///     repository.load(&corpus.document(id), corpus.body(id)).await?;
    /// }
    /// let fourth = repository.add_key(Default::default()).await?;
    /// repository.database().wait_idle(None).await?;
    /// let check = repository.verify(4).await?;
    /// assert_eq!((check.waiting, check.wrong), (0, 0));
    /// # three.stop().await;
    /// # fourth.stop().await;
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The errors of the database.
    pub async fn add_key(&self, options: WorkerOptions) -> Result<Workers> {
        let index = self.db.table("by_key_4").await?;
        let observer = ClusterMore { index, counters: self.counters.clone() };
        let more = Registration::strong("cluster-more", DOCUMENTS, &REPRESENTATIVE, observer);
        self.db.observe(vec![more], options).await
    }

    /// Writes a document. An observer clusters it soon after.
    ///
    /// # Errors
    /// The errors of the database.
    pub async fn load(&self, document: &Document, body: Bytes) -> Result<()> {
        self.db.admit().await?;
        let documents = &self.tables.documents;
        let (row, record) = (document.row(), document.encode());
        self.db
            .transact(async |mut tx| {
                tx.set(documents, &row, &BODY, body.clone())?;
                tx.set(documents, &row, &KEY, record.clone())
            })
            .await
    }

    /// The lookups of the observers so far.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let db = percolator::Percolator::in_memory().await?;
    /// let repository = clustering::Repository::open(db).await?;
    /// assert_eq!(repository.lookups(), clustering::Lookups::default());
    /// # Ok::<(), percolator::Error>(()) }).unwrap();
    /// ```
    pub fn lookups(&self) -> Lookups {
        Lookups {
            lookups: self.counters.lookups.load(Ordering::Relaxed),
            registered: self.counters.registered.load(Ordering::Relaxed),
        }
    }
}
