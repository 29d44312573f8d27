//! Reads the index: searches, a page, a cluster, and the counts of the whole.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use percolator::admin::CellName;
use percolator::{Bytes, Column, Snapshot};

use crate::Error;
use crate::address::canonicalize;
use crate::index::WebIndex;
use crate::observers::link_anchors;
use crate::records::{Fetch, Links, Member, Page, decode, decode_rank};
use crate::search::{Found, Hit};
use crate::tables::{
    CONTENT, ClusterId, FETCH, KEYS, LINKED, LINKS, LinkRow, MEMBER, PAGE, PLACE, Place, RANK,
    in_link_source,
};
use crate::writer::{self, WriterView};

/// The most in-links that a page's view lists. All are counted.
const ANCHORS_SHOWN: usize = 100;
/// For how many hits the links are counted at once. A row of links has up to some MiB.
const COUNTED_AT_ONCE: usize = 8;

/// A page of the index.
///
/// See [`WebIndex`] for an example.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PageView {
    /// The page's URL.
    pub url: String,
    /// The page's title. Empty if the page is stored but not indexed.
    pub title: String,
    /// The beginning of the page's text.
    pub excerpt: String,
    /// The size of the text, in bytes.
    pub text_bytes: usize,
    /// The reason why the page is not indexed, if it is not.
    pub skipped: Option<String>,
    /// The page's rank. Zero before the first ranking.
    pub rank: f64,
    /// The canonical page of the cluster. It is the page itself, unless another member is
    /// shown.
    pub canonical: String,
    /// When the page was loaded, in milliseconds since 1970.
    pub loaded_ms: u64,
    /// How many distinct pages it links to.
    pub out_links: usize,
    /// How many links are attached to it: links to itself and, if it is canonical, to its
    /// duplicates.
    pub in_links: usize,
    /// The first hundred of these links.
    pub anchors: Vec<AnchorView>,
}

/// A link attached to a page.
///
/// See [`PageView`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AnchorView {
    /// The page with the link.
    pub source: String,
    /// The link's target: the viewed page, or a duplicate of it.
    pub target: String,
    /// The link's anchor texts.
    pub anchors: Vec<String>,
}

/// A cluster of duplicates.
///
/// ```
/// let cluster = webindex::ClusterView { canonical: "https://a.example/".into(), members: vec![] };
/// assert!(cluster.members.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ClusterView {
    /// The member that is shown. Members that neither redirect nor declare another page come
    /// first, and among these the one with the highest rank.
    pub canonical: String,
    /// All members, the canonical first, then in the order in which they would take its place.
    pub members: Vec<MemberView>,
}

/// A member of a cluster.
///
/// See [`ClusterView`].
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct MemberView {
    /// The member's URL.
    pub url: String,
    /// The member's title.
    pub title: String,
    /// The member's rank.
    pub rank: f64,
    /// How many links have this member as their target.
    pub in_links: usize,
}

/// The counts of the whole index.
///
/// ```
/// assert_eq!(webindex::IndexStats::default().pages, 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct IndexStats {
    /// Indexed pages.
    pub pages: usize,
    /// Hyperlinks on indexed pages, repeated ones included.
    pub links: u64,
    /// Distinct pairs of a page and its target.
    pub edges: usize,
    /// Clusters of two or more pages that are duplicates of each other.
    pub clusters: usize,
    /// Pages for which another member of their cluster is shown.
    pub duplicates: usize,
    /// Pages that redirect.
    pub redirects: usize,
    /// Pages in the search index.
    pub searchable: usize,
    /// Stored documents that are not indexed, by reason.
    pub skipped: BTreeMap<String, usize>,
    /// The size of all texts, in bytes.
    pub text_bytes: u64,
    /// The worker that writes the search index. `None` if no worker has written one yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<WriterView>,
}

/// The links that are attached to a page.
#[derive(Debug, Default)]
struct Attached {
    all: usize,
    /// The first of these links.
    shown: Vec<AnchorView>,
}

/// The links and duplicates of a page that was found.
///
/// See [`WebIndex::counts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct HitCounts {
    /// How many links are attached to the page, at most [`MAX`](HitCounts::MAX).
    pub in_links: usize,
    /// How many other pages are in its cluster, at most [`MAX`](HitCounts::MAX).
    pub duplicates: usize,
}

impl HitCounts {
    /// Counting ends here: a count that is as high stands for this many or more.
    pub const MAX: usize = 100;
}

type Cells = BTreeMap<Column, Bytes>;

impl WebIndex {
    /// Searches titles, anchors and texts. Returns the best pages first.
    ///
    /// # Errors
    /// Errors of the search index.
    pub async fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, Error> {
        self.search_index().await?.search(query, limit)
    }

    /// Like [`search`](WebIndex::search), but skips the `offset` best pages, and also returns
    /// how many pages match in all.
    ///
    /// # Errors
    /// Errors of the search index.
    pub async fn find(&self, query: &str, offset: usize, limit: usize) -> Result<Found, Error> {
        self.search_index().await?.find(query, offset, limit)
    }

    /// Returns the name of the cell that holds a page's content.
    pub fn content_cell(&self, url: &str) -> CellName {
        let table = self.tables.documents.name().to_owned();
        CellName { table, row: url.into(), column: CONTENT }
    }

    /// Reads a page with its in-links. `None` if the page is not stored. The read is a
    /// snapshot: it takes no timestamp.
    ///
    /// # Errors
    /// [`Error::BadUrl`] if `url` is not a page's URL, and errors of the database.
    pub async fn page(&self, url: &str) -> Result<Option<PageView>, Error> {
        let url = canonicalize(url)?;
        let view = self.db.snapshot().await?;
        let columns = [&FETCH, &PAGE, &LINKS, &MEMBER, &RANK];
        let cells = view.get_row(&self.tables.documents, url.as_str(), columns).await?;
        let [fetch, page, links, member, rank] = cells;
        let Some(fetch) = decode::<Fetch>(fetch)? else { return Ok(None) };
        let (title, text, skipped) = match decode(page)? {
            Some(Page::Indexed { title, text, .. }) => (title, text, None),
            Some(Page::Skipped { reason }) => (String::new(), String::new(), Some(reason)),
            None => (String::new(), String::new(), Some("not parsed yet".to_owned())),
        };
        let links: Links = decode(links)?.unwrap_or_default();
        let cluster = decode::<Member>(member)?.and_then(|m| m.cluster());
        let shown = match cluster {
            Some(cluster) => self.tables.shown(view.as_ref(), cluster).await?,
            None => None,
        };
        let canonical = shown.unwrap_or_else(|| url.clone());
        let cluster = cluster.filter(|_| canonical == url);
        let Attached { all: in_links, shown: anchors } =
            self.attached(&view, &url, cluster, (usize::MAX, ANCHORS_SHOWN)).await?;
        Ok(Some(PageView {
            title,
            excerpt: text.chars().take(300).collect(),
            text_bytes: text.len(),
            skipped,
            rank: decode_rank(rank.as_ref()),
            canonical,
            loaded_ms: fetch.loaded_ms,
            out_links: links.0.len(),
            in_links,
            anchors,
            url,
        }))
    }

    /// Counts the links and duplicates of each hit, in one snapshot. Reads no page, and at most
    /// [`HitCounts::MAX`] rows of links for a page or a cluster, but each row as a whole.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn counts(&self, hits: &[Hit]) -> Result<Vec<HitCounts>, Error> {
        let view = self.db.snapshot().await?;
        let counts: Vec<_> = hits.iter().map(|hit| self.counts_of(&view, &hit.url)).collect();
        stream::iter(counts).buffered(COUNTED_AT_ONCE).try_collect().await
    }

    async fn counts_of(&self, view: &Snapshot, url: &str) -> Result<HitCounts, Error> {
        let member = view.get(&self.tables.documents, url, &MEMBER).await?;
        let (mut shown_for, mut duplicates) = (None, 0);
        if let Some(id) = decode::<Member>(member)?.and_then(|member| member.cluster()) {
            let shown = self.tables.shown(view.as_ref(), id).await?;
            shown_for = shown.is_none_or(|shown| shown == url).then_some(id);
            let members = self.tables.first_members(view.as_ref(), id, HitCounts::MAX + 1).await?;
            duplicates = members.len().saturating_sub(1);
        }
        let links = self.attached(view, url, shown_for, (HitCounts::MAX, 0)).await?;
        Ok(HitCounts { in_links: links.all, duplicates })
    }

    /// Reads the links attached to a page, and to the cluster for which it is shown. Counts and
    /// shows at most so many.
    async fn attached(
        &self,
        view: &Snapshot,
        url: &str,
        cluster: Option<ClusterId>,
        (counted_max, shown_max): (usize, usize),
    ) -> Result<Attached, Error> {
        let mut attached = Attached::default();
        let holders = [Some(url.to_owned()), cluster.map(|cluster| cluster.holder())];
        for holder in holders.into_iter().flatten() {
            if attached.all >= counted_max {
                break;
            }
            let scan = view.scan(&self.tables.inlinks).prefix(LinkRow::held_by(&holder));
            let mut scan = scan.limit(counted_max);
            while let Some(row) = scan.next().await? {
                let Some(place) = LinkRow::parse(&row.row) else { continue };
                for (column, value) in &row.cells {
                    let Some(source) = in_link_source(column) else { continue };
                    if attached.all >= counted_max {
                        return Ok(attached);
                    }
                    attached.all += 1;
                    if attached.shown.len() < shown_max {
                        attached.shown.push(AnchorView {
                            source: source.to_owned(),
                            target: place.target.clone(),
                            anchors: link_anchors(value)?,
                        });
                    }
                }
            }
        }
        Ok(attached)
    }

    /// Reads the cluster of a page. `None` if the page is not indexed.
    ///
    /// # Errors
    /// [`Error::BadUrl`] if `url` is not a page's URL, and errors of the database.
    pub async fn cluster(&self, url: &str) -> Result<Option<ClusterView>, Error> {
        let url = canonicalize(url)?;
        let view = self.db.snapshot().await?;
        let member = view.get(&self.tables.documents, url.as_str(), &MEMBER).await?;
        let Some(id) = decode::<Member>(member)?.and_then(|member| member.cluster()) else {
            return Ok(None);
        };
        let mut members = Vec::new();
        for place in self.tables.first_members(view.as_ref(), id, usize::MAX).await? {
            let page = view.get(&self.tables.documents, place.url.as_str(), &PAGE).await?;
            let title = match decode(page)? {
                Some(Page::Indexed { title, .. }) => title,
                _ => String::new(),
            };
            let in_links = self.attached(&view, &place.url, None, (usize::MAX, 0)).await?.all;
            members.push(MemberView { url: place.url, title, rank: place.rank, in_links });
        }
        let canonical = self.tables.shown(view.as_ref(), id).await?.unwrap_or(url);
        // The observers may not have elected the first member yet.
        members.sort_by_key(|member| member.url != canonical);
        Ok(Some(ClusterView { canonical, members }))
    }

    /// Finds a cluster with the most members, as an example to show.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn largest_cluster(&self) -> Result<Option<ClusterView>, Error> {
        let mut largest: Option<(usize, String)> = None;
        self.each_cluster(&self.db.snapshot().await?, |first, members| {
            if members > 1 && largest.as_ref().is_none_or(|(most, _)| members > *most) {
                largest = Some((members, first.url.clone()));
            }
        })
        .await?;
        match largest {
            Some((_, url)) => self.cluster(&url).await,
            None => Ok(None),
        }
    }

    /// Calls `each` with the first member of every cluster, and the number of its members.
    async fn each_cluster(
        &self,
        snapshot: &Snapshot,
        mut each: impl FnMut(&Place, usize),
    ) -> Result<(), Error> {
        let mut last: Option<(Place, usize)> = None;
        let mut scan = snapshot.scan(&self.tables.clusters).columns([&PLACE]);
        while let Some(row) = scan.next().await? {
            let Some(place) = Place::parse(&row.row) else { continue };
            match &mut last {
                Some((first, members)) if first.cluster == place.cluster => *members += 1,
                _ => {
                    if let Some((first, members)) = last.replace((place, 1)) {
                        each(&first, members);
                    }
                }
            }
        }
        if let Some((first, members)) = last {
            each(&first, members);
        }
        Ok(())
    }

    /// Counts the index as of now.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn stats(&self) -> Result<IndexStats, Error> {
        let snapshot = self.db.snapshot().await?;
        let record = writer::read(snapshot.as_ref(), &self.tables).await?;
        let mut stats = IndexStats {
            searchable: self.search_index().await?.pages()?,
            writer: record.map(WriterView::of),
            ..IndexStats::default()
        };
        let columns = [PAGE, KEYS, LINKED];
        let mut scan = snapshot.scan(&self.tables.documents).columns(&columns);
        while let Some(row) = scan.next().await? {
            let cells: Cells = row.cells.into_iter().collect();
            match decode(cells.get(&PAGE).cloned())? {
                Some(Page::Indexed { hyperlinks, text, .. }) => {
                    stats.pages += 1;
                    stats.links += hyperlinks;
                    stats.text_bytes += text.len() as u64;
                }
                Some(Page::Skipped { reason }) => *stats.skipped.entry(reason).or_default() += 1,
                None => {}
            }
            let keys: Option<crate::records::Keys> = decode(cells.get(&KEYS).cloned())?;
            stats.redirects += usize::from(keys.is_some_and(|keys| keys.redirect.is_some()));
            let linked: Links = decode(cells.get(&LINKED).cloned())?.unwrap_or_default();
            stats.edges += linked.0.len();
        }
        self.each_cluster(&snapshot, |_, members| {
            stats.clusters += usize::from(members > 1);
            stats.duplicates += members - 1;
        })
        .await?;
        Ok(stats)
    }
}
