//! Parses a document's bytes into its page, its clustering keys and its links.
//!
//! Invariant: a cell whose value stays the same is not written, so that an unchanged page
//! starts no further observers.

use std::sync::Arc;

use futures::future::try_join;
use percolator::{Change, Observer, Result, Transaction};

use super::row_url::row_url;
use crate::html::{self, ParsedPage, Skip};
use crate::index::latency::Latency;
use crate::records::{Keys, Links, Page, decode_content, encode};
use crate::tables::{CONTENT, EXPORT_PAGE, KEYS, LINKS, PAGE};

/// Observes `doc:content`.
#[derive(Debug)]
pub(super) struct Parse {
    latency: Arc<Latency>,
}

impl Parse {
    pub(super) fn new(latency: Arc<Latency>) -> Self {
        Parse { latency }
    }
}

impl Observer for Parse {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let url = row_url(change)?;
        self.latency.observed(&url);
        let columns = [&PAGE, &KEYS, &LINKS];
        // A store behind a network answers both reads at the same time.
        let content = async { tx.get(&change.table, &change.row, &CONTENT).await };
        let old = tx.get_row(&change.table, &change.row, columns);
        let (content, old) = try_join(content, old).await?;
        let content = content.map(|stored| decode_content(&stored)).transpose()?;
        let parsed = content.map(|content| parse(&url, &content));
        let (page, keys, links) = match &parsed {
            None => (None, None, None),
            Some(Err(skip)) => {
                let reason = skip.name().to_owned();
                // URLs are keys of the application, so they are logged at debug level only. The
                // command `webindex stats` counts skipped pages by their reasons.
                tracing::debug!(target: "webindex::parse", event = "skipped", url, reason = %skip);
                (Some(encode(&Page::Skipped { reason })), None, None)
            }
            Some(Ok(page)) => {
                let ParsedPage { title, text, hyperlinks, .. } = page;
                let (title, text) = (title.clone(), text.clone());
                let indexed = Page::Indexed { title, text, hyperlinks: *hyperlinks as u64 };
                let keys = encode(&Keys::of(page));
                (Some(encode(&indexed)), Some(keys), Some(encode(&Links::of(&page.links))))
            }
        };
        // Write only the cells that differ: an unchanged page must not start further
        // observers.
        let mut export = true;
        for ((column, old), new) in columns.into_iter().zip(old).zip([page, keys, links]) {
            if old == new {
                continue;
            }
            // The observers that follow new keys export the page themselves.
            export &= *column != KEYS;
            match new {
                Some(value) => tx.set(&change.table, &change.row, column, value)?,
                None => tx.delete(&change.table, &change.row, column)?,
            }
        }
        if export { tx.notify(&change.table, &change.row, &EXPORT_PAGE) } else { Ok(()) }
    }
}

/// Parses the document at `url`.
pub(crate) fn parse(url: &str, content: &[u8]) -> Result<ParsedPage, Skip> {
    let parsed = url::Url::parse(url).expect("row keys are canonical URLs, checked by row_url");
    html::parse(&parsed, content)
}
