//! A worker process: runs the observers of an index that other processes load and search
//! (paper section 2.4).
//!
//! Workers may start, stop and die at any time. Work that a worker leaves undone is notified
//! in the database, and the next worker that scans there finds it. The search index has one
//! writer at a time. Among the workers that can reach its directory, the first one feeds it,
//! and the others wait to take its place.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use percolator::{Percolator, WorkerOptions};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Error;
use crate::index::latency::Latency;
use crate::index::{rebuild, upgrade};
use crate::observers;
use crate::search::SearchIndex;
use crate::tables::Tables;

/// How often a waiting worker tries to become the search index's writer.
const CLAIM_EVERY: Duration = Duration::from_secs(1);

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
    feeder: Option<Feeder>,
    upgrade: Option<JoinHandle<()>>,
}

/// The task that feeds the search index while this process is its writer.
#[derive(Debug)]
struct Feeder {
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
        let of_store = |dir| SearchIndex::open_of(dir, db.services().store.id());
        let search = search_dir.map(of_store).transpose()?.map(Arc::new);
        db.declare(&observers::declared(&tables, &latency)).await?;
        let workers = db.observe(observers::keepers(&tables, &latency), options.clone()).await?;
        let upgrade = upgrade::start(&db, &tables).await?;
        let feeder = search.map(|search| {
            let (stop, stopped) = oneshot::channel();
            let feed = feed(db, tables, search, latency, options, stopped);
            Feeder { stop, task: tokio::spawn(feed) }
        });
        Ok(Worker { workers, feeder, upgrade })
    }

    /// Stops the observers, each after the cell it is at. Work that is left stays in the
    /// database, for other workers.
    pub async fn stop(self) {
        if let Some(upgrade) = self.upgrade {
            upgrade.abort();
        }
        if let Some(Feeder { stop, task }) = self.feeder {
            drop(stop);
            // If the task has panicked, it has ended, too.
            let _ = task.await;
        }
        self.workers.stop().await;
    }
}

/// Feeds the search index while this process can be its writer, until the worker is stopped.
async fn feed(
    db: Percolator,
    tables: Tables,
    search: Arc<SearchIndex>,
    latency: Arc<Latency>,
    options: WorkerOptions,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut feeding: Option<percolator::Workers> = None;
    let mut waiting = false;
    loop {
        let claimed = claim(&search).await;
        match (claimed, feeding.take()) {
            (Ok(true), Some(workers)) => feeding = Some(workers),
            (Ok(true), None) => {
                match begin_to_feed(&db, &tables, &search, &latency, &options).await {
                    Ok(workers) => {
                        tracing::info!(target: "webindex::worker", event = "feeding");
                        (feeding, waiting) = (Some(workers), false);
                    }
                    Err(error) => not_feeding(&error),
                }
            }
            (Ok(false), ended) => {
                if let Some(workers) = ended {
                    // Writing failed here, and another process became the writer first.
                    workers.stop().await;
                }
                if !waiting {
                    tracing::info!(target: "webindex::worker", event = "waiting_to_feed");
                    waiting = true;
                }
            }
            (Err(error), workers) => {
                not_feeding(&error);
                feeding = workers;
            }
        }
        if feeding.is_some()
            && let Err(error) = rebuild::complete(&db, &tables, &search).await
        {
            not_feeding(&error);
        }
        tokio::select! {
            _ = &mut stopped => break,
            () = tokio::time::sleep(CLAIM_EVERY) => {}
        }
    }
    if let Some(workers) = feeding {
        workers.stop().await;
    }
}

fn not_feeding(error: &Error) {
    tracing::warn!(target: "webindex::worker", event = "not_feeding", %error);
}

/// Becomes the writer of the search index. Returns `false` if another process is the writer.
async fn claim(search: &Arc<SearchIndex>) -> Result<bool, Error> {
    let search = search.clone();
    let claimed = tokio::task::spawn_blocking(move || search.claim()).await;
    claimed.map_err(percolator::Error::application)?
}

async fn begin_to_feed(
    db: &Percolator,
    tables: &Tables,
    search: &Arc<SearchIndex>,
    latency: &Arc<Latency>,
    options: &WorkerOptions,
) -> Result<percolator::Workers, Error> {
    // A separate client: its workers must not take the hints that are meant for the other
    // observers.
    let client = db.another_client().await?;
    let exporters = observers::exporters(&client, tables, search, latency);
    // One thread is enough, because each batching observer has its own task.
    let options = WorkerOptions { threads: 1, ..options.clone() };
    Ok(client.observe(exporters, options).await?)
}
