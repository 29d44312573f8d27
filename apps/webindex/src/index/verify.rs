//! Verifies the index: computes everything again in one batch, and compares it with the
//! results of the observers.
//!
//! The batch uses only the stored documents and the ranks that the ranking job has stored. It
//! parses every document again, finds clusters by union-find, attaches every link, and
//! computes the content that the search index should have. It shares with the observers:
//!
//! * the parser,
//! * the rule that names the page for which a page stands,
//! * the choice of the indexed anchors,
//! * the formats of keys and records.
//!
//! The code that uses these is its own.
//!
//! One check does not depend on clusters. For each page that neither redirects nor declares
//! another, **the page is shown, or a page with equal title and text is shown for it.**
//!
//! Memory: some hundred bytes for each page, 32 for each cluster that has ever held in-links, and
//! 17 for each link (`verify/links.rs`).
//! Documents, texts and links are read from the store again each time they are needed.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use percolator::{Bytes, Column, RowKey, RowRange, Snapshot};

use self::batch::{Batch, Canonicals};
use self::links::{ExpectedLinks, Taken};
use crate::Error;
use crate::index::WebIndex;
use crate::observers::{Anchors, link_anchors};
use crate::records::{Links, Page, decode, decode_url};
use crate::search::IndexedPage;
use crate::tables::{
    CONTENT, ClusterId, FETCH, HOLDS, KEYS, LINKED, LINKS, LinkRow, MEMBER, PAGE, PLACED, Place,
    RANK, SHOWN, bucket_of, in_link_source, target_and_source,
};

mod batch;
mod links;

/// How many rows of in-links are read at a time. A page usually has enough anchors after a few
/// rows.
const ROWS_AT_ONCE: usize = 8;

/// How many pages' in-links are read at the same time. It bounds how many texts are in memory, and
/// how many rows of in-links.
const PAGES_AT_ONCE: usize = 32;

/// The most differences that a report lists. All are counted.
const NAMED_MAX: usize = 100;

/// The outcome of a verification.
///
/// See [`WebIndex`](crate::WebIndex) for an example.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct VerifyReport {
    /// Documents parsed again.
    pub documents: usize,
    /// Clusters of two or more pages.
    pub clusters: usize,
    /// Links that are attached, at home or forwarded.
    pub attached_links: usize,
    /// Pages that the search index should have.
    pub searchable: usize,
    /// Differences found.
    pub differences: usize,
    /// Descriptions of the first hundred differences.
    pub named: Vec<String>,
}

impl VerifyReport {
    /// Whether there was no difference.
    pub fn is_ok(&self) -> bool {
        self.differences == 0
    }

    fn differ(&mut self, what: impl FnOnce() -> String) {
        self.differences += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(what());
        }
    }
}

/// The content of the search index, by URL: the digest of the page, and its rank.
type Held = BTreeMap<String, (u128, f64)>;

type Cells = BTreeMap<Column, Bytes>;

impl WebIndex {
    /// Compares clusters, canonicals, in-links with their anchors, and the search index with
    /// the results of a batch over the stored documents. The index must be idle.
    ///
    /// # Errors
    /// Errors of the database and of the search index.
    pub async fn verify(&self) -> Result<VerifyReport, Error> {
        let snapshot = self.db.snapshot().await?;
        let mut report = VerifyReport::default();
        let mut batch = self.parse_all(&snapshot, &mut report).await?;
        self.compare_targets(&snapshot, &batch, &mut report).await?;
        let holding = self.compare_members(&snapshot, &mut batch, &mut report).await?;
        let canonicals = batch.canonicals(&mut report);
        self.compare_links(&snapshot, &batch, &canonicals, &holding, &mut report).await?;
        self.compare_search(&snapshot, &batch, &canonicals, &mut report).await?;
        Ok(report)
    }

    /// Parses every stored document, and compares its records.
    async fn parse_all(
        &self,
        snapshot: &Snapshot,
        report: &mut VerifyReport,
    ) -> Result<Batch, Error> {
        let mut batch = Batch::default();
        let columns = [CONTENT, FETCH, PAGE, KEYS, LINKS, MEMBER, LINKED, RANK];
        let mut scan = snapshot.scan(&self.tables.documents).columns(&columns);
        while let Some(row) = scan.next().await? {
            let url = String::from_utf8_lossy(row.row.as_bytes()).into_owned();
            let cells: Cells = row.cells.into_iter().collect();
            batch.add(url, &cells, report)?;
        }
        Ok(batch)
    }

    /// Compares the records of which pages stand for which address.
    async fn compare_targets(
        &self,
        snapshot: &Snapshot,
        batch: &Batch,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        let mut expected: BTreeSet<(String, String)> = BTreeSet::new();
        for (url, page) in &batch.pages {
            let Some(target) = &page.target else { continue };
            expected.insert((target.clone(), url.clone()));
            if !batch.pages.contains_key(target) && !batch.stood_for.contains(target) {
                report.differ(|| format!("{target} does not say that {url} stands for it"));
            }
        }
        let mut scan = snapshot.scan(&self.tables.by_target);
        while let Some(row) = scan.next().await? {
            let named = target_and_source(&row.row);
            let named = named.map(|(target, source)| (target.to_owned(), source.to_owned()));
            if !named.is_some_and(|named| expected.remove(&named)) {
                report.differ(|| format!("by_target {}: should not be there", row.row));
            }
        }
        for (target, source) in expected {
            report.differ(|| format!("by_target: {source} is missing, it stands for {target}"));
        }
        Ok(())
    }

    /// Compares the rows of the clusters with the pages' own records, and each cluster's shown page
    /// with its first member. Returns the clusters whose rows say that they hold in-links.
    async fn compare_members(
        &self,
        snapshot: &Snapshot,
        batch: &mut Batch,
        report: &mut VerifyReport,
    ) -> Result<BTreeSet<ClusterId>, Error> {
        let mut holding = BTreeSet::new();
        let places = batch.pages.iter().filter_map(|(url, page)| page.member.as_ref()?.place(url));
        let mut expected: BTreeSet<RowKey> = places.map(|place| place.key()).collect();
        // The cluster of the last cluster row, and the page that the row names.
        let mut named: Option<(ClusterId, String)> = None;
        let mut last: Option<(ClusterId, Option<String>)> = None;
        let mut scan = snapshot.scan(&self.tables.clusters);
        while let Some(row) = scan.next().await? {
            let Some(Place { cluster, url, .. }) = Place::parse(&row.row) else {
                let cluster = ClusterId::of_row(&row.row).filter(|id| id.row() == row.row);
                let cells: Cells = row.cells.into_iter().collect();
                holding.extend(cluster.filter(|_| cells.contains_key(&HOLDS)));
                let before = named.take();
                named = cluster.zip(decode_url(cells.get(&SHOWN).cloned())?);
                no_member(before, report);
                continue;
            };
            if !expected.remove(&row.row) {
                report.differ(|| format!("{url} should not be a member of {}", cluster.holder()));
            }
            if last.as_ref().is_none_or(|(id, _)| *id != cluster) {
                let shown = named.take_if(|(id, _)| *id == cluster).map(|(_, shown)| shown);
                if shown.as_ref() != Some(&url) {
                    report.differ(|| {
                        format!("{shown:?} is shown for {url}, the first of its cluster")
                    });
                }
                last = Some((cluster, shown));
            }
            if let Some((_, Some(shown))) = &last {
                batch.recorded.insert(url, shown.clone());
            }
        }
        no_member(named, report);
        for place in expected.iter().filter_map(Place::parse) {
            let Place { cluster, url, .. } = place;
            report.differ(|| format!("{url} is missing in the rows of {}", cluster.holder()));
        }
        Ok(holding)
    }

    /// Calls `visit` with each link of the stored documents: its row of in-links, its source,
    /// its anchors. A link to a duplicate is visited twice, because it is also attached to its
    /// target's cluster. The links come from the pages' records, which were compared with the
    /// documents before.
    async fn visit_links(
        &self,
        snapshot: &Snapshot,
        batch: &Batch,
        canonicals: &Canonicals<'_>,
        mut visit: impl FnMut(&LinkRow, &str, &[String]),
    ) -> Result<(), Error> {
        let mut scan = snapshot.scan(&self.tables.documents).columns([&LINKS]);
        while let Some(row) = scan.next().await? {
            let source = String::from_utf8_lossy(row.row.as_bytes());
            let bucket = bucket_of(&source);
            let links = row.cells.into_iter().next().map(|(_, value)| value);
            for (target, anchors) in decode::<Links>(links)?.unwrap_or_default().0 {
                let home = LinkRow::home(&target, bucket);
                if let Some(holder) = batch.holder(&target, canonicals) {
                    visit(&home.at(&holder), &source, &anchors);
                }
                visit(&home, &source, &anchors);
            }
        }
        Ok(())
    }

    async fn compare_links(
        &self,
        snapshot: &Snapshot,
        batch: &Batch,
        canonicals: &Canonicals<'_>,
        holding: &BTreeSet<ClusterId>,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        let mut expected = ExpectedLinks::default();
        let add = |row: &LinkRow, source: &str, anchors: &[String]| {
            expected.add(row, source, anchors);
        };
        self.visit_links(snapshot, batch, canonicals, add).await?;
        expected.seal();
        let mut scan = snapshot.scan(&self.tables.inlinks);
        let mut last_cluster = None;
        while let Some(row) = scan.next().await? {
            let Some(place) = LinkRow::parse(&row.row) else {
                report.differ(|| format!("inlinks {}: not a row of in-links", row.row));
                continue;
            };
            let cluster = ClusterId::of_holder(&place.holder);
            if cluster != last_cluster {
                last_cluster = cluster;
                if cluster.is_some_and(|cluster| !holding.contains(&cluster)) {
                    report.differ(|| {
                        format!("the row of {} does not say that it holds in-links", place.holder)
                    });
                }
            }
            let (mut found, mut placed) = (0, None);
            for (column, value) in &row.cells {
                match in_link_source(column) {
                    Some(source) => {
                        found += 1;
                        let taken = expected.take(&place, source, &link_anchors(value)?);
                        if taken == Taken::Unexpected {
                            report.differ(|| {
                                let (target, holder) = (&place.target, &place.holder);
                                format!(
                                    "in-links of {target} at {holder}: the entry does not match \
                                     {source}"
                                )
                            });
                        }
                    }
                    None if *column == PLACED => placed = decode_url(Some(value.clone()))?,
                    None => report.differ(|| format!("inlinks {}: column {column}", row.row)),
                }
            }
            report.attached_links += found;
            let holder = batch.holder(&place.target, canonicals);
            let stale = placed.is_some() && placed != holder;
            if stale || (place.is_home() && found > 0 && placed != holder) {
                report.differ(|| {
                    format!("in-links of {} are placed at {placed:?}, not {holder:?}", place.target)
                });
            }
        }
        if expected.missing() > 0 {
            let name = |row: &LinkRow, source: &str, anchors: &[String]| {
                if expected.is_missing(row, source, anchors) {
                    let LinkRow { holder, target, .. } = row;
                    report.differ(|| {
                        format!("in-links of {target} at {holder}: {source} is missing")
                    });
                }
            };
            self.visit_links(snapshot, batch, canonicals, name).await?;
        }
        Ok(())
    }

    /// Reads the anchors that are indexed with a shown page, from its in-links and its
    /// cluster's. Both were compared before.
    async fn anchors(
        &self,
        snapshot: &Snapshot,
        batch: &Batch,
        shown: &str,
    ) -> Result<Vec<String>, Error> {
        let mut anchors = Anchors::default();
        let member = batch.pages.get(shown).and_then(|page| page.member.as_ref());
        let cluster = member.and_then(|member| member.cluster()).map(|cluster| cluster.holder());
        for holder in [Some(shown.to_owned()), cluster].into_iter().flatten() {
            let mut range = RowRange::prefix(LinkRow::held_by(&holder));
            loop {
                let scan = snapshot.scan(&self.tables.inlinks).range(range.clone());
                let rows = scan.limit(ROWS_AT_ONCE).collect().await?;
                let cells = rows.iter().flat_map(|row| &row.cells);
                for (_, value) in cells.filter(|(column, _)| in_link_source(column).is_some()) {
                    if !anchors.add(link_anchors(value)?) {
                        return Ok(anchors.list);
                    }
                }
                let Some(last) = rows.last().filter(|_| rows.len() == ROWS_AT_ONCE) else { break };
                range = range.after(last.row.clone());
            }
        }
        Ok(anchors.list)
    }

    async fn compare_search(
        &self,
        snapshot: &Snapshot,
        batch: &Batch,
        canonicals: &Canonicals<'_>,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        let mut held = Held::new();
        self.search_index().await?.dump(|entry| {
            held.insert(entry.url, (entry.digest, entry.rank));
        })?;
        batch.every_text_is_shown(&held, report);
        let mut scan = snapshot.scan(&self.tables.documents).columns([&PAGE]);
        loop {
            let mut shown = Vec::new();
            while shown.len() < PAGES_AT_ONCE {
                let Some(row) = scan.next().await? else { break };
                let url = String::from_utf8_lossy(row.row.as_bytes()).into_owned();
                if canonicals.get(url.as_str()) != Some(&url.as_str()) {
                    continue;
                }
                let page = row.cells.into_iter().next().map(|(_, value)| value);
                if let Some(Page::Indexed { title, text, hyperlinks }) = decode(page)? {
                    let anchors = Vec::new();
                    shown.push((url, IndexedPage { title, text, hyperlinks, anchors }));
                }
            }
            if shown.is_empty() {
                break;
            }
            let anchors = shown.iter().map(|(url, _)| self.anchors(snapshot, batch, url));
            let anchors = try_join_all(anchors).await?;
            for ((url, expected), anchors) in shown.into_iter().zip(anchors) {
                report.searchable += 1;
                let rank = batch.pages.get(&url).map_or(0.0, |page| page.rank);
                let expected = IndexedPage { anchors, ..expected };
                compare_entry(&url, held.remove(&url), &expected, rank, report);
            }
        }
        for url in held.keys() {
            report.differ(|| format!("search: {url} should not be there"));
        }
        Ok(())
    }
}

/// Compares the entry of a shown page in the search index, if it has one, with the expected page.
fn compare_entry(
    url: &str,
    held: Option<(u128, f64)>,
    expected: &IndexedPage,
    rank: f64,
    report: &mut VerifyReport,
) {
    match held {
        None => report.differ(|| format!("search: {url} is missing")),
        Some((digest, _)) if digest != expected.digest() => {
            report.differ(|| format!("search: {url} has other text, links or anchors"));
        }
        // A page that was not ranked yet may have the rank of an earlier page at its address.
        Some((_, held)) if rank > 0.0 && held != rank => {
            report.differ(|| format!("search: {url} has rank {held}, not {rank}"));
        }
        Some(_) => {}
    }
}

/// Reports the page that a cluster without members shows.
fn no_member(named: Option<(ClusterId, String)>, report: &mut VerifyReport) {
    if let Some((cluster, url)) = named {
        report.differ(|| format!("{url} is shown for {}, which has no member", cluster.holder()));
    }
}
