//! Export: feeds the search index with canonical pages, in batches.
//!
//! Each update carries the batch's start timestamp as its sequence number, and the search index
//! keeps the highest it has applied for each URL, deletions included: a batch that a crash delivers
//! again changes nothing, and a late addition never brings a deleted page back.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::try_join_all;
use percolator::admin::WeakClient;
use percolator::observe::BatchObserver;
use percolator::{Bytes, Change, Error, Result, RowKey, RowRange, Transaction};

use super::row_url::row_url;
use crate::index::latency::Latency;
use crate::records::{Member, Page, decode};
use crate::search::{IndexedPage, SearchIndex, Update};
use crate::tables::{ClusterId, EXPORT_ANCHORS, LinkRow, MEMBER, PAGE, Tables, in_link_source};

/// The most distinct anchors that are indexed with a page; in order of bucket, target and source.
pub(crate) const ANCHORS_MAX: usize = 64;

/// How many rows of in-links are read at a time; a page has enough anchors after a few.
const ROWS_AT_ONCE: usize = 8;

/// How many pages are read at a time, each with its anchors. Only so many are held with their text
/// in both forms, stored and decoded.
const PAGES_AT_ONCE: usize = 32;

/// Observes `export-page` and `export-anchors`.
#[derive(Debug)]
pub(crate) struct Exporter {
    client: WeakClient,
    tables: Tables,
    search: Arc<SearchIndex>,
    latency: Arc<Latency>,
}

impl Exporter {
    pub(super) fn new(
        client: WeakClient,
        tables: Tables,
        search: Arc<SearchIndex>,
        latency: Arc<Latency>,
    ) -> Self {
        Exporter { client, tables, search, latency }
    }

    /// Reads what the search index should hold of a page whose cells `page` and `member` are given.
    /// A page that is not settled yet is exported once it is.
    async fn state(&self, tx: &Transaction, cells: Vec<Option<Bytes>>, url: &str) -> Result<State> {
        let [page, member] = &cells[..] else { return Ok(State::Nothing) };
        let member: Option<Member> = decode(member.clone())?;
        let Some(cluster) = member.and_then(|member| member.cluster()) else {
            return Ok(State::Nothing);
        };
        if self.tables.shown(tx, cluster).await?.as_deref() != Some(url) {
            return Ok(State::Duplicate);
        }
        let page: Option<Page> = decode(page.clone())?;
        let Some(Page::Indexed { title, text, hyperlinks }) = page else {
            return Ok(State::Nothing);
        };
        let anchors = anchors_of(tx, &self.tables, url, cluster).await?;
        Ok(State::Shown(IndexedPage { title, text, hyperlinks, anchors }))
    }

    /// Reads what the search index should hold of the changed pages, in their order.
    async fn states(&self, tx: &Transaction, changes: &[Change]) -> Result<Vec<(String, State)>> {
        let mut states = Vec::with_capacity(changes.len());
        for changes in changes.chunks(PAGES_AT_ONCE) {
            let rows: Vec<RowKey> = changes.iter().map(|change| change.row.clone()).collect();
            let columns = [PAGE, MEMBER];
            let pages = tx.get_many(&self.tables.documents, &rows, &columns).await?;
            let urls: Vec<String> = changes.iter().map(row_url).collect::<Result<_>>()?;
            let of = urls.iter().zip(pages).map(|(url, cells)| self.state(tx, cells, url));
            let of = try_join_all(of).await?;
            states.extend(urls.into_iter().zip(of));
        }
        Ok(states)
    }

    /// The update that a change makes necessary, if any.
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
            // Whatever took it out of the index has told so itself.
            _ if only_anchors => Ok(None),
            State::Nothing | State::Duplicate => Ok(Some(Update { url, seq, page: None })),
        }
    }
}

/// What there is to show of a URL.
enum State {
    Shown(IndexedPage),
    /// Another page of its cluster is shown.
    Duplicate,
    /// It is no page of the index.
    Nothing,
}

/// The distinct anchors attached to the page shown for a cluster, up to [`ANCHORS_MAX`]: those of
/// the page itself first.
pub(crate) async fn anchors_of(
    tx: &Transaction,
    tables: &Tables,
    shown: &str,
    cluster: ClusterId,
) -> Result<Vec<String>> {
    let mut anchors = Anchors::default();
    for holder in [shown, &cluster.holder()] {
        let mut range = RowRange::prefix(LinkRow::held_by(holder));
        loop {
            let scan = tx.scan(&tables.inlinks).range(range.clone()).limit(ROWS_AT_ONCE);
            let rows = scan.collect().await?;
            let Some(last) = rows.last() else { break };
            range = range.after(last.row.clone());
            let links = rows.iter().flat_map(|row| &row.cells);
            for (_, value) in links.filter(|(column, _)| in_link_source(column).is_some()) {
                if !anchors.add(decode::<Vec<String>>(Some(value.clone()))?.unwrap_or_default()) {
                    return Ok(anchors.list);
                }
            }
        }
    }
    Ok(anchors.list)
}

/// Anchors as they are indexed: distinct, in order, bounded.
#[derive(Debug, Default)]
pub(crate) struct Anchors {
    seen: BTreeSet<String>,
    pub(crate) list: Vec<String>,
}

impl Anchors {
    /// Adds a link's anchors; `false` once there is no more room.
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
        let seq = tx.start_ts().as_u64();
        let mut batch = Vec::with_capacity(changes.len());
        let states = self.states(tx, changes).await?;
        for (change, (url, state)) in changes.iter().zip(states) {
            batch.extend(self.update(tx, change, url, state).await?);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let urls: Vec<String> = batch.iter().map(|update| update.url.clone()).collect();
        tracing::debug!(target: "webindex::export", event = "export_began", seq, changes = urls.len());
        sync_first(&self.client).await?;
        let search = self.search.clone();
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

/// Syncs the store before the search index is written. The search index syncs its own files, and a
/// power cut must not leave it ahead of a store that does not sync each commit: it would show pages
/// that nobody has loaded.
pub(super) async fn sync_first(client: &WeakClient) -> Result<()> {
    match client.upgrade() {
        Some(client) => client.sync().await,
        None => Err(Error::Closed),
    }
}

/// That another process writes says nothing of the changes: they are for it. Nor does a full disk:
/// they wait.
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
