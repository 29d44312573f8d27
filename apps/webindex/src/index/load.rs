//! Loading documents: one transaction each.

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

/// How many documents are loaded at a time beside this process's own observers.
const LOADED_AT_ONCE: usize = 4;
/// How many documents are loaded at a time for the observers of other processes: over a network,
/// where each waits for answers most of the time.
const SENT_AT_ONCE: usize = 32;
/// The slowest and the fastest pace, in pages a second.
const PACE_MIN: f64 = 0.001;
const PACE_MAX: f64 = 1e6;
/// How often a paced load looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many pages are looked at in one request, for what became of them.
const CHECKED_AT_ONCE: usize = 500;
/// The most skipped files that a report names; all are counted.
const NAMED_MAX: usize = 1_000;

/// What to load, and how.
///
/// ```
/// let options = webindex::LoadOptions { pages_per_s: Some(200.0), ..Default::default() };
/// assert!(options.exclude.is_empty());
/// ```
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Names directly below the directory that are left out.
    pub exclude: Vec<String>,
    /// At most this many pages.
    pub limit: Option<usize>,
    /// At most this many pages a second; as fast as it goes if not given.
    pub pages_per_s: Option<f64>,
    /// Whether pages below the base are removed whose files are gone.
    pub mirror: Option<Mirror>,
}

/// A file that was not loaded.
///
/// See [`LoadReport`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// The file or directory.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// What a load came to.
///
/// ```
/// let report = webindex::LoadReport::default();
/// assert_eq!(report.warnings, 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct LoadReport {
    /// Files found, with a name that pages have.
    pub found: usize,
    /// Pages that were new or had changed.
    pub loaded: usize,
    /// Pages that were stored already, with the same content.
    pub unchanged: usize,
    /// Bytes of the loaded pages.
    pub bytes: u64,
    /// Stored pages that were removed, because their file is no page any more.
    pub retracted: usize,
    /// Files and directories that were skipped.
    pub warnings: usize,
    /// The first thousand of them.
    pub skipped: Vec<Skipped>,
    /// Names to leave out that nothing directly below the directory has.
    pub unmatched: Vec<String>,
    /// What became of pages whose files are gone, if they were asked for.
    pub mirror: Option<MirrorReport>,
    /// Whether the load was stopped before its end.
    pub stopped: bool,
    /// Where the pages were loaded from.
    #[serde(skip)]
    site: Option<Site>,
    /// The pages that are stored as their files are now.
    #[serde(skip)]
    stored: Vec<Name>,
}

/// The path of a file below the directory. A site has many pages, so this is all that is held of
/// each of them.
pub(super) type Name = Box<Path>;

/// A directory that is loaded.
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

/// Watches a load from outside, and stops it.
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
    /// Documents handled so far.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Documents there are; zero until they are counted.
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Ends the work after the documents that are being handled.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Whether it was told to end.
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

/// What became of one file.
enum Loaded {
    New(Name, u64),
    Unchanged(Name),
    /// A file that is no page; and whether it was one when it was loaded before.
    Retracted(Skipped, bool),
    Unreadable(Skipped),
}

impl WebIndex {
    /// Loads a directory of HTML under a base URL; symlinks are further URLs. A file that cannot be
    /// loaded is counted and named, and the load goes on. A stored page whose file has become
    /// empty, binary or too large is removed; one whose file cannot be read stays. A load that was
    /// cut short is continued by loading again: pages that have not changed are left alone.
    ///
    /// The parser runs later, and may refuse further pages: see
    /// [`name_refused`](WebIndex::name_refused).
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be read at all, [`Error::OutOfRange`] for a pace
    /// that is none; those of the database.
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

    /// Adds to the report of a load the pages that the parser refuses. They are stored, and not
    /// indexed. The observers must have caught up: see [`wait`](WebIndex::wait).
    ///
    /// # Errors
    /// Those of the database.
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

    /// Stores a document, unless it is stored already with the same content.
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

    /// Removes a page; the observers retract all that it contributed. Returns whether it was
    /// stored. Links to it stay with the pages that they are on.
    ///
    /// # Errors
    /// [`Error::BadUrl`]; those of the database.
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

/// Walks a directory: the pages that it holds. The report gets the rest.
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
