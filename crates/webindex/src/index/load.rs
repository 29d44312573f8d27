//! Loading documents: one transaction each.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};

use crate::Error;
use crate::address::Base;
use crate::html;
use crate::index::WebIndex;
use crate::records::{Fetch, decode, encode, encode_content};
use crate::tables::{CONTENT, FETCH};
use crate::walk::{Found, Walk};

/// How many documents are loaded at a time beside this process's own observers.
const LOADED_AT_ONCE: usize = 4;
/// How many documents are loaded at a time for the observers of other processes: over a network, where
/// each waits for answers most of the time.
const SENT_AT_ONCE: usize = 32;
/// The slowest and the fastest pace, in pages a second.
const PACE_MIN: f64 = 0.001;
const PACE_MAX: f64 = 1e6;
/// How often a paced load looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
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
    /// Pages that were new or had changed.
    pub loaded: usize,
    /// Pages that were stored already, with the same content.
    pub unchanged: usize,
    /// Bytes of the loaded pages.
    pub bytes: u64,
    /// Files and directories that were skipped.
    pub warnings: usize,
    /// The first thousand of them.
    pub skipped: Vec<Skipped>,
    /// Whether the load was stopped before its end.
    pub stopped: bool,
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
    New(u64),
    Unchanged,
    Skipped(Skipped),
}

impl WebIndex {
    /// Loads a directory of HTML under a base URL; symlinks are further URLs. What cannot be loaded is
    /// counted and named, and the load goes on. A load that was cut short is continued by loading
    /// again: what is stored already is left alone.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be read at all, [`Error::OutOfRange`] for a pace that is
    /// none; those of the database.
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
        let exclude: Vec<&str> = options.exclude.iter().map(String::as_str).collect();
        let mut found = Vec::new();
        for entry in Walk::new(dir, base, &exclude)? {
            match entry {
                Ok(page) => found.push(page),
                Err(problem) => {
                    let path = dir.display().to_string();
                    report.skip(Skipped { path, reason: problem.to_string() });
                }
            }
        }
        found.truncate(options.limit.unwrap_or(usize::MAX));
        progress.begin(found.len());
        let started = tokio::time::Instant::now();
        let due = |index: usize| {
            let after = Duration::try_from_secs_f64(index as f64 / options.pages_per_s?).ok()?;
            started.checked_add(after)
        };
        let at_once = if self.runs_observers() { LOADED_AT_ONCE } else { SENT_AT_ONCE };
        let mut loads = stream::iter(found.into_iter().enumerate())
            .map(|(index, page)| async move {
                if let Some(due) = due(index) {
                    wait_until(due, progress).await;
                }
                match progress.is_stopped() {
                    true => Ok(None),
                    false => self.load_file(page).await.map(Some),
                }
            })
            .buffer_unordered(at_once);
        while let Some(loaded) = loads.next().await {
            progress.step(1);
            match loaded? {
                Some(Loaded::New(bytes)) => {
                    report.loaded += 1;
                    report.bytes += bytes;
                }
                Some(Loaded::Unchanged) => report.unchanged += 1,
                Some(Loaded::Skipped(skipped)) => report.skip(skipped),
                None => report.stopped = true,
            }
        }
        Ok(report)
    }

    async fn load_file(&self, page: Found) -> Result<Loaded, Error> {
        let skipped = |path: PathBuf, reason: String| {
            Ok(Loaded::Skipped(Skipped { path: path.display().to_string(), reason }))
        };
        let size = match std::fs::metadata(&page.path) {
            Ok(metadata) => metadata.len(),
            Err(error) => return skipped(page.path, error.to_string()),
        };
        if size > html::PAGE_BYTES_MAX as u64 {
            let bytes = usize::try_from(size).unwrap_or(usize::MAX);
            return skipped(page.path, html::Skip::TooLarge { bytes }.to_string());
        }
        let content = match std::fs::read(&page.path) {
            Ok(content) => content,
            Err(error) => return skipped(page.path, error.to_string()),
        };
        if let Err(skip) = html::screen(&content) {
            return skipped(page.path, skip.to_string());
        }
        let length = content.len() as u64;
        match self.store(&page.url, &content).await? {
            true => Ok(Loaded::New(length)),
            false => Ok(Loaded::Unchanged),
        }
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

    /// Deletes a document; its observers retract all it contributed.
    pub(crate) async fn remove(&self, url: &str) -> Result<(), Error> {
        let documents = &self.tables.documents;
        self.db
            .transact(async |mut tx| {
                tx.delete(documents, url, &FETCH)?;
                tx.delete(documents, url, &CONTENT)
            })
            .await?;
        Ok(())
    }
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
