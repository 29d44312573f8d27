//! Implements a store that counts the requests of its client, by table and method.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::sync::locked;
use bigtable::{
    ConditionalMutation, Page, PageLimit, Result, Row, RowKey, RowMutation, RowRange, Selection,
    Store, Table,
};

/// The number of requests by table and method, as `TABLE METHOD`.
pub(crate) type Counts = BTreeMap<String, u64>;

/// A store that counts requests. A request for several rows of a table counts once.
#[derive(Debug)]
pub(crate) struct Calls {
    store: Arc<dyn Store>,
    counts: Arc<Mutex<Counts>>,
}

impl Calls {
    pub(crate) fn on(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Calls { store, counts: Arc::default() })
    }

    pub(crate) fn counts(&self) -> Counts {
        locked(&self.counts).clone()
    }
}

impl StoreLayer for Calls {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(CountedTable { table, counts: self.counts.clone() })
    }
}

#[derive(Debug)]
struct CountedTable {
    table: Arc<dyn Table>,
    counts: Arc<Mutex<Counts>>,
}

impl CountedTable {
    fn count(&self, method: &str) {
        let key = format!("{} {method}", self.table.name());
        *locked(&self.counts).entry(key).or_default() += 1;
    }
}

impl TableLayer for CountedTable {
    fn inner(&self) -> &dyn Table {
        &*self.table
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        self.count("read_row");
        self.table.read_row(row, select).await
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        self.count("read_rows");
        self.table.read_rows(rows, select).await
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        self.count("scan");
        self.table.scan(range, select, limit).await
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        self.count("mutate_row");
        self.table.mutate_row(request).await
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        self.count("check_and_mutate_row");
        self.table.check_and_mutate_row(request).await
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        self.count("check_and_mutate_rows");
        self.table.check_and_mutate_rows(requests).await
    }
}
