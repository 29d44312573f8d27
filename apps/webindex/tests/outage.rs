//! Tests how long a wait for the observers goes on without the store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{
    Error, MemoryStore, Page, PageLimit, Result, Row, RowKey, RowRange, Selection, Store, Table,
};
use percolator::{Options, Percolator};
use webindex::WebIndex;

/// A store whose tables cannot be read while it is away.
#[derive(Debug)]
struct Leaving<T> {
    inner: T,
    away: Arc<AtomicBool>,
}

impl StoreLayer for Leaving<MemoryStore> {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(Leaving { inner, away: self.away.clone() })
    }
}

impl Leaving<Arc<dyn Table>> {
    fn check(&self) -> Result<()> {
        let why = "connection refused".to_owned();
        if self.away.load(Ordering::SeqCst) { Err(Error::Unavailable { why }) } else { Ok(()) }
    }
}

impl TableLayer for Leaving<Arc<dyn Table>> {
    fn inner(&self) -> &dyn Table {
        &*self.inner
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        self.check()?;
        self.inner.read_row(row, select).await
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        self.check()?;
        self.inner.scan(range, select, limit).await
    }
}

/// Waits with this bound, while the store is away for 40 s.
async fn wait(outage_max: Option<Duration>) -> std::result::Result<bool, webindex::Error> {
    let away = Arc::new(AtomicBool::new(false));
    let store = Leaving { inner: MemoryStore::new(), away: away.clone() };
    let db = Percolator::over(Arc::new(store), Options::default()).await.unwrap();
    let index = WebIndex::connect(db, None).await.unwrap();
    assert!(index.wait(None).await.unwrap().idle);
    let index = match outage_max {
        Some(outage_max) => index.with_outage_max(outage_max),
        None => index,
    };
    away.store(true, Ordering::SeqCst);
    let back = async {
        tokio::time::sleep(Duration::from_secs(40)).await;
        away.store(false, Ordering::SeqCst);
        std::future::pending().await
    };
    tokio::select! {
        waited = index.wait(None) => waited.map(|report| report.idle),
        () = back => unreachable!("it never ends"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_the_store_ends_when_the_caller_says() {
    for too_short in [Some(Duration::ZERO), Some(Duration::from_secs(35)), None] {
        let waited = wait(too_short).await;
        assert!(matches!(waited, Err(webindex::Error::Database(_))), "{too_short:?}: {waited:?}");
    }
    assert!(wait(Some(Duration::from_secs(60))).await.unwrap());
}
