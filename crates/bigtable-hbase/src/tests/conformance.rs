//! The conformance suite of stores, over a real HBase.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use crate::HbaseStore;
use async_trait::async_trait;
use bigtable::conformance::CASES;
use bigtable::{
    ConditionalMutation, Page, PageLimit, Result, Row, RowKey, RowMutation, RowRange, Selection,
    Store, Table, TableSchema, Timestamp,
};
use tokio::runtime::Handle;

use super::cluster;

/// The cases that ask for what HBase does not have, and why.
const BEYOND_HBASE: [(&str, &str); 10] = [
    ("floor::refuses_what_is_older", NO_FLOOR),
    ("floor::refuses_glances", NO_FLOOR),
    ("floor::never_goes_back", NO_FLOOR),
    ("floor::not_asked_for", NO_FLOOR),
    ("threads::floor_holds", NO_FLOOR),
    ("threads::glances_miss_nothing", NO_FLOOR),
    ("bounds::refusing", NO_BOUNDS),
    ("bounds::refusing_a_whole_request", NO_BOUNDS),
    ("bounds::refusing_over_all_tables", NO_BOUNDS),
    ("bounds::pressure", NO_BOUNDS),
];
const NO_FLOOR: &str = "HBase compares no floor within a row operation";
const NO_BOUNDS: &str = "HBase has no bound on the cells of a family";

/// A store whose futures any thread may poll, as the cases with threads of their own do.
#[derive(Debug)]
struct Anywhere<T> {
    inner: T,
    runtime: Handle,
}

impl<T> Anywhere<T> {
    async fn within<O>(&self, future: impl Future<Output = O> + Send) -> O {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let _entered = self.runtime.enter();
            future.as_mut().poll(cx)
        })
        .await
    }
}

#[async_trait]
impl Store for Anywhere<HbaseStore> {
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        let inner = self.within(self.inner.open_table(name, schema)).await?;
        Ok(Arc::new(Anywhere { inner, runtime: self.runtime.clone() }))
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        self.within(self.inner.table_names()).await
    }

    fn floor(&self) -> Timestamp {
        self.inner.floor()
    }

    async fn raise_floor(&self, floor: Timestamp) -> Result<()> {
        self.inner.raise_floor(floor).await
    }

    async fn reclaim(&self) -> Result<()> {
        self.within(self.inner.reclaim()).await
    }
}

#[async_trait]
impl Table for Anywhere<Arc<dyn Table>> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        self.within(self.inner.read_row(row, select)).await
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        self.within(self.inner.read_rows(rows, select)).await
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        self.within(self.inner.scan(range, select, limit)).await
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        self.within(self.inner.mutate_row(request)).await
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        self.within(self.inner.check_and_mutate_row(request)).await
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        self.within(self.inner.check_and_mutate_rows(requests)).await
    }

    async fn tablets(&self) -> Result<Vec<RowRange>> {
        self.within(self.inner.tablets()).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes() {
    let Some(inner) = cluster::store().await else { return };
    let store = Anywhere { inner, runtime: Handle::current() };
    for (name, why) in BEYOND_HBASE {
        assert!(CASES.iter().any(|case| case.name() == name), "{name} ({why}) is no case");
    }
    let only = std::env::var("CASE").ok();
    for case in CASES {
        let beyond = BEYOND_HBASE.iter().any(|(name, _)| *name == case.name());
        if !beyond && only.as_deref().is_none_or(|only| case.name().contains(only)) {
            eprintln!("{}", case.name());
            case.run(&store).await;
        }
    }
}
