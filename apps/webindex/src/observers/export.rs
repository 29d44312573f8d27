//! Feeds the search index with canonical pages, in batches.
//!
//! Each update has the batch's start timestamp as its sequence number. The search index keeps
//! the highest number that it has applied for each URL, deletions included. So a batch that is
//! delivered again after a crash changes nothing, and a late addition never brings a deleted
//! page back.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::try_join_all;
use percolator::admin::WeakClient;
use percolator::observe::BatchObserver;
use percolator::{Bytes, Change, Error, Result, RowKey, RowRange, Transaction};

use super::membership::ClusterRow;
use super::row_url::row_url;
use crate::index::latency::Latency;
use crate::records::{Page, decode};
use crate::search::generations::Generation;
use crate::search::{IndexedPage, Update};
use crate::tables::{EXPORT_ANCHORS, LinkRow, MEMBER, PAGE, Tables, in_link_source};
use crate::writer;

/// The most distinct anchors that are indexed with a page, in order of bucket, target and
/// source.
pub(crate) const ANCHORS_MAX: usize = 64;

/// How many rows of in-links are read at first, and at most at a time. Nine of ten pages have fewer
/// rows, and need one read. A popular page usually has enough anchors after a few rows. Otherwise
/// most of its links have the same anchors, and all rows are read: four times as many in each read.
const ROWS_AT_FIRST: usize = 16;
const ROWS_AT_ONCE: usize = 256;

/// How many pages are read at a time, each with its anchors. It bounds how many texts are in
/// memory both encoded and decoded.
const PAGES_AT_ONCE: usize = 32;

/// Observes `export-page` and `export-anchors`.
#[derive(Debug)]
pub(crate) struct Exporter {
    client: WeakClient,
    tables: Tables,
    shown: Generation,
    latency: Arc<Latency>,
}

impl Exporter {
    pub(super) fn new(
        client: WeakClient,
        tables: Tables,
        shown: Generation,
        latency: Arc<Latency>,
    ) -> Self {
        Exporter { client, tables, shown, latency }
    }

    /// Reads the state that the search index should have of a page, given the page's cell `page`
    /// and its cluster.
    async fn state(
        &self,
        tx: &Transaction,
        page: Option<Bytes>,
        cluster: Option<ClusterRow>,
        url: &str,
    ) -> Result<State> {
        // A page that is not settled yet is exported later, once it is settled.
        let Some(ClusterRow { id, shown, holds }) = cluster else { return Ok(State::Nothing) };
        if shown.as_deref() != Some(url) {
            return Ok(State::Duplicate);
        }
        let Some(Page::Indexed { title, text, hyperlinks }) = decode(page)? else {
            return Ok(State::Nothing);
        };
        let placed = holds.then(|| id.holder());
        let anchors = anchors_of(tx, &self.tables, url, placed).await?;
        Ok(State::Shown(IndexedPage { title, text, hyperlinks, anchors }))
    }

    /// Leaves out changes that the search index shows already. A page was exported after such a
    /// change for another reason, and was shown then. If it has become a duplicate since,
    /// `attach` notifies the home rows.
    async fn not_shown(&self, changes: &[Change]) -> Result<Vec<Change>> {
        let state = |change: &Change| Ok((row_url(change)?, change.commit_ts.as_u64()));
        let states: Vec<_> = changes.iter().map(state).collect::<Result<_>>()?;
        let search = self.shown.search.clone();
        let shown = tokio::task::spawn_blocking(move || search.shows(&states))
            .await
            .map_err(Error::application)?
            .map_err(not_applied)?;
        let changes = changes.iter().zip(shown).filter(|(_, is_shown)| !is_shown);
        Ok(changes.map(|(change, _)| change.clone()).collect())
    }

    /// Reads the state that the search index should have of each changed page, in order.
    async fn states(&self, tx: &Transaction, changes: &[Change]) -> Result<Vec<(String, State)>> {
        let mut states = Vec::with_capacity(changes.len());
        for changes in changes.chunks(PAGES_AT_ONCE) {
            let rows: Vec<RowKey> = changes.iter().map(|change| change.row.clone()).collect();
            let cells = tx.get_many(&self.tables.documents, &rows, [&PAGE, &MEMBER]).await?;
            let (mut pages, mut members) = (Vec::new(), Vec::new());
            for mut of_page in cells {
                members.push(of_page.pop().flatten());
                pages.push(of_page.pop().flatten());
            }
            let clusters = self.tables.clusters_of(tx, members).await?;
            let urls: Vec<String> = changes.iter().map(row_url).collect::<Result<_>>()?;
            let of = urls.iter().zip(pages).zip(clusters);
            let of = of.map(|((url, page), cluster)| self.state(tx, page, cluster, url));
            let of = try_join_all(of).await?;
            states.extend(urls.into_iter().zip(of));
        }
        Ok(states)
    }

    /// Returns the update that a change makes necessary, if any.
    async fn update(
        &self,
        tx: &mut Transaction,
        change: &Change,
        url: String,
        state: State,
    ) -> Result<Option<Update>> {
        let seq = tx.start_ts().as_u64();
        let only_anchors = change.column == EXPORT_ANCHORS;
        if only_anchors && matches!(state, State::Duplicate) {
            self.tables.notify_homes(tx, &url).await?;
        }
        match state {
            State::Shown(page) => Ok(Some(Update { url, seq, page: Some(page) })),
            // The change that took the page out of the index has notified `export-page`
            // itself.
            _ if only_anchors => Ok(None),
            State::Nothing | State::Duplicate => Ok(Some(Update { url, seq, page: None })),
        }
    }
}

/// The state of a URL in the search index.
enum State {
    Shown(IndexedPage),
    /// Another page of its cluster is shown.
    Duplicate,
    /// The URL is not a page of the index.
    Nothing,
}

/// Reads the distinct anchors attached to the page that is shown for a cluster, up to
/// [`ANCHORS_MAX`]. The anchors of links to the page itself come first. `placed` is the cluster's
/// holder, if in-links were placed there.
pub(crate) async fn anchors_of(
    tx: &Transaction,
    tables: &Tables,
    shown: &str,
    placed: Option<String>,
) -> Result<Vec<String>> {
    let mut anchors = Anchors::default();
    for holder in [Some(shown), placed.as_deref()].into_iter().flatten() {
        let mut range = RowRange::prefix(LinkRow::held_by(holder));
        let mut limit = ROWS_AT_FIRST;
        loop {
            let scan = tx.scan(&tables.inlinks).range(range.clone()).limit(limit);
            let rows = scan.collect().await?;
            let Some(last) = rows.last() else { break };
            range = range.after(last.row.clone());
            let is_end = rows.len() < limit;
            limit = (4 * limit).min(ROWS_AT_ONCE);
            let links = rows.iter().flat_map(|row| &row.cells);
            for (_, value) in links.filter(|(column, _)| in_link_source(column).is_some()) {
                if !anchors.add(decode::<Vec<String>>(Some(value.clone()))?.unwrap_or_default()) {
                    return Ok(anchors.list);
                }
            }
            if is_end {
                break;
            }
        }
    }
    Ok(anchors.list)
}

/// A bounded list of distinct anchors, in order, as they are indexed.
#[derive(Debug, Default)]
pub(crate) struct Anchors {
    seen: BTreeSet<String>,
    pub(crate) list: Vec<String>,
}

impl Anchors {
    /// Adds a link's anchors. Returns `false` if there was no more room.
    pub(crate) fn add(&mut self, anchors: Vec<String>) -> bool {
        for anchor in anchors {
            if self.list.len() >= ANCHORS_MAX {
                return false;
            }
            if self.seen.insert(anchor.clone()) {
                self.list.push(anchor);
            }
        }
        true
    }
}

impl BatchObserver for Exporter {
    async fn observe(&self, tx: &mut Transaction, changes: &[Change]) -> Result<()> {
        writer::fence(tx, &self.tables, self.shown.number).await?;
        let seq = tx.start_ts().as_u64();
        let changes = self.not_shown(changes).await?;
        let mut batch = Vec::with_capacity(changes.len());
        let states = self.states(tx, &changes).await?;
        for (change, (url, state)) in changes.iter().zip(states) {
            batch.extend(self.update(tx, change, url, state).await?);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let urls: Vec<String> = batch.iter().map(|update| update.url.clone()).collect();
        tracing::debug!(target: "webindex::export", event = "export_began", seq, changes = urls.len());
        sync_first(&self.client).await?;
        let search = self.shown.search.clone();
        let applied = tokio::task::spawn_blocking(move || search.apply(batch))
            .await
            .map_err(Error::application)?
            .map_err(not_applied)?;
        tracing::debug!(
            target: "webindex::export", event = "exported", seq, changes = urls.len(), ?applied,
        );
        for url in &urls {
            tracing::debug!(target: "webindex::export", event = "exported_page", seq, url);
            self.latency.searchable(url);
        }
        Ok(())
    }
}

/// Syncs the store before the search index is written. The search index syncs its own files.
/// Otherwise, with a store that does not sync each commit, a power cut could leave the search
/// index ahead. It would show pages that are not stored.
pub(super) async fn sync_first(client: &WeakClient) -> Result<()> {
    match client.upgrade() {
        Some(client) => client.sync().await,
        None => Err(Error::Closed),
    }
}

/// Classifies a failure to apply a batch. If another process writes to the search index or the
/// disk is full, the changes are not at fault. They wait until the index can be written.
fn not_applied(error: crate::Error) -> Error {
    match error {
        crate::Error::IndexInUse { .. } | crate::Error::IndexFull { .. } => {
            Error::Unavailable(error.to_string())
        }
        error => Error::application(error),
    }
}

/// Decodes the anchors of a link.
pub(crate) fn link_anchors(value: &Bytes) -> Result<Vec<String>> {
    Ok(decode(Some(value.clone()))?.unwrap_or_default())
}
