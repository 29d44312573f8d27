//! Applies a deterministic recrawl: edits some pages, deletes some, and stores some again
//! unchanged.

use crate::Error;
use crate::index::{Progress, WebIndex};
use crate::records::decode_content;
use crate::recrawl::{Action, edit, plan, prng_for};
use crate::tables::CONTENT;

/// The outcome of a recrawl.
///
/// ```
/// assert_eq!(webindex::RecrawlReport::default().edited, 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct RecrawlReport {
    /// Pages stored before the recrawl.
    pub pages: usize,
    /// Pages edited.
    pub edited: usize,
    /// Pages deleted.
    pub deleted: usize,
    /// Pages stored again unchanged.
    pub unchanged: usize,
    /// Whether the recrawl was stopped before its end.
    pub stopped: bool,
}

impl WebIndex {
    /// Recrawls `pct` percent of the stored pages. The `seed` decides which pages they are,
    /// and what happens to each.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `pct` is not a percentage, and errors of the database.
    pub async fn recrawl(
        &self,
        pct: f64,
        seed: u64,
        progress: &Progress,
    ) -> Result<RecrawlReport, Error> {
        let snapshot = self.db.snapshot().await?;
        let documents = &self.tables.documents;
        let mut urls = Vec::new();
        let mut scan = snapshot.scan(documents).columns([&crate::tables::FETCH]);
        while let Some(row) = scan.next().await? {
            urls.push(String::from_utf8_lossy(row.row.as_bytes()).into_owned());
        }
        let steps = plan(&urls, pct, seed)?;
        progress.begin(steps.len());
        let mut report = RecrawlReport { pages: urls.len(), ..RecrawlReport::default() };
        for step in &steps {
            if progress.is_stopped() {
                report.stopped = true;
                break;
            }
            let url = step.url;
            let Some(content) = snapshot.get(documents, url, &CONTENT).await? else { continue };
            match step.action {
                Action::Edit => {
                    let content = decode_content(&content)?;
                    let edited = edit(&content, &urls, &mut prng_for(url, seed));
                    self.store(url, &edited).await?;
                    report.edited += 1;
                }
                Action::Delete => {
                    self.remove(url).await?;
                    report.deleted += 1;
                }
                Action::Unchanged => {
                    self.rewrite(url).await?;
                    report.unchanged += 1;
                }
            }
            progress.step(1);
        }
        Ok(report)
    }

    /// Stores a document again unchanged, like a crawler that does not compare.
    async fn rewrite(&self, url: &str) -> Result<(), Error> {
        let documents = &self.tables.documents;
        self.latency.loading(url);
        // Store the content that this transaction has read: a document that was loaded or
        // deleted since the plan was made stays as it is.
        self.db
            .named("recrawl")
            .transact(async |mut tx| match tx.get(documents, url, &CONTENT).await? {
                Some(content) => tx.set(documents, url, &CONTENT, content),
                None => Ok(()),
            })
            .await?;
        Ok(())
    }
}
