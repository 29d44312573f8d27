//! Tests that jobs over all pages read many pages at a time from a store that is far away.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{CommitRows, Glance, Glanced, MemoryStore, Result, RowsOutcome, Store, Table};
use percolator::{Options, Percolator, WorkerOptions};
use tokio::time::{Instant, sleep};
use webindex::address::Base;
use webindex::generate::Site;
use webindex::{LoadOptions, Progress, WebIndex};

/// How long a request to the store takes.
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// A store, or a table, behind a network.
#[derive(Debug)]
struct Far<T>(T);

async fn over_there<T>(request: impl Future<Output = T>) -> T {
    sleep(ROUND_TRIP).await;
    request.await
}

impl StoreLayer for Far<MemoryStore> {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn through<T: Send>(&self, request: impl Future<Output = T> + Send) -> T {
        over_there(request).await
    }

    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(Far(table))
    }

    fn try_commit_rows(
        &self,
        request: CommitRows,
    ) -> std::result::Result<Result<RowsOutcome>, CommitRows> {
        Err(request)
    }
}

impl TableLayer for Far<Arc<dyn Table>> {
    fn inner(&self) -> &dyn Table {
        &*self.0
    }

    async fn through<T: Send>(&self, request: impl Future<Output = T> + Send) -> T {
        over_there(request).await
    }

    fn glance(&self, _at: Glance<'_>) -> Result<Glanced> {
        Ok(Glanced::Nothing)
    }
}

#[tokio::test(start_paused = true)]
async fn a_ranking_and_a_verification_read_many_pages_at_a_time() {
    let search = tempfile::tempdir().unwrap();
    let db = Percolator::over(Arc::new(Far(MemoryStore::new())), Options::default());
    let index = WebIndex::open(db.await.unwrap(), search.path(), WorkerOptions::default());
    let index = index.await.unwrap();
    let site = tempfile::tempdir().unwrap();
    Site { pages: 300, seed: 1 }.write(&site.path().join("site")).unwrap();
    let base = Base::parse("https://far.example/").unwrap();
    let (options, progress) = (LoadOptions::default(), Progress::default());
    let loaded = index.load(site.path(), &base, &options, &progress).await.unwrap().loaded;
    assert!(loaded > 300);
    assert_eq!(index.wait(None).await.unwrap().set_aside, []);
    let one_by_one = u32::try_from(loaded).unwrap() * ROUND_TRIP;

    let began = Instant::now();
    assert_eq!(index.rank(&progress).await.unwrap().changed, loaded);
    let took = began.elapsed();
    assert!(took < one_by_one / 3, "the ranking of {loaded} pages took {took:?}");

    assert_eq!(index.wait(None).await.unwrap().set_aside, []);
    let began = Instant::now();
    assert!(index.verify().await.unwrap().is_ok());
    let took = began.elapsed();
    assert!(took < one_by_one / 3, "the verification of {loaded} pages took {took:?}");
    index.stop().await;
}
