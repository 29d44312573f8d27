//! Implements a store that counts its requests, and notes when each document's cluster was
//! written.
//!
//! It lies between Percolator and the store beneath, so that the measured program does not
//! change. A document is clustered when the commit of its `doc:cluster` has returned: from then
//! on every reader finds it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{
    AtCommit, CommitRows, ConditionalMutation, Glance, Glanced, Mutation, Page, PageLimit,
    Qualifiers, Result, Row, RowKey, RowMutation, RowRange, RowsOutcome, Selection, Store, Table,
    Timestamp,
};
use clustering::{CLUSTER, DOCUMENTS, Document};

/// Declares what is counted, and the counters.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counted requests. A request for several rows counts once for each.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(crate) struct Operations {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Operations {
            pub(crate) fn since(self, before: Operations) -> Operations {
                Operations { $($name: self.$name - before.$name,)* }
            }
        }

        /// The observations of a [`Spy`].
        #[derive(Debug, Default)]
        pub(crate) struct Seen {
            $($name: AtomicU64,)*
            watched: RwLock<Option<Arc<Watch>>>,
        }

        impl Seen {
            pub(crate) fn operations(&self) -> Operations {
                Operations { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Number of rows read.
    reads,
    /// Number of pages of scans.
    scans,
    /// Time of the scans, in nanoseconds.
    scan_nanos,
    /// Number of rows changed, conditionally or not, in one step with others or not.
    writes,
    /// Number of conditions of these changes, which the store checks before it changes a row.
    conditions,
    /// Number of cells set and deleted by changes whose conditions held.
    cells,
}

impl Operations {
    pub(crate) fn all(self) -> u64 {
        self.reads + self.scans + self.writes
    }
}

impl Seen {
    fn wrote(&self, conditions: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.conditions.fetch_add(conditions as u64, Ordering::Relaxed);
    }

    fn changed(&self, cells: usize) {
        self.cells.fetch_add(cells as u64, Ordering::Relaxed);
    }

    /// From now on, notes when documents with these ids are clustered.
    pub(crate) fn watch(&self, ids: std::ops::Range<u64>) -> Arc<Watch> {
        let length = usize::try_from(ids.end - ids.start).unwrap_or(0);
        let watch = Arc::new(Watch {
            since: Instant::now(),
            first: ids.start,
            clustered: (0..length).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
        });
        *self.watched.write().unwrap_or_else(PoisonError::into_inner) = Some(watch.clone());
        watch
    }

    fn clustered<'a>(&self, rows: impl Iterator<Item = &'a RowKey>) {
        let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = &*watched {
            rows.filter_map(Document::id_of).for_each(|id| watch.note(id));
        }
    }
}

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) since: Instant,
    first: u64,
    /// Nanoseconds after `since`, plus one; zero while the document is not clustered.
    clustered: Vec<AtomicU64>,
    count: AtomicU64,
}

impl Watch {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The time at which a document was clustered, if it is.
    pub(crate) fn at(&self, id: u64) -> Option<Duration> {
        let nanos = self.entry(id)?.load(Ordering::Relaxed);
        nanos.checked_sub(1).map(Duration::from_nanos)
    }

    fn entry(&self, id: u64) -> Option<&AtomicU64> {
        self.clustered.get(usize::try_from(id.checked_sub(self.first)?).ok()?)
    }

    fn note(&self, id: u64) {
        let Some(entry) = self.entry(id) else { return };
        let now = self.since.elapsed().as_nanos() as u64 + 1;
        if entry.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Spy {
    store: Arc<dyn Store>,
    seen: Arc<Seen>,
}

impl Spy {
    pub(crate) fn on(store: Arc<dyn Store>) -> (Arc<Self>, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        (Arc::new(Spy { store, seen: seen.clone() }), seen)
    }
}

impl StoreLayer for Spy {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        let documents = table.name() == DOCUMENTS;
        Arc::new(SpyTable { table, documents, seen: self.seen.clone() })
    }

    async fn commit_rows(&self, mut request: CommitRows) -> Result<RowsOutcome> {
        request.rows.iter().for_each(|row| self.seen.wrote(row.predicate.len()));
        request.at = Arc::new(SpyAt { at: request.at, seen: self.seen.clone() });
        // A commit checks every column that it writes for newer writes, so its probes name the
        // columns.
        let clusters = |row: &&bigtable::CommitRow| {
            &*row.table == DOCUMENTS
                && row.predicate.iter().any(|probe| {
                    matches!(&probe.qualifiers, Qualifiers::Is(name) if name == CLUSTER.as_bytes())
                })
        };
        let rows: Vec<RowKey> =
            request.rows.iter().filter(clusters).map(|row| row.row.clone()).collect();
        let outcome = self.store.commit_rows(request).await;
        if let Ok(RowsOutcome::Committed(_)) = outcome {
            self.seen.clustered(rows.iter());
        }
        outcome
    }

    /// Refuses, so that every commit goes through `commit_rows` and is counted there.
    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        Err(request)
    }
}

/// Counts the cells of a one-step commit.
#[derive(Debug)]
struct SpyAt {
    at: Arc<dyn AtCommit>,
    seen: Arc<Seen>,
}

impl AtCommit for SpyAt {
    fn timestamp(&self) -> Option<Timestamp> {
        self.at.timestamp()
    }

    fn mutations(&self, row: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        let mutations = self.at.mutations(row, commit_ts);
        self.seen.changed(mutations.len());
        mutations
    }
}

#[derive(Debug)]
struct SpyTable {
    table: Arc<dyn Table>,
    documents: bool,
    seen: Arc<Seen>,
}

/// A conditional mutation that has been sent.
struct Sent {
    /// Number of cells that it changes if its predicate holds, and if not.
    cells: [usize; 2],
    /// The row of the document whose cluster it writes, as the second of two phases, and whether
    /// it does so when the predicate holds.
    second: Option<(RowKey, bool)>,
}

impl SpyTable {
    /// Counts a conditional mutation before it is sent.
    fn sent(&self, request: &ConditionalMutation) -> Sent {
        self.seen.wrote(request.predicate.len());
        let clusters = |mutation: &Mutation| {
            matches!(mutation, Mutation::Set { family, qualifier, .. }
                if family.as_str() == "write" && qualifier == CLUSTER.as_bytes())
        };
        let when = request.then.iter().any(clusters);
        let any = when || request.otherwise.iter().any(clusters);
        let second = (self.documents && any).then(|| (request.row.clone(), when));
        Sent { cells: [request.then.len(), request.otherwise.len()], second }
    }

    fn answered(&self, Sent { cells: [then, otherwise], second }: &Sent, result: &Result<bool>) {
        let Ok(held) = result else { return };
        self.seen.changed(if *held { *then } else { *otherwise });
        if let Some((row, when)) = second
            && when == held
        {
            self.seen.clustered(std::iter::once(row));
        }
    }
}

impl TableLayer for SpyTable {
    fn inner(&self) -> &dyn Table {
        &*self.table
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        self.seen.reads.fetch_add(1, Ordering::Relaxed);
        self.table.read_row(row, select).await
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        self.seen.reads.fetch_add(rows.len() as u64, Ordering::Relaxed);
        self.table.read_rows(rows, select).await
    }

    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        let glanced = self.table.glance(at)?;
        // After `Nothing`, the caller reads the row, which is then counted.
        let told = !matches!(glanced, Glanced::Nothing);
        self.seen.reads.fetch_add(u64::from(told), Ordering::Relaxed);
        Ok(glanced)
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        let since = Instant::now();
        let page = self.table.scan(range, select, limit).await;
        let nanos = since.elapsed().as_nanos() as u64;
        self.seen.scans.fetch_add(1, Ordering::Relaxed);
        self.seen.scan_nanos.fetch_add(nanos, Ordering::Relaxed);
        page
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        self.seen.wrote(0);
        let cells = request.mutations.len();
        self.table.mutate_row(request).await?;
        self.seen.changed(cells);
        Ok(())
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        let sent = self.sent(&request);
        let result = self.table.check_and_mutate_row(request).await;
        self.answered(&sent, &result);
        result
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let sent: Vec<Sent> = requests.iter().map(|request| self.sent(request)).collect();
        let results = self.table.check_and_mutate_rows(requests).await;
        sent.iter().zip(&results).for_each(|(sent, result)| self.answered(sent, result));
        results
    }
}

#[cfg(test)]
mod tests {
    use bigtable::MemoryStore;
    use clustering::{Corpus, Repository};
    use percolator::transaction::CommitPath;
    use percolator::{Options, Percolator};

    use super::*;

    #[tokio::test]
    async fn clustered_documents_are_noted_on_either_way_to_commit() {
        for commit_path in [CommitPath::OneStep, CommitPath::TwoPhases] {
            let (spy, seen) = Spy::on(Arc::new(MemoryStore::new()));
            let options = Options { commit_path, ..Options::default() };
            let db = Percolator::over(spy, options).await.unwrap();
            let repository = Repository::open(db).await.unwrap();
            let (corpus, watch) = (Corpus::new(20, 1), seen.watch(5..10));
            let before = seen.operations();
            for id in 0..20 {
                repository.load(&corpus.document(id), corpus.body(id)).await.unwrap();
            }
            let loaded = seen.operations().since(before);
            assert!(loaded.writes >= 20 && watch.count() == 0, "{loaded:?}");
            let workers = repository.cluster(Default::default()).await.unwrap();
            repository.database().wait_idle(None).await.unwrap();
            assert_eq!(watch.count(), 5, "{commit_path:?}");
            assert!(watch.at(5).is_some() && watch.at(4).is_none() && watch.at(10).is_none());
            assert!(seen.operations().since(before).all() >= 20 * 6);
            workers.stop().await;
        }
    }
}
