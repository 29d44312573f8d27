//! Loads documents from a directory, each in its own transaction.
//!
//! A load can be interrupted at any time and repeated: a document with unchanged content is
//! not stored again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use percolator::RowKey;

use crate::Error;
use crate::address::{Base, canonicalize};
use crate::html;
use crate::index::WebIndex;
use crate::index::mirror::{Mirror, MirrorReport};
use crate::records::{Fetch, Page, decode, encode, encode_content};
use crate::tables::{CONTENT, FETCH, KEYS, PAGE};
use crate::walk::Walk;

/// How many documents are loaded at a time if the observers run in this process.
const LOADED_AT_ONCE: usize = 4;
/// How many documents are loaded at a time if the observers run in other processes. Then the
/// load goes over a network, and each document waits for answers most of the time.
const SENT_AT_ONCE: usize = 32;
/// The slowest and the fastest pace, in pages per second.
const PACE_MIN: f64 = 0.001;
const PACE_MAX: f64 = 1e6;
/// How often a paced load checks whether it must stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many pages one request checks for refusals by the parser.
const CHECKED_AT_ONCE: usize = 500;
/// The most skipped files that a report lists. All are counted.
const NAMED_MAX: usize = 1_000;

/// The options of a load.
///
/// ```
/// let options = webindex::LoadOptions { pages_per_s: Some(200.0), ..Default::default() };
/// assert!(options.exclude.is_empty());
/// ```
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Names directly below the directory that are left out.
    pub exclude: Vec<String>,
    /// The largest number of pages to load.
    pub limit: Option<usize>,
    /// The largest number of pages per second. `None` means no bound.
    pub pages_per_s: Option<f64>,
    /// Whether, and how many, stored pages below the base are removed if their files are gone.
    pub mirror: Option<Mirror>,
}

/// A file that was not loaded.
///
/// See [`LoadReport`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// The file or directory.
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// The outcome of a load.
///
/// ```
/// let report = webindex::LoadReport::default();
/// assert_eq!(report.warnings, 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct LoadReport {
    /// Files found that have the name of a page.
    pub found: usize,
    /// Pages that were new or had changed.
    pub loaded: usize,
    /// Pages that were already stored with the same content.
    pub unchanged: usize,
    /// The bytes of the loaded pages.
    pub bytes: u64,
    /// Stored pages that were removed, because their files are no longer pages.
    pub retracted: usize,
    /// Files and directories that were skipped.
    pub warnings: usize,
    /// The first thousand skipped files and directories.
    pub skipped: Vec<Skipped>,
    /// Excluded names that no entry directly below the directory has.
    pub unmatched: Vec<String>,
    /// The outcome of removing pages whose files are gone, if it was requested.
    pub mirror: Option<MirrorReport>,
    /// Whether the load was stopped before its end.
    pub stopped: bool,
    /// The directory that was loaded.
    #[serde(skip)]
    site: Option<Site>,
    /// The pages that are stored with their files' present content.
    #[serde(skip)]
    stored: Vec<Name>,
}

/// The path of a file below the directory. Only this is kept for each page, because a site may
/// have very many.
pub(super) type Name = Box<Path>;

/// A directory that is being loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    dir: PathBuf,
    base: Base,
}

impl Site {
    fn path(&self, name: &Name) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn url(&self, name: &Name) -> String {
        self.base.url_of(name).expect("the walk yields paths below its directory")
    }
}

/// Reports the progress of a load to another task, which can also stop the load.
///
/// ```
/// let progress = webindex::Progress::default();
/// progress.stop();
/// assert!(progress.is_stopped() && progress.done() == 0);
/// ```
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicUsize,
    total: AtomicUsize,
    stopped: AtomicBool,
}

impl Progress {
    /// Returns how many documents were handled so far.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns how many documents there are. Zero until they are counted.
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Ends the work after the documents that are being handled.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Whether [`stop`](Progress::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    pub(crate) fn begin(&self, total: usize) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
    }

    pub(crate) fn step(&self, n: usize) {
        self.done.fetch_add(n, Ordering::Relaxed);
    }
}

/// The outcome of loading one file.
enum Loaded {
    New(Name, u64),
    Unchanged(Name),
    /// A file that is not a page, and whether a page was stored for it before.
    Retracted(Skipped, bool),
    Unreadable(Skipped),
}

impl WebIndex {
    /// Loads a directory of HTML under a base URL. Symlinks are further URLs. A file that
    /// cannot be loaded is counted and reported, and the load goes on. A stored page is
    /// removed if its file has become empty, binary or too large. It stays if its file cannot
    /// be read. To continue an interrupted load, load again: unchanged pages are left alone.
    ///
    /// The parser runs later, and may refuse further pages: see
    /// [`name_refused`](WebIndex::name_refused).
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be read at all, [`Error::OutOfRange`] if the pace
    /// is out of range, and errors of the database.
    pub async fn load(
        &self,
        dir: &Path,
        base: &Base,
        options: &LoadOptions,
        progress: &Progress,
    ) -> Result<LoadReport, Error> {
        if let Some(rate) = options.pages_per_s.filter(|rate| !(PACE_MIN..=PACE_MAX).contains(rate))
        {
            let allowed = format!("{PACE_MIN} to {PACE_MAX}");
            let given = rate.abs() as u64;
            return Err(Error::OutOfRange { what: "the number of pages a second", given, allowed });
        }
        let mut report = LoadReport::default();
        let site = Site { dir: dir.to_path_buf(), base: base.clone() };
        let site = &site;
        let mut found = find(site, options, &mut report)?;
        let mirror = options.mirror.map(|mirror| mirror.of(&report, options, site, &found));
        found.truncate(options.limit.unwrap_or(usize::MAX));
        progress.begin(found.len());
        let started = tokio::time::Instant::now();
        let due = |index: usize| {
            let after = Duration::try_from_secs_f64(index as f64 / options.pages_per_s?).ok()?;
            started.checked_add(after)
        };
        let at_once = if self.runs_observers() { LOADED_AT_ONCE } else { SENT_AT_ONCE };
        let mut loads = stream::iter(found.into_iter().enumerate())
            .map(|(index, name)| async move {
                if let Some(due) = due(index) {
                    wait_until(due, progress).await;
                }
                if progress.is_stopped() {
                    Ok(None)
                } else {
                    self.load_file(site, name).await.map(Some)
                }
            })
            .buffer_unordered(at_once);
        while let Some(loaded) = loads.next().await {
            progress.step(1);
            match loaded? {
                Some(Loaded::New(name, bytes)) => {
                    report.loaded += 1;
                    report.bytes += bytes;
                    report.stored.push(name);
                }
                Some(Loaded::Unchanged(name)) => {
                    report.unchanged += 1;
                    report.stored.push(name);
                }
                Some(Loaded::Retracted(skipped, was_stored)) => {
                    report.retracted += usize::from(was_stored);
                    report.skip(skipped);
                }
                Some(Loaded::Unreadable(skipped)) => report.skip(skipped),
                None => report.stopped = true,
            }
        }
        drop(loads);
        report.site = Some(site.clone());
        if let Some(mirror) = mirror {
            report.mirror = Some(self.mirror(base, mirror, &report, progress).await?);
        }
        Ok(report)
    }

    async fn load_file(&self, site: &Site, name: Name) -> Result<Loaded, Error> {
        let (path, url) = (site.path(&name), site.url(&name));
        let skipped = |reason: String| Skipped { path: path.display().to_string(), reason };
        let size = match std::fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) => return Ok(Loaded::Unreadable(skipped(error.to_string()))),
        };
        let mut refused = None;
        let mut content = Vec::new();
        if size > html::PAGE_BYTES_MAX as u64 {
            let bytes = usize::try_from(size).unwrap_or(usize::MAX);
            refused = Some(html::Skip::TooLarge { bytes });
        } else {
            content = match std::fs::read(&path) {
                Ok(content) => content,
                Err(error) => return Ok(Loaded::Unreadable(skipped(error.to_string()))),
            };
            refused = refused.or(html::screen(&content).err());
        }
        if let Some(skip) = refused {
            let was_stored = self.remove(&url).await?;
            return Ok(Loaded::Retracted(skipped(skip.to_string()), was_stored));
        }
        let length = content.len() as u64;
        if self.store(&url, &content).await? {
            Ok(Loaded::New(name, length))
        } else {
            Ok(Loaded::Unchanged(name))
        }
    }

    /// Adds the pages that the parser has refused to the report of a load. They are stored,
    /// but not indexed. The observers must have caught up: see [`wait`](WebIndex::wait).
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn name_refused(&self, report: &mut LoadReport) -> Result<(), Error> {
        let snapshot = self.db.snapshot().await?;
        let documents = &self.tables.documents;
        let Some(site) = report.site.take() else { return Ok(()) };
        for names in std::mem::take(&mut report.stored).chunks(CHECKED_AT_ONCE) {
            let rows: Vec<RowKey> = names.iter().map(|name| site.url(name).into()).collect();
            let keys = snapshot.get_many(documents, &rows, &[KEYS]).await?;
            let pages = names.iter().zip(rows).zip(keys);
            for ((name, row), _) in pages.filter(|(_, keys)| keys[0].is_none()) {
                let record = snapshot.get(documents, row, &PAGE).await?;
                if let Some(Page::Skipped { reason }) = decode(record)? {
                    let path = site.path(name).display().to_string();
                    report.skip(Skipped { path, reason: format!("not indexed: {reason}") });
                }
            }
        }
        Ok(())
    }

    /// Stores a document, unless it is already stored with the same content.
    pub(crate) async fn store(&self, url: &str, content: &[u8]) -> Result<bool, Error> {
        self.db.admit().await?;
        let content_hash = *blake3::hash(content).as_bytes();
        let stored_content = encode_content(content);
        let loaded_ms = self.db.runtime().wall_ms();
        let documents = &self.tables.documents;
        self.latency.loading(url);
        let stored = self
            .db
            .named("load")
            .transact(async |mut tx| {
                let old: Option<Fetch> = decode(tx.get(documents, url, &FETCH).await?)?;
                if old.is_some_and(|old| old.content_hash == content_hash) {
                    return Ok(false);
                }
                let fetch = Fetch { content_hash, loaded_ms };
                tx.set(documents, url, &FETCH, encode(&fetch))?;
                tx.set(documents, url, &CONTENT, stored_content.clone())?;
                Ok(true)
            })
            .await?;
        Ok(stored)
    }

    /// Removes a page. The observers then remove everything that was derived from it. Returns
    /// whether the page was stored. Links to it stay with the pages that they are on.
    ///
    /// # Errors
    /// [`Error::BadUrl`] if `url` is not a page's URL, and errors of the database.
    pub async fn remove(&self, url: &str) -> Result<bool, Error> {
        let url = canonicalize(url)?;
        let documents = &self.tables.documents;
        let removed = self
            .db
            .named("remove")
            .transact(async |mut tx| {
                if tx.get(documents, url.as_str(), &FETCH).await?.is_none() {
                    return Ok(false);
                }
                tx.delete(documents, url.as_str(), &FETCH)?;
                tx.delete(documents, url.as_str(), &CONTENT)?;
                Ok(true)
            })
            .await?;
        Ok(removed)
    }
}

/// Walks a directory and returns its pages. Everything else goes into the report.
fn find(site: &Site, options: &LoadOptions, report: &mut LoadReport) -> Result<Vec<Name>, Error> {
    let exclude: Vec<&str> = options.exclude.iter().map(String::as_str).collect();
    let mut found = Vec::new();
    let mut walk = Walk::new(&site.dir, &site.base, &exclude)?;
    report.unmatched = walk.unmatched().to_vec();
    for entry in &mut walk {
        match entry {
            Ok(page) => found.push(page.name.into()),
            Err(problem) => report.skip(Skipped {
                path: problem.path().display().to_string(),
                reason: problem.to_string(),
            }),
        }
    }
    report.found = found.len();
    Ok(found)
}

async fn wait_until(due: tokio::time::Instant, progress: &Progress) {
    while !progress.is_stopped() && tokio::time::Instant::now() < due {
        tokio::time::sleep_until(due.min(tokio::time::Instant::now() + LOOK_EVERY)).await;
    }
}

impl LoadReport {
    fn skip(&mut self, skipped: Skipped) {
        self.warnings += 1;
        if self.skipped.len() < NAMED_MAX {
            self.skipped.push(skipped);
        }
    }
}
