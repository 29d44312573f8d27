//! Runs one program on a repository of its own, for a given number of documents. The process
//! does nothing else, so that the cost of a document can be counted.
//!
//! Counts must not depend on the machine's speed, and all work must be that of documents. So our
//! arm differs from the other arms of Figure 7:
//!
//! * Workers make no periodic passes. A pass comes twice a second, and a program that Valgrind runs
//!   is some fifty times slower. So a counted document would pay for fifty times its share.
//! * No spy lies between Percolator and the store, and nothing is collected.
//! * One thread does everything. The next document comes when the observer of the last one has
//!   committed.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clustering::{Corpus, KEYS_AT_FIRST, Repository};
use percolator::{Percolator, WorkerOptions, Workers};

use super::rivals::Rival;
use crate::micro::bed;
use crate::system::{Io, io};

/// The programs that can run alone: the engine's arm, and ours.
pub(crate) const ALONE: [&str; 2] = ["engine_document", "document"];

/// Turns that workers get before it is clear that another thread commits.
const TURNS_MAX: u32 = 64;
/// Time without progress after which a run fails.
const STUCK: Duration = Duration::from_secs(60);

/// Clusters a repository of `documents` and then `more`. Returns the file operations for the
/// latter, and the number of wrongly clustered documents, if `check` asks for it.
pub(crate) async fn alone(
    name: &str,
    dir: &Path,
    documents: u64,
    more: u64,
    seed: u64,
    check: bool,
) -> anyhow::Result<(Option<Io>, u64)> {
    let corpus = Corpus::new(documents, seed);
    match name {
        "engine_document" => tokio::task::block_in_place(|| {
            let mut engine = Rival::engine(dir, corpus, documents)?;
            engine.cycle(more)?;
            let asked = io();
            Ok((asked, if check { engine.wrong()? } else { 0 }))
        }),
        "document" => {
            let dir = dir.to_path_buf();
            on_one_thread(async move || {
                let mut ours = Ours::open(&dir, corpus).await?;
                ours.load(documents).await?;
                ours.load(more).await?;
                let asked = io();
                let wrong = if check { ours.wrong(documents + more).await? } else { 0 };
                ours.workers.stop().await;
                Ok((asked, wrong))
            })
            .await
        }
        other => anyhow::bail!("there is no arm {other}; choose from {}", ALONE.join(", ")),
    }
}

/// Runs work and all tasks that it starts on one thread, so that tasks take turns in the same order
/// in every run.
pub(crate) async fn on_one_thread<T: Send + 'static>(
    work: impl AsyncFnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("starting a runtime of one thread")?.block_on(work())
    };
    tokio::task::spawn_blocking(run).await?
}

/// Options of workers that find changes by hints alone. Their passes are an hour apart.
pub(crate) fn without_passes() -> WorkerOptions {
    let hour = Duration::from_secs(3600);
    WorkerOptions { threads: 1, scan_period: hour, idle_max: hour, ..WorkerOptions::default() }
}

/// Lets the workers run until a client has committed this many transactions since it was opened.
///
/// The workers run on this thread, and mostly need a few turns. Now and then the store's own thread
/// commits, while it syncs a file. Turns in that time would count as instructions, as many as the
/// disk is slow, so this function sleeps.
///
/// # Errors
/// An error if none was committed for a minute.
pub(crate) async fn until_committed(db: &Percolator, count: u64) -> anyhow::Result<()> {
    let (mut last, mut since) = (0, Instant::now());
    for turn in 1_u32.. {
        let committed = db.stats().committed;
        if committed >= count {
            break;
        }
        if turn > TURNS_MAX {
            if committed > last {
                (last, since) = (committed, Instant::now());
            }
            let waits = since.elapsed();
            anyhow::ensure!(waits < STUCK, "only {committed} of {count} transactions committed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// A repository with one worker.
struct Ours {
    repository: Repository,
    workers: Workers,
    corpus: Corpus,
    next: u64,
}

impl Ours {
    async fn open(dir: &Path, corpus: Corpus) -> anyhow::Result<Self> {
        let db = bed::open(dir).await?;
        let repository = Repository::open(db).await?;
        let workers = repository.cluster(without_passes()).await?;
        Ok(Ours { repository, workers, corpus, next: 0 })
    }

    async fn load(&mut self, documents: u64) -> anyhow::Result<()> {
        let ids = self.next..self.next + documents;
        self.next = ids.end;
        for id in ids {
            let db = self.repository.database();
            let before = db.stats().committed;
            self.repository.load(&self.corpus.document(id), self.corpus.body(id)).await?;
            // The document, and the run of its observer.
            until_committed(db, before + 2).await?;
        }
        Ok(())
    }

    /// Counts the documents that are missing, wrongly clustered or not clustered.
    async fn wrong(&self, documents: u64) -> anyhow::Result<u64> {
        self.repository.database().wait_idle(None).await?;
        let found = self.repository.verify(KEYS_AT_FIRST).await?;
        Ok(found.wrong + found.waiting + found.documents.abs_diff(documents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn both_cluster_as_the_rule_says() {
        for name in ALONE {
            let dir = tempfile::tempdir().unwrap();
            let (_, wrong) = alone(name, &dir.path().join("data"), 50, 30, 1, true).await.unwrap();
            assert_eq!(wrong, 0, "{name}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(alone("page", dir.path(), 50, 30, 1, true).await.is_err());
    }
}
