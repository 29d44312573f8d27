//! A worker process: runs the observers of an index that other processes load and search
//! (paper section 2.4).
//!
//! Workers may start, stop and die at any time. Work that a worker leaves undone is notified
//! in the database, and the next worker that scans there finds it. The search index has one
//! writer at a time. Among the workers that can reach its directory, the first one feeds it,
//! and the others wait to take its place. A waiting worker becomes the writer when the writer ends,
//! or when the writer has reported nothing for 30 seconds (`writer.rs`).

use std::path::Path;
use std::sync::Arc;

use percolator::{Percolator, WorkerOptions};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::feed::Feeder;
use crate::Error;
use crate::index::latency::Latency;
use crate::index::upgrade;
use crate::observers;
use crate::tables::Tables;

mod feed;

#[cfg(test)]
mod tests;

/// The observers of an index, which run in this process until they are stopped.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use webindex::{LoadOptions, Progress, WebIndex, Worker, address::Base};
/// let site = tempfile::tempdir()?;
/// std::fs::write(site.path().join("a.html"), "<title>Cod</title><p>A long fish.")?;
/// # let (store, search) = (percolator::Percolator::in_memory().await?, tempfile::tempdir()?);
///
/// // Elsewhere, as often as you like:
/// let db = store.another_client().await?;
/// let worker = Worker::start(db, Some(search.path()), Default::default()).await?;
///
/// let index = WebIndex::connect(store, Some(search.path())).await?;
/// let base = Base::parse("https://fish.example/")?;
/// index.load(site.path(), &base, &LoadOptions::default(), &Progress::default()).await?;
/// assert!(index.wait(None).await?.idle);
/// assert_eq!(index.search("fish", 10).await?[0].url, "https://fish.example/a.html");
/// assert!(index.verify().await?.is_ok());
/// worker.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Worker {
    workers: percolator::Workers,
    feeding: Option<Feeding>,
    upgrade: Option<JoinHandle<()>>,
}

/// The task that feeds the search index while this process is its writer.
#[derive(Debug)]
struct Feeding {
    /// Dropping it ends the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Worker {
    /// Starts the observers in this process. If the search index's directory is given, this
    /// process also feeds the search index, as soon as no other process does.
    ///
    /// # Errors
    /// Errors of opening the search index, and of the database.
    pub async fn start(
        db: Percolator,
        search_dir: Option<&Path>,
        options: WorkerOptions,
    ) -> Result<Self, Error> {
        let tables = Tables::open(&db).await?;
        let latency = Arc::new(Latency::new());
        let feeder = match search_dir {
            Some(dir) => Some(Feeder::new(&db, &tables, &latency, &options, dir).await?),
            None => None,
        };
        db.declare(&observers::declared(&tables, &latency)).await?;
        db.leave_out_of_backlog([observers::gathering()]);
        let workers = db.observe(observers::keepers(&tables, &latency), options).await?;
        let upgrade = upgrade::start(&db, &tables).await?;
        let feeding = feeder.map(|feeder| {
            let (stop, stopped) = oneshot::channel();
            Feeding { stop, task: tokio::spawn(feeder.run(stopped)) }
        });
        Ok(Worker { workers, feeding, upgrade })
    }

    /// Stops the observers, each after the cell it is at. Work that is left stays in the
    /// database, for other workers.
    pub async fn stop(self) {
        if let Some(upgrade) = self.upgrade {
            upgrade.abort();
        }
        if let Some(Feeding { stop, task }) = self.feeding {
            drop(stop);
            // If the task has panicked, it has ended, too.
            let _ = task.await;
        }
        self.workers.stop().await;
    }
}
