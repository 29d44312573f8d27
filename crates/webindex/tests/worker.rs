//! Workers that come and go.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use percolator::{Percolator, WorkerOptions};
use webindex::address::Base;
use webindex::{LoadOptions, Progress, WebIndex, Worker};

/// Loads one more page, and waits until it can be found.
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
