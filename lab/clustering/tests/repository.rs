//! Tests the repository under concurrent arrivals, restarts, and a key that is added later.
#![allow(clippy::unwrap_used, reason = "a test's helpers may")]

use clustering::rule::Expected;
use clustering::{Corpus, Repository};
use percolator::{Percolator, WorkerOptions};

async fn load(repository: &Repository, corpus: Corpus, ids: std::ops::Range<u64>, at_once: u64) {
    let mut loaders = Vec::new();
    for lane in 0..at_once {
        let (repository, ids) = (repository.clone(), ids.clone());
        loaders.push(tokio::spawn(async move {
            for id in ids.filter(|id| id % at_once == lane) {
                repository.load(&corpus.document(id), corpus.body(id)).await.unwrap();
            }
        }));
    }
    for loader in loaders {
        loader.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_arrivals_are_clustered_as_if_one_after_the_other() {
    let n = 6000;
    let corpus = Corpus::new(n, 11);
    let repository = Repository::open(Percolator::in_memory().await.unwrap()).await.unwrap();
    let workers =
        repository.cluster(WorkerOptions { threads: 16, ..Default::default() }).await.unwrap();
    load(&repository, corpus, 0..n, 16).await;
    repository.database().wait_idle(None).await.unwrap();
    let check = repository.verify(3).await.unwrap();
    assert_eq!((check.documents, check.waiting, check.wrong), (n, 0, 0));
    assert!(check.shape.agrees(&Expected::of(n, corpus.key_space(), 3)), "{check:?}");
    let lookups = repository.lookups();
    assert!(lookups.lookups >= n && lookups.lookups <= 3 * n, "{lookups:?}");
    workers.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fourth_key_merges_what_is_there_and_what_arrives() {
    let n = 3000;
    let corpus = Corpus::new(n, 12);
    let repository = Repository::open(Percolator::in_memory().await.unwrap()).await.unwrap();
    let workers = repository.cluster(WorkerOptions::default()).await.unwrap();
    load(&repository, corpus, 0..n, 4).await;
    repository.database().wait_idle(None).await.unwrap();
    let before = repository.verify(3).await.unwrap();
    // The fourth keys are not used yet.
    let unmerged = repository.verify(4).await.unwrap();
    assert!(before.wrong == 0 && unmerged.wrong > 0, "{before:?} {unmerged:?}");
    let (more, ()) = tokio::join!(
        repository.add_key(WorkerOptions::default()),
        load(&repository, corpus, n..n + 300, 4)
    );
    let more = more.unwrap();
    load(&repository, corpus, n + 300..n + 400, 4).await;
    repository.database().wait_idle(None).await.unwrap();
    let after = repository.verify(4).await.unwrap();
    assert_eq!((after.documents, after.waiting, after.wrong), (n + 400, 0, 0));
    assert!(after.shape.clusters < before.shape.clusters);
    assert!(repository.verify(5).await.is_err());
    workers.stop().await;
    more.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_were_not_clustered_yet_are_seen_as_waiting() {
    let (dir, n) = (tempfile::tempdir().unwrap(), 300);
    let corpus = Corpus::new(n, 13);
    let repository = Repository::open(Percolator::open(dir.path()).await.unwrap()).await.unwrap();
    load(&repository, corpus, 0..n, 8).await;
    let check = repository.verify(3).await.unwrap();
    assert_eq!((check.documents, check.waiting), (n, n));
    drop(repository);
    let repository = Repository::open(Percolator::open(dir.path()).await.unwrap()).await.unwrap();
    let workers = repository.cluster(WorkerOptions::default()).await.unwrap();
    repository.database().wait_idle(None).await.unwrap();
    let check = repository.verify(3).await.unwrap();
    assert_eq!((check.documents, check.waiting, check.wrong), (n, 0, 0));
    workers.stop().await;
}
