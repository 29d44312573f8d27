//! Tests of workers that start and stop while an index is loaded.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Arc;

use bigtable::layer::StoreLayer;
use bigtable::{MemoryStore, Store};
use percolator::{Options, Percolator, WorkerOptions};
use tokio::sync::Semaphore;
use webindex::address::Base;
use webindex::{LoadOptions, Progress, WebIndex, Worker};

/// Loads one more page, and waits until a search finds it.
async fn found_once_loaded(index: &WebIndex, name: &str) {
    let site = tempfile::tempdir().unwrap();
    let text = format!("<title>{name}</title><p>All about {name}.");
    fs::write(site.path().join(format!("{name}.html")), text).unwrap();
    let base = Base::parse(&format!("https://{name}.example/")).unwrap();
    index.load(site.path(), &base, &LoadOptions::default(), &Progress::default()).await.unwrap();
    let idle = index.wait(None).await.unwrap();
    assert_eq!(idle.set_aside, [], "no change is set aside");
    assert_eq!(index.search(name, 10).await.unwrap().len(), 1, "{name}");
}

#[tokio::test]
async fn when_the_worker_ends_that_feeds_the_search_index_another_takes_its_place() {
    let search = tempfile::tempdir().unwrap();
    let db = Percolator::in_memory().await.unwrap();
    let start = async || {
        let db = db.another_client().await.unwrap();
        Worker::start(db, Some(search.path()), WorkerOptions::default()).await.unwrap()
    };
    let index = WebIndex::connect(db.another_client().await.unwrap(), Some(search.path()));
    let index = index.await.unwrap();
    let mut feeding = start().await;
    found_once_loaded(&index, "cod").await;
    for name in ["eel", "ray"] {
        let waiting = start().await;
        feeding.stop().await;
        found_once_loaded(&index, name).await;
        feeding = waiting;
    }
    assert!(index.verify().await.unwrap().is_ok());
    feeding.stop().await;
}

/// A store that announces each sync, and makes it wait for a permit.
#[derive(Debug)]
struct Syncing {
    store: MemoryStore,
    asked: Semaphore,
    permits: Semaphore,
}

impl StoreLayer for Syncing {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn sync(&self) -> bigtable::Result<()> {
        self.asked.add_permits(1);
        self.permits.acquire().await.unwrap().forget();
        Ok(())
    }
}

#[tokio::test]
async fn the_search_index_is_written_after_the_store_is_synced() {
    let search = tempfile::tempdir().unwrap();
    let (asked, permits) = (Semaphore::new(0), Semaphore::new(0));
    let store = Arc::new(Syncing { store: MemoryStore::new(), asked, permits });
    let db = Percolator::over(store.clone(), Options::default()).await.unwrap();
    let index = WebIndex::open(db, search.path(), WorkerOptions::default()).await.unwrap();
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("cod.html"), "<title>Cod</title><p>A long fish.").unwrap();
    let base = Base::parse("https://fish.example/").unwrap();
    index.load(site.path(), &base, &LoadOptions::default(), &Progress::default()).await.unwrap();
    // The first export requests a sync, and writes nothing before the sync has ended.
    store.asked.acquire().await.unwrap().forget();
    assert_eq!(index.search("fish", 10).await.unwrap().len(), 0);
    store.permits.add_permits(1000);
    assert_eq!(index.wait(None).await.unwrap().set_aside, []);
    assert_eq!(index.search("fish", 10).await.unwrap().len(), 1);
    index.stop().await;
}
