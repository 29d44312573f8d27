//! The web index as a whole: opens it, loads it, ranks it, searches it, and verifies it.

pub(crate) mod latency;
mod load;
mod mirror;
mod rank;
mod reading;
pub(crate) mod rebuild;
mod recrawl;
pub(crate) mod upgrade;
mod verify;
mod view;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use percolator::observe::IdleReport;
use percolator::store::sync::locked;
use percolator::{Percolator, WorkerOptions, Workers};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Error;
use crate::observers;
use crate::search::SearchIndex;
use crate::tables::{self, Tables};
use crate::writer::{self, WriterView};

use reading::Reading;

pub use latency::Quantiles;
pub use load::{LoadOptions, LoadReport, Progress, Skipped};
pub use mirror::{Mirror, MirrorReport};
pub use rank::RankReport;
pub use recrawl::RecrawlReport;
pub use verify::VerifyReport;
pub use view::{AnchorView, ClusterView, HitCounts, IndexStats, MemberView, PageView};

/// How long to wait for a store that cannot be reached unless the caller says otherwise, and how
/// often to try it.
const OUTAGE_MAX: Duration = Duration::from_secs(30);
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// How long an idle index waits for a worker to complete the search index. The worker may have
/// died, or reach another directory.
const COMPLETE_MAX: Duration = Duration::from_secs(30);

/// The pause between two checks whether an upgrade has ended, or the search index is complete.
const UPGRADE_PAUSE: Duration = Duration::from_millis(50);

/// The directory of the search index, inside the database's directory.
pub const SEARCH_DIR: &str = "webindex-search";

/// An incremental web index over a database. Its observers run in this process until it is
/// stopped.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use webindex::{LoadOptions, Progress, WebIndex, address::Base};
/// let site = tempfile::tempdir()?;
/// let cod = "<title>Cod</title><p>See <a href=b.html>ling</a>.";
/// std::fs::write(site.path().join("a.html"), cod)?;
/// std::fs::write(site.path().join("b.html"), "<title>Ling</title><p>A long fish.")?;
///
/// let (db, search) = (percolator::Percolator::in_memory().await?, tempfile::tempdir()?);
/// let index = WebIndex::open(db, search.path(), Default::default()).await?;
/// let base = Base::parse("https://fish.example/")?;
/// let (options, progress) = (LoadOptions::default(), Progress::default());
/// let loaded = index.load(site.path(), &base, &options, &progress).await?;
/// assert_eq!(loaded.loaded, 2);
/// assert!(index.wait(None).await?.idle);
///
/// let hits = index.search("long fish", 10).await?;
/// assert_eq!(hits[0].url, "https://fish.example/b.html");
/// assert_eq!(index.page("https://fish.example/b.html").await?.unwrap().in_links, 1);
/// assert!(index.verify().await?.is_ok());
/// index.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct WebIndex {
    db: Percolator,
    tables: Tables,
    /// `None` if another machine has the search index.
    search: Option<Reading>,
    latency: Arc<latency::Latency>,
    /// `None` if other processes run the observers, and after the observers were stopped.
    workers: Mutex<Option<Workers>>,
    upgrade: Option<JoinHandle<()>>,
    outage_max: Duration,
}

impl WebIndex {
    /// Opens the index in a database and starts its observers. The search index is in a
    /// separate directory, `search_dir`. For a database on disk, pass [`SEARCH_DIR`] inside
    /// its directory. If the search index is missing, or if an earlier version wrote it, it is
    /// built again from the stored documents. A store that an earlier version has filled is
    /// upgraded in the background.
    ///
    /// # Errors
    /// Errors of opening the search index, and of the database.
    pub async fn open(
        db: Percolator,
        search_dir: &Path,
        workers: WorkerOptions,
    ) -> Result<Self, Error> {
        let tables = Tables::open(&db).await?;
        let search = Reading::open(&db, &tables, search_dir, false).await?;
        let held = search.held();
        let latency = Arc::new(latency::Latency::new());
        let mut registrations = observers::keepers(&tables, &latency);
        registrations.extend(observers::exporters(&db, &tables, &held, &latency));
        let workers = Mutex::new(Some(db.observe(registrations, workers).await?));
        let upgrade = upgrade::start(&db, &tables).await?;
        rebuild::complete(&db, &tables, &held.search).await?;
        let (search, outage_max) = (Some(search), OUTAGE_MAX);
        Ok(WebIndex { db, tables, search, latency, workers, upgrade, outage_max })
    }

    /// Opens the index in a database whose observers run in other processes, each a
    /// [`Worker`](crate::Worker). Searching and verifying need `search_dir`, the directory of
    /// the search index.
    ///
    /// # Errors
    /// As [`open`](WebIndex::open).
    pub async fn connect(db: Percolator, search_dir: Option<&Path>) -> Result<Self, Error> {
        let tables = Tables::open(&db).await?;
        let search = match search_dir {
            Some(dir) => Some(Reading::open(&db, &tables, dir, true).await?),
            None => None,
        };
        let latency = Arc::new(latency::Latency::new());
        // Declared, so that pages loaded before the first worker starts wait for it.
        db.declare(&observers::declared(&tables, &latency)).await?;
        db.leave_out_of_backlog([observers::gathering()]);
        // Gives an empty store the present layout before anything is loaded into it.
        upgrade::is_current(&db, &tables).await?;
        let (workers, upgrade, outage_max) = (Mutex::default(), None, OUTAGE_MAX);
        Ok(WebIndex { db, tables, search, latency, workers, upgrade, outage_max })
    }

    /// Sets how long [`wait`](WebIndex::wait) goes on while the store cannot be reached. The
    /// default is half a minute. A store that replaces a dead server by itself may need longer.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let db = percolator::Percolator::in_memory().await?;
    /// let index = webindex::WebIndex::connect(db, None).await?;
    /// let index = index.with_outage_max(std::time::Duration::from_secs(100));
    /// # Ok::<(), webindex::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn with_outage_max(self, outage_max: Duration) -> Self {
        WebIndex { outage_max, ..self }
    }

    async fn search_index(&self) -> Result<Arc<SearchIndex>, Error> {
        let reading = self.search.as_ref().ok_or(Error::NoSearchIndex)?;
        reading.current(&self.db, &self.tables).await
    }

    /// Whether a database holds a web index, according to its observer schema.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn is_in(db: &Percolator) -> Result<bool, Error> {
        let first = |observed: &percolator::observe::Observed| {
            observed.table == tables::DOCUMENTS
                && observed.column == tables::CONTENT
                && observed.observer == observers::PARSE
        };
        Ok(db.observers().await?.iter().any(first))
    }

    /// Returns the writer of the search index of the web index in a database. `None` if there is
    /// no web index, or no worker has reported.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let db = percolator::Percolator::in_memory().await?;
    /// assert!(webindex::WebIndex::writer_in(&db).await?.is_none());
    /// # Ok::<(), webindex::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn writer_in(db: &Percolator) -> Result<Option<WriterView>, Error> {
        // Opening a table would create it.
        if WebIndex::is_in(db).await? { writer::stored(db).await } else { Ok(None) }
    }

    /// Returns the database.
    pub fn database(&self) -> &Percolator {
        &self.db
    }

    /// Whether the observers run in this process.
    pub fn runs_observers(&self) -> bool {
        locked(&self.workers).is_some()
    }

    /// Waits until the store is upgraded and every observer has caught up, or until `timeout`. If a
    /// worker is making the search index anew, waits up to half a minute for it to begin. If
    /// the store restarts meanwhile, the wait goes on.
    ///
    /// # Errors
    /// Errors of the database. If the database cannot be reached, the error comes after half a
    /// minute without a connection ([`with_outage_max`](WebIndex::with_outage_max)), or at the
    /// timeout.
    pub async fn wait(&self, timeout: Option<Duration>) -> Result<IdleReport, Error> {
        let begun = Instant::now();
        loop {
            let error = match self.wait_once(begun, timeout).await {
                Ok(report) => return Ok(report),
                Err(Error::Database(error)) => error,
                Err(error) => return Err(error),
            };
            let outage = Instant::now();
            // The store is back when it answers this cheap request.
            loop {
                let late = timeout.is_some_and(|timeout| begun.elapsed() >= timeout);
                if !error.is_retryable() || late || outage.elapsed() > self.outage_max {
                    return Err(Error::Database(error));
                }
                tokio::time::sleep(OUTAGE_PAUSE).await;
                if self.db.observers().await.is_ok() {
                    break;
                }
            }
        }
    }

    async fn wait_once(
        &self,
        begun: Instant,
        timeout: Option<Duration>,
    ) -> Result<IdleReport, Error> {
        let left = || timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        while !upgrade::is_current(&self.db, &self.tables).await? {
            if left().is_some_and(|left| left.is_zero()) {
                let report = self.db.wait_idle(left()).await?;
                return Ok(IdleReport { idle: false, ..report });
            }
            tokio::time::sleep(UPGRADE_PAUSE).await;
        }
        let mut idle_since = None;
        loop {
            let report = self.db.wait_idle(left()).await?;
            // A worker that took over has not notified the exporters of every page yet.
            let is_complete = match &self.search {
                Some(search) => search.is_complete(&self.db, &self.tables).await?,
                None => true,
            };
            let waited = idle_since.get_or_insert_with(Instant::now).elapsed();
            let late = left().is_some_and(|left| left.is_zero());
            if !report.idle || is_complete || late || waited > COMPLETE_MAX {
                return Ok(report);
            }
            tokio::time::sleep(UPGRADE_PAUSE).await;
        }
    }

    /// Returns how long the pages loaded by this process took to their first observer, and to
    /// the search index.
    pub fn latency(&self) -> (Quantiles, Quantiles) {
        self.latency.quantiles()
    }

    /// Stops the observers, each after the cell it is at. Work that is left stays in the
    /// database. A second call does nothing.
    pub async fn stop(&self) {
        if let Some(upgrade) = &self.upgrade {
            upgrade.abort();
        }
        let workers = locked(&self.workers).take();
        if let Some(workers) = workers {
            workers.stop().await;
            if let Some(search) = &self.search {
                search.held().search.release();
            }
        }
    }
}
