//! Removes stored pages whose files are gone, after a load.
//!
//! A page is removed because the walk has not found its file. So nothing is removed after a
//! walk that may have missed files. Nothing is removed either if suspiciously many files are
//! missing: then the directory is more likely wrong than the index. An address that is known
//! only as a link's target is not stored, and stays.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt, stream};

use crate::Error;
use crate::address::Base;
use crate::index::load::{Name, Site};
use crate::index::{LoadOptions, LoadReport, Progress, WebIndex};
use crate::tables::FETCH;

/// How many pages are removed at a time.
const REMOVED_AT_ONCE: usize = 16;
/// The share of the stored pages that may be removed without [`Mirror::All`], as a divisor.
const TENTH: usize = 10;

/// How many pages a mirroring load may remove.
///
/// ```
/// use webindex::{LoadOptions, Mirror};
///
/// let options = LoadOptions { mirror: Some(Mirror::ATenth), ..Default::default() };
/// assert_ne!(options.mirror, Some(Mirror::All));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirror {
    /// At most a tenth of the pages stored below the base. If more files are gone, no page is
    /// removed.
    ATenth,
    /// All pages whose files are gone.
    All,
}

/// The outcome of removing stored pages whose files are gone.
///
/// See [`LoadReport`].
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct MirrorReport {
    /// Pages stored below the base.
    pub stored: usize,
    /// How many of these pages have no file any more.
    pub gone: usize,
    /// How many pages were removed.
    pub removed: usize,
    /// The reason why no page was removed, and the remedy, if the removal was refused.
    pub refused: Option<String>,
}

/// The removal that follows a load.
#[derive(Debug)]
pub(super) struct Plan {
    mirror: Mirror,
    urls: HashSet<String>,
    refused: Option<String>,
}

impl Mirror {
    /// Plans the removal after a walk that has found the pages `found`.
    pub(super) fn of(
        self,
        report: &LoadReport,
        options: &LoadOptions,
        site: &Site,
        found: &[Name],
    ) -> Plan {
        let excluded = options.exclude.len() - report.unmatched.len();
        let refused = if let Some(problem) = report.skipped.first() {
            let reason = &problem.reason;
            Some(format!("the directory was not read completely ({reason}); correct the cause"))
        } else if excluded > 0 {
            Some("--exclude left out a part of the directory; load the whole directory".to_owned())
        } else if options.limit.is_some_and(|limit| limit < found.len()) {
            Some("--limit left out a part of the directory; load the whole directory".to_owned())
        } else if found.is_empty() {
            Some("the directory holds no page; check that it is the right one".to_owned())
        } else {
            None
        };
        let urls = found.iter().map(|name| site.url(name)).collect();
        Plan { mirror: self, urls, refused }
    }
}

impl WebIndex {
    /// Removes the pages below a base that the walk has not found.
    pub(super) async fn mirror(
        &self,
        base: &Base,
        plan: Plan,
        load: &LoadReport,
        progress: &Progress,
    ) -> Result<MirrorReport, Error> {
        let snapshot = self.db.snapshot().await?;
        let mut report = MirrorReport { refused: plan.refused, ..MirrorReport::default() };
        let mut gone = Vec::new();
        // The base ends in `/`, so the prefix excludes siblings whose names merely begin
        // alike.
        let scan = snapshot.scan(&self.tables.documents).prefix(base.as_str());
        let mut scan = scan.columns([&FETCH]);
        while let Some(row) = scan.next().await? {
            report.stored += 1;
            let url = String::from_utf8_lossy(row.row.as_bytes());
            if !plan.urls.contains(&*url) {
                gone.push(url.into_owned());
            }
        }
        report.gone = gone.len();
        if load.stopped {
            report.refused = Some("the load was stopped before its end; load again".to_owned());
        } else if plan.mirror == Mirror::ATenth && gone.len() * TENTH > report.stored {
            let too_many = || {
                format!(
                    "{} of {} stored pages would be removed, which is more than a tenth; check the \
                     directory and the base, or give --yes",
                    gone.len(),
                    report.stored
                )
            };
            report.refused = report.refused.take().or_else(|| Some(too_many()));
        }
        if report.refused.is_some() {
            return Ok(report);
        }
        progress.begin(gone.len());
        let removals = stream::iter(gone).map(|url| async move {
            if progress.is_stopped() { Ok(false) } else { self.remove(&url).await }
        });
        let mut removals = removals.buffer_unordered(REMOVED_AT_ONCE);
        while let Some(removed) = removals.try_next().await? {
            progress.step(1);
            report.removed += usize::from(removed);
        }
        Ok(report)
    }
}
