//! Verification: recompute everything in one batch and compare it with what the observers built.
//!
//! The batch knows only the stored documents and the ranks that the ranking job stored. It parses every
//! document again, finds clusters by union-find, attaches every link, and says what the search index
//! should hold. It shares the definitions with the observers (the parser, a page's keys, which of two
//! pages is better, which anchors are indexed), and none of what they do with them.

use std::collections::{BTreeMap, BTreeSet};

use percolator::{Bytes, Column, Snapshot};

use crate::Error;
use crate::index::WebIndex;
use crate::observers::{Anchors, Best, link_anchors, parse};
use crate::records::{
    Fetch, KeyRow, Keys, Links, Page, decode, decode_content, decode_rank, decode_url,
};
use crate::search::IndexedPage;
use crate::tables::{
    CANONICAL, CONTENT, FETCH, KEYS, KeyKind, LINKED, LINKS, LinkRow, PAGE, PLACED, RANK,
    REGISTERED, bucket_of, in_link_source, member_url,
};

/// The most differences that a report names; all are counted.
const NAMED_MAX: usize = 100;

/// What a verification came to.
///
/// See [`WebIndex`](crate::WebIndex) for an example.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct VerifyReport {
    /// Documents parsed again.
    pub documents: usize,
    /// Clusters of two or more pages.
    pub clusters: usize,
    /// Links attached, at home or forwarded.
    pub attached_links: usize,
    /// Pages that the search index should hold.
    pub searchable: usize,
    /// Differences found.
    pub differences: usize,
    /// The first hundred of them.
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

/// The documents, as the batch sees them.
#[derive(Debug, Default)]
struct Batch {
    /// Each indexed page's clustering keys.
    keys: BTreeMap<String, Vec<KeyRow>>,
    ranks: BTreeMap<String, f64>,
    /// What the observers recorded as canonical.
    recorded: BTreeMap<String, String>,
    /// Rows of in-links: source and anchors.
    links: BTreeMap<LinkRow, BTreeMap<String, Vec<String>>>,
}

type Cells = BTreeMap<Column, Bytes>;

impl WebIndex {
    /// Compares clusters, canonicals, in-links with their anchors, and the search index with what a
    /// batch makes of the stored documents. Everything must be idle.
    ///
    /// # Errors
    /// Those of the database and the search index.
    pub async fn verify(&self) -> Result<VerifyReport, Error> {
        let snapshot = self.db.snapshot().await?;
        let mut report = VerifyReport::default();
        let mut batch = self.parse_all(&snapshot, &mut report).await?;
        self.compare_members(&snapshot, &batch, &mut report).await?;
        let canonicals = batch.canonicals(&mut report);
        batch.forward(&canonicals);
        self.compare_links(&snapshot, &batch, &canonicals, &mut report).await?;
        self.compare_search(&snapshot, &batch, &canonicals, &mut report).await?;
        Ok(report)
    }

    /// Parses every stored document and compares the records of each.
    async fn parse_all(
        &self,
        snapshot: &Snapshot,
        report: &mut VerifyReport,
    ) -> Result<Batch, Error> {
        let mut batch = Batch::default();
        let columns = [CONTENT, FETCH, PAGE, KEYS, LINKS, REGISTERED, LINKED, CANONICAL, RANK];
        let mut scan = snapshot.scan(&self.tables.documents).columns(columns);
        while let Some(row) = scan.next().await? {
            let url = String::from_utf8_lossy(row.row.as_bytes()).into_owned();
            let cells: Cells = row.cells.into_iter().collect();
            batch.add(url, &cells, report)?;
        }
        Ok(batch)
    }

    async fn compare_members(
        &self,
        snapshot: &Snapshot,
        batch: &Batch,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        let mut expected: BTreeSet<(KeyRow, String)> = BTreeSet::new();
        for (url, rows) in &batch.keys {
            expected.extend(rows.iter().map(|row| (row.clone(), url.clone())));
        }
        for kind in KeyKind::ALL {
            let mut scan = snapshot.scan(self.tables.by_key(kind));
            while let Some(row) = scan.next().await? {
                let key = (kind, row.row.as_bytes().to_vec());
                for url in row.cells.iter().filter_map(|(column, _)| member_url(column)) {
                    if !expected.remove(&(key.clone(), url.to_owned())) {
                        report.differ(|| {
                            format!("{} {}: {url} should not be a member", kind.table(), row.row)
                        });
                    }
                }
            }
        }
        for ((kind, key), url) in expected {
            let key = String::from_utf8_lossy(&key).into_owned();
            report.differ(|| format!("{} {key}: member {url} is missing", kind.table()));
        }
        Ok(())
    }

    async fn compare_links(
        &self,
        snapshot: &Snapshot,
        batch: &Batch,
        canonicals: &BTreeMap<String, String>,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        let mut missing: BTreeSet<&LinkRow> = batch.links.keys().collect();
        let mut scan = snapshot.scan(&self.tables.inlinks);
        while let Some(row) = scan.next().await? {
            let Some(place) = LinkRow::parse(&row.row) else {
                report.differ(|| format!("inlinks {}: not a row of in-links", row.row));
                continue;
            };
            let (mut found, mut placed) = (BTreeMap::new(), None);
            for (column, value) in &row.cells {
                match in_link_source(column) {
                    Some(source) => {
                        found.insert(source.to_owned(), link_anchors(value)?);
                    }
                    None if *column == PLACED => placed = decode_url(Some(value.clone()))?,
                    None => report.differ(|| format!("inlinks {}: column {column}", row.row)),
                }
            }
            report.attached_links += found.len();
            missing.remove(&place);
            let expected = batch.links.get(&place);
            if !found.is_empty() && expected != Some(&found)
                || found.is_empty() != expected.is_none()
            {
                report.differ(|| {
                    let (target, holder) = (&place.target, &place.holder);
                    let expected = expected.map_or(0, BTreeMap::len);
                    let found = found.len();
                    format!("in-links of {target} at {holder}: {found} links, expected {expected}")
                });
            }
            let canonical = canonicals.get(&place.target).filter(|c| **c != place.target);
            let stale = placed.is_some() && placed.as_ref() != canonical;
            if stale || (place.is_home() && !found.is_empty() && placed.as_ref() != canonical) {
                report.differ(|| {
                    format!(
                        "in-links of {} are placed at {placed:?}, not {canonical:?}",
                        place.target
                    )
                });
            }
        }
        for place in missing {
            report
                .differ(|| format!("in-links of {} at {} are missing", place.target, place.holder));
        }
        Ok(())
    }

    async fn compare_search(
        &self,
        snapshot: &Snapshot,
        batch: &Batch,
        canonicals: &BTreeMap<String, String>,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        let mut held = BTreeMap::new();
        self.search_index()?.dump(|entry| {
            held.insert(entry.url.clone(), entry);
        })?;
        let mut scan = snapshot.scan(&self.tables.documents).columns([PAGE]);
        while let Some(row) = scan.next().await? {
            let url = String::from_utf8_lossy(row.row.as_bytes()).into_owned();
            if canonicals.get(&url) != Some(&url) {
                continue;
            }
            let page = row.cells.into_iter().next().map(|(_, value)| value);
            let Some(Page::Indexed { title, text, .. }) = decode(page)? else { continue };
            report.searchable += 1;
            let rank = batch.ranks.get(&url).copied().unwrap_or(0.0);
            let expected = IndexedPage { title, text, anchors: batch.anchors(&url), rank };
            match held.remove(&url) {
                None => report.differ(|| format!("search: {url} is missing")),
                Some(entry) if entry.digest != expected.digest() => {
                    report.differ(|| format!("search: {url} has other text or anchors"));
                }
                Some(entry) if entry.rank != rank => {
                    report.differ(|| format!("search: {url} has rank {}, not {rank}", entry.rank));
                }
                Some(_) => {}
            }
        }
        for url in held.keys() {
            report.differ(|| format!("search: {url} should not be there"));
        }
        Ok(())
    }
}

impl Batch {
    fn add(&mut self, url: String, cells: &Cells, report: &mut VerifyReport) -> Result<(), Error> {
        if let Some(canonical) = decode_url(cells.get(&CANONICAL).cloned())? {
            self.recorded.insert(url.clone(), canonical);
        }
        let page: Option<Page> = decode(cells.get(&PAGE).cloned())?;
        let keys: Option<Keys> = decode(cells.get(&KEYS).cloned())?;
        let links: Option<Links> = decode(cells.get(&LINKS).cloned())?;
        let linked: Option<Links> = decode(cells.get(&LINKED).cloned())?;
        let registered: Option<Vec<KeyRow>> = decode(cells.get(&REGISTERED).cloned())?;
        let Some(content) = cells.get(&CONTENT) else {
            if !cells.is_empty() {
                let left: Vec<String> = cells.keys().map(Column::to_string).collect();
                report.differ(|| format!("{url} is deleted but still has {}", left.join(", ")));
            }
            return Ok(());
        };
        report.documents += 1;
        let content = decode_content(content)?;
        let fetch: Option<Fetch> = decode(cells.get(&FETCH).cloned())?;
        let fetched = fetch.map(|fetch| fetch.content_hash);
        let (new_page, new_keys, new_links) = match parse(&url, &content) {
            Ok(parsed) => {
                let (keys, links) = (Keys::of(&parsed), Links::of(&parsed.links));
                let (title, text) = (parsed.title, parsed.text);
                let hyperlinks = parsed.hyperlinks as u64;
                (Page::Indexed { title, text, hyperlinks }, Some(keys), Some(links))
            }
            Err(skip) => (Page::Skipped { reason: skip.name().to_owned() }, None, None),
        };
        let rows = new_keys.as_ref().map(|keys| keys.rows(&url));
        let some = |links: &Option<Links>| links.clone().filter(|links| !links.0.is_empty());
        let differ = [
            ("load", fetched != Some(*blake3::hash(&content).as_bytes())),
            ("rank", new_keys.is_none() && cells.contains_key(&RANK)),
            ("page", page.as_ref() != Some(&new_page)),
            ("keys", keys != new_keys),
            ("links", links != new_links),
            ("registered keys", registered.unwrap_or_default() != rows.clone().unwrap_or_default()),
            ("placed links", some(&linked) != some(&new_links)),
        ];
        for (what, _) in differ.into_iter().filter(|(_, differs)| *differs) {
            report.differ(|| format!("{url}: the recorded {what} are not what the document says"));
        }
        let bucket = bucket_of(&url);
        for (target, anchors) in new_links.unwrap_or_default().0 {
            let home = self.links.entry(LinkRow::home(&target, bucket)).or_default();
            home.insert(url.clone(), anchors);
        }
        if let Some(rows) = rows {
            self.ranks.insert(url.clone(), decode_rank(cells.get(&RANK)));
            self.keys.insert(url, rows);
        }
        Ok(())
    }

    /// The canonical of every indexed page, by union-find over the keys.
    fn canonicals(&self, report: &mut VerifyReport) -> BTreeMap<String, String> {
        let urls: Vec<&String> = self.keys.keys().collect();
        let mut parent: Vec<usize> = (0..urls.len()).collect();
        let mut first: BTreeMap<&KeyRow, usize> = BTreeMap::new();
        for (page, rows) in self.keys.values().enumerate() {
            for row in rows {
                let other = *first.entry(row).or_insert(page);
                let (a, b) = (root(&mut parent, page), root(&mut parent, other));
                parent[a] = b;
            }
        }
        let mut clusters: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for (page, url) in urls.iter().enumerate() {
            clusters.entry(root(&mut parent, page)).or_default().push(url);
        }
        let mut canonicals = BTreeMap::new();
        for members in clusters.values() {
            let ranked = members.iter().map(|url| (*url, self.ranks[*url]));
            let best = Best::of(ranked).expect("a cluster has a member").to_owned();
            report.clusters += usize::from(members.len() > 1);
            for url in members {
                canonicals.insert((*url).to_owned(), best.clone());
            }
        }
        for (url, best) in &canonicals {
            let recorded = self.recorded.get(url).unwrap_or(url);
            if recorded != best {
                report.differ(|| format!("{url}: canonical is {recorded}, expected {best}"));
            }
        }
        for (url, recorded) in &self.recorded {
            if !canonicals.contains_key(url) {
                report.differ(|| format!("{url}: has the canonical {recorded} but is not indexed"));
            }
        }
        canonicals
    }

    /// Attaches the links of duplicates to their canonical page, too.
    fn forward(&mut self, canonicals: &BTreeMap<String, String>) {
        let mut forwarded = Vec::new();
        for (home, links) in &self.links {
            match canonicals.get(&home.target) {
                Some(canonical) if *canonical != home.target => {
                    forwarded.push((home.at(canonical), links.clone()));
                }
                _ => {}
            }
        }
        self.links.extend(forwarded);
    }

    /// The anchors that are indexed with a page.
    fn anchors(&self, holder: &str) -> Vec<String> {
        let mut anchors = Anchors::default();
        let first = LinkRow::home(holder, 0);
        let held = self.links.range(first..).take_while(|(row, _)| row.holder == holder);
        for (_, links) in held {
            for of_source in links.values() {
                if !anchors.add(of_source.clone()) {
                    return anchors.list;
                }
            }
        }
        anchors.list
    }
}

fn root(parent: &mut [usize], mut page: usize) -> usize {
    while parent[page] != page {
        parent[page] = parent[parent[page]];
        page = parent[page];
    }
    page
}
