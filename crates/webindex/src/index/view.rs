//! Asking the index: search, a page, a cluster, the whole in numbers.

use std::collections::{BTreeMap, BTreeSet};

use percolator::{Bytes, Column};

use crate::Error;
use crate::address::canonicalize;
use crate::index::WebIndex;
use crate::observers::{choose, link_anchors};
use crate::records::{Fetch, Links, Page, decode, decode_rank, decode_url};
use crate::search::Hit;
use crate::tables::{
    CANONICAL, FETCH, KEYS, KeyKind, LINKED, LINKS, LinkRow, PAGE, RANK, in_link_source,
};

/// The most in-links that a page's view names; all are counted.
const ANCHORS_SHOWN: usize = 100;

/// A page of the index.
///
/// See [`WebIndex`] for an example.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PageView {
    /// Its URL.
    pub url: String,
    /// Its title; empty if the page is stored but not indexed.
    pub title: String,
    /// How its text begins.
    pub excerpt: String,
    /// Bytes of text.
    pub text_bytes: usize,
    /// Why it is not indexed, if so.
    pub skipped: Option<String>,
    /// Its rank; zero before the first ranking.
    pub rank: f64,
    /// The canonical page of its cluster; itself, if it has no better duplicate.
    pub canonical: String,
    /// When it was loaded, in milliseconds since 1970.
    pub loaded_ms: u64,
    /// Distinct pages it links to.
    pub out_links: usize,
    /// Links attached to it: to itself and, if it is canonical, to its duplicates.
    pub in_links: usize,
    /// The first hundred of them.
    pub anchors: Vec<AnchorView>,
}

/// A link attached to a page.
///
/// See [`PageView`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AnchorView {
    /// The page it is on.
    pub source: String,
    /// The page it names: the viewed one, or a duplicate of it.
    pub target: String,
    /// Its anchor texts.
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
    /// The member with the highest rank.
    pub canonical: String,
    /// All members, the canonical first, then by rank.
    pub members: Vec<MemberView>,
}

/// A member of a cluster.
///
/// See [`ClusterView`].
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct MemberView {
    /// Its URL.
    pub url: String,
    /// Its title.
    pub title: String,
    /// Its rank.
    pub rank: f64,
    /// Links that name it.
    pub in_links: usize,
}

/// The index in numbers.
///
/// ```
/// assert_eq!(webindex::IndexStats::default().pages, 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct IndexStats {
    /// Pages indexed.
    pub pages: usize,
    /// Hyperlinks on them, each counted.
    pub links: u64,
    /// Distinct pairs of a page and its target.
    pub edges: usize,
    /// Groups of two or more pages that are duplicates of each other.
    pub clusters: usize,
    /// Pages that have a better duplicate.
    pub duplicates: usize,
    /// Pages that redirect.
    pub redirects: usize,
    /// Pages that are searchable.
    pub searchable: usize,
    /// Stored documents that are not indexed, by reason.
    pub skipped: BTreeMap<String, usize>,
    /// Bytes of all texts.
    pub text_bytes: u64,
}

/// The links attached to a page.
#[derive(Debug, Default)]
struct Attached {
    all: usize,
    /// Those that name the page itself, and no duplicate of it.
    naming: usize,
    /// The first of them.
    shown: Vec<AnchorView>,
}

type Cells = BTreeMap<Column, Bytes>;

impl WebIndex {
    /// Searches titles, anchors and texts; the best first.
    ///
    /// # Errors
    /// Those of the search index.
    pub async fn search(&self, query: &str, limit: usize) -> Result<Vec<Hit>, Error> {
        self.search_index()?.search(query, limit)
    }

    /// A page with its in-links; `None` if it is not stored.
    ///
    /// # Errors
    /// [`Error::BadUrl`]; those of the database.
    pub async fn page(&self, url: &str) -> Result<Option<PageView>, Error> {
        let url = canonicalize(url)?;
        let tx = self.db.begin().await?;
        let columns = [FETCH, PAGE, LINKS, CANONICAL, RANK];
        let row = [url.as_str().into()];
        let cells = tx.get_many(&self.tables.documents, &row, &columns).await?;
        let cells: Cells = columns
            .into_iter()
            .zip(cells.into_iter().flatten())
            .filter_map(|(column, value)| Some((column, value?)))
            .collect();
        let Some(fetch) = decode::<Fetch>(cells.get(&FETCH).cloned())? else { return Ok(None) };
        let (title, text, skipped) = match decode(cells.get(&PAGE).cloned())? {
            Some(Page::Indexed { title, text, .. }) => (title, text, None),
            Some(Page::Skipped { reason }) => (String::new(), String::new(), Some(reason)),
            None => (String::new(), String::new(), Some("not parsed yet".to_owned())),
        };
        let links: Links = decode(cells.get(&LINKS).cloned())?.unwrap_or_default();
        let Attached { all: in_links, shown: anchors, .. } = self.attached(&tx, &url).await?;
        Ok(Some(PageView {
            title,
            excerpt: text.chars().take(300).collect(),
            text_bytes: text.len(),
            skipped,
            rank: decode_rank(cells.get(&RANK)),
            canonical: decode_url(cells.get(&CANONICAL).cloned())?.unwrap_or_else(|| url.clone()),
            loaded_ms: fetch.loaded_ms,
            out_links: links.0.len(),
            in_links,
            anchors,
            url,
        }))
    }

    /// The links attached to a page.
    async fn attached(&self, tx: &percolator::Transaction, url: &str) -> Result<Attached, Error> {
        let mut attached = Attached::default();
        let mut scan = tx.scan(&self.tables.inlinks).prefix(LinkRow::held_by(url));
        while let Some(row) = scan.next().await? {
            let Some(place) = LinkRow::parse(&row.row) else { continue };
            for (column, value) in &row.cells {
                let Some(source) = in_link_source(column) else { continue };
                attached.all += 1;
                attached.naming += usize::from(place.is_home());
                if attached.shown.len() < ANCHORS_SHOWN {
                    attached.shown.push(AnchorView {
                        source: source.to_owned(),
                        target: place.target.clone(),
                        anchors: link_anchors(value)?,
                    });
                }
            }
        }
        Ok(attached)
    }

    /// The cluster of a page; `None` if the page is not indexed.
    ///
    /// # Errors
    /// [`Error::BadUrl`]; those of the database.
    pub async fn cluster(&self, url: &str) -> Result<Option<ClusterView>, Error> {
        let url = canonicalize(url)?;
        let tx = self.db.begin().await?;
        let cluster = self.tables.cluster(&tx, KeyKind::Redirect, url.as_bytes()).await?;
        let Some(canonical) = choose(&cluster).filter(|_| cluster.contains_key(&url)) else {
            return Ok(None);
        };
        let mut members = Vec::with_capacity(cluster.len());
        for (member, election) in &cluster {
            let page = tx.get(&self.tables.documents, member.as_str(), &PAGE).await?;
            let title = match decode(page)? {
                Some(Page::Indexed { title, .. }) => title,
                _ => String::new(),
            };
            let in_links = self.attached(&tx, member).await?.naming;
            members.push(MemberView { url: member.clone(), title, rank: election.rank, in_links });
        }
        let first = |m: &MemberView| m.url != canonical;
        members.sort_by(|a, b| first(a).cmp(&first(b)).then(b.rank.total_cmp(&a.rank)));
        Ok(Some(ClusterView { canonical: canonical.to_owned(), members }))
    }

    /// A cluster with the most members, to show.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn largest_cluster(&self) -> Result<Option<ClusterView>, Error> {
        let snapshot = self.db.snapshot().await?;
        let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
        let mut scan = snapshot.scan(&self.tables.documents).columns([CANONICAL]);
        while let Some(row) = scan.next().await? {
            for (_, value) in row.cells {
                *sizes.entry(String::from_utf8_lossy(&value).into_owned()).or_default() += 1;
            }
        }
        match sizes.iter().max_by_key(|(url, size)| (**size, std::cmp::Reverse(*url))) {
            Some((url, _)) => self.cluster(url).await,
            None => Ok(None),
        }
    }

    /// The index in numbers, as of now.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn stats(&self) -> Result<IndexStats, Error> {
        let snapshot = self.db.snapshot().await?;
        let mut stats =
            IndexStats { searchable: self.search_index()?.pages()?, ..IndexStats::default() };
        let mut canonicals = BTreeSet::new();
        let columns = [PAGE, KEYS, LINKED, CANONICAL];
        let mut scan = snapshot.scan(&self.tables.documents).columns(columns);
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
            if let Some(canonical) = cells.get(&CANONICAL) {
                stats.duplicates += 1;
                canonicals.insert(canonical.clone());
            }
        }
        stats.clusters = canonicals.len();
        Ok(stats)
    }
}
