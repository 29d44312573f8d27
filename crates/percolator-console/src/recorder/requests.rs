//! Counts the requests that a client sends to its store: by method and result, with durations.
//!
//! [`counted`] wraps the store. Requests that need no answer from the store, such as glances into a
//! cache, do not count. A request counts when it ends, so one that its caller drops does not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use percolator::RowKey;
use percolator::store::layer::{StoreLayer, TableLayer};
use percolator::store::{
    ConditionalMutation, Error, Page, PageLimit, Result, Row, RowMutation, RowRange, Selection,
    Store, Table, TableSchema,
};

use super::histogram::Histogram;

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    OpenTable,
    TableNames,
    Tablets,
    ReadRow,
    ReadRows,
    Scan,
    MutateRow,
    CheckAndMutateRow,
    CheckAndMutateRows,
}

/// The methods with their names, in the order of [`Method`].
const METHODS: [&str; 9] = [
    "open_table",
    "table_names",
    "tablets",
    "read_row",
    "read_rows",
    "scan",
    "mutate_row",
    "check_and_mutate_row",
    "check_and_mutate_rows",
];

/// The results with their names, in the order of [`outcome`].
const OUTCOMES: [&str; 8] =
    ["ok", "unavailable", "unknown", "overloaded", "full", "too_old", "invalid", "failed"];

fn outcome(error: Option<&Error>) -> usize {
    match error {
        None => 0,
        Some(Error::Unavailable { .. }) => 1,
        Some(Error::Unknown { .. }) => 2,
        Some(Error::Overloaded { .. }) => 3,
        Some(Error::Full { .. }) => 4,
        Some(Error::TooOld { .. }) => 5,
        Some(Error::InvalidRequest(_)) => 6,
        Some(_) => 7,
    }
}

/// The counts of all methods.
#[derive(Debug, Default)]
pub(crate) struct Requests([ByMethod; METHODS.len()]);

#[derive(Debug, Default)]
struct ByMethod {
    outcomes: [AtomicU64; OUTCOMES.len()],
    duration: Histogram,
}

impl Requests {
    /// Returns the counts above zero, each with its method and its outcome.
    pub(crate) fn outcomes(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut all = Vec::new();
        for (method, counts) in METHODS.iter().zip(&self.0) {
            for (outcome, n) in OUTCOMES.iter().zip(&counts.outcomes) {
                let n = n.load(Ordering::Relaxed);
                if n > 0 {
                    all.push((*method, *outcome, n));
                }
            }
        }
        all
    }

    /// Returns the durations of the methods that were called.
    pub(crate) fn durations(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        let called = |of: &ByMethod| of.outcomes.iter().any(|n| n.load(Ordering::Relaxed) > 0);
        let all = METHODS.iter().zip(&self.0);
        all.filter(move |(_, of)| called(of)).map(|(method, of)| (*method, &of.duration))
    }

    fn ended(&self, method: Method, began: Instant, error: Option<&Error>) {
        let of = &self.0[method as usize];
        of.duration.record(began.elapsed());
        of.outcomes[outcome(error)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Wraps a store, so that its requests count.
pub(super) fn counted(store: Arc<dyn Store>, requests: Arc<Requests>) -> Arc<dyn Store> {
    Arc::new(Counted { what: store, requests })
}

/// A store or a table whose requests count.
struct Counted<T: ?Sized> {
    requests: Arc<Requests>,
    what: Arc<T>,
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counted").field(&self.what).finish()
    }
}

impl<T: ?Sized> Counted<T> {
    async fn count<V>(
        &self,
        method: Method,
        request: impl Future<Output = Result<V>>,
    ) -> Result<V> {
        let began = Instant::now();
        let result = request.await;
        self.requests.ended(method, began, result.as_ref().err());
        result
    }
}

impl StoreLayer for Counted<dyn Store> {
    fn inner(&self) -> &dyn Store {
        &*self.what
    }

    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(Counted { what: table, requests: self.requests.clone() })
    }

    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        let opened = self.count(Method::OpenTable, self.what.open_table(name, schema)).await?;
        Ok(StoreLayer::table(self, opened))
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        self.count(Method::TableNames, self.what.table_names()).await
    }
}

impl TableLayer for Counted<dyn Table> {
    fn inner(&self) -> &dyn Table {
        &*self.what
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        self.count(Method::ReadRow, self.what.read_row(row, select)).await
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        self.count(Method::ReadRows, self.what.read_rows(rows, select)).await
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        self.count(Method::Scan, self.what.scan(range, select, limit)).await
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        self.count(Method::MutateRow, self.what.mutate_row(request)).await
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        self.count(Method::CheckAndMutateRow, self.what.check_and_mutate_row(request)).await
    }

    /// Counts one request, which failed if one of its mutations failed.
    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        let began = Instant::now();
        let results = self.what.check_and_mutate_rows(requests).await;
        let error = results.iter().find_map(|result| result.as_ref().err());
        self.requests.ended(Method::CheckAndMutateRows, began, error);
        results
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        self.count(Method::Tablets, self.what.tablets()).await
    }
}

#[cfg(test)]
mod tests {
    use percolator::store::{Layout, LocalityGroup, MemoryStore};

    use super::*;

    /// A store whose tables cannot be read.
    #[derive(Debug)]
    struct Gone(MemoryStore);

    impl StoreLayer for Gone {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        async fn table_names(&self) -> Result<Vec<String>> {
            Err(Error::Unavailable { why: "the cable is out".to_owned() })
        }
    }

    fn count(requests: &Requests, method: &str, outcome: &str) -> u64 {
        let all = requests.outcomes();
        all.iter().find(|found| (found.0, found.1) == (method, outcome)).map_or(0, |found| found.2)
    }

    #[tokio::test]
    async fn requests_count_by_method_and_result() {
        let requests = Arc::new(Requests::default());
        let beneath = Arc::new(Gone(MemoryStore::without_locality_groups()));
        let store = counted(beneath, requests.clone());
        store.table_names().await.unwrap_err();
        assert_eq!(count(&requests, "table_names", "unavailable"), 1);
        assert_eq!(count(&requests, "table_names", "ok"), 0);

        let schema = TableSchema { groups: vec![LocalityGroup::on_disk("a", Layout::Versions)] };
        let table = store.open_table("docs", &schema).await.unwrap();
        let select = Selection::default();
        for _ in 0..3 {
            table.read_row(&"row".into(), &select).await.unwrap();
        }
        table.mutate_row(RowMutation::new("")).await.unwrap_err();
        assert_eq!(count(&requests, "open_table", "ok"), 1);
        assert_eq!(count(&requests, "read_row", "ok"), 3);
        assert_eq!(count(&requests, "mutate_row", "invalid"), 1);
        let timed: Vec<&str> = requests.durations().map(|(method, _)| method).collect();
        assert!(timed.contains(&"read_row") && !timed.contains(&"tablets"), "{timed:?}");
    }
}
