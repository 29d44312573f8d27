//! Computes, from the stored documents alone, the clusters and shown pages that a verification
//! compares with.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::Error;
use crate::index::verify::{Cells, Held, VerifyReport};
use crate::observers::parse;
use crate::records::{Fetch, Keys, Links, Member, Page, decode, decode_content, decode_rank};
use crate::tables::{CONTENT, FETCH, KEYS, LINKED, LINKS, MEMBER, PAGE, RANK};

/// The indexed pages, as computed from their documents.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) pages: BTreeMap<String, Seen>,
    /// The addresses that are no indexed pages, but say that pages stand for them.
    pub(super) stood_for: BTreeSet<String>,
    /// The page that the observers show for each member of a cluster.
    pub(super) recorded: BTreeMap<String, String>,
}

/// The page that should be shown for each indexed page.
pub(super) type Canonicals<'a> = BTreeMap<&'a str, &'a str>;

/// An indexed page.
#[derive(Debug)]
pub(super) struct Seen {
    /// The address to which the page redirects, or else the one that it declares.
    pub(super) target: Option<String>,
    /// A digest of title and text, and whether there is any text.
    pub(super) text: ([u8; 32], bool),
    pub(super) rank: f64,
    /// The record that the observers made of the page.
    pub(super) member: Option<Member>,
}

/// A property that joins pages to a cluster.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Joint<'a> {
    Address(&'a str),
    Text([u8; 32]),
}

impl Batch {
    pub(super) fn add(
        &mut self,
        url: String,
        cells: &Cells,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        let page: Option<Page> = decode(cells.get(&PAGE).cloned())?;
        let keys: Option<Keys> = decode(cells.get(&KEYS).cloned())?;
        let links: Option<Links> = decode(cells.get(&LINKS).cloned())?;
        let linked: Option<Links> = decode(cells.get(&LINKED).cloned())?;
        let member: Option<Member> = decode(cells.get(&MEMBER).cloned())?;
        let is_stood_for = member == Some(Member::default());
        if is_stood_for {
            self.stood_for.insert(url.clone());
        }
        let Some(content) = cells.get(&CONTENT) else {
            if cells.len() > usize::from(is_stood_for) {
                let left: Vec<String> = cells.keys().map(ToString::to_string).collect();
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
        let rank = decode_rank(cells.get(&RANK));
        let target = new_keys.as_ref().and_then(|keys| keys.stands_for(&url)).map(str::to_owned);
        let some = |links: &Option<Links>| links.clone().filter(|links| !links.0.is_empty());
        let is_placed = member.as_ref().is_some_and(|member| {
            let by_rank = member.placed.is_some_and(|(_, placed)| placed == rank);
            by_rank && member.stands_for == target && member.told.is_none()
        });
        let differ = [
            ("load", fetched != Some(*blake3::hash(&content).as_bytes())),
            ("rank", new_keys.is_none() && cells.contains_key(&RANK)),
            ("page", page.as_ref() != Some(&new_page)),
            ("keys", keys != new_keys),
            ("links", links != new_links),
            (
                "membership",
                if new_keys.is_some() { !is_placed } else { member.is_some() && !is_stood_for },
            ),
            ("placed links", some(&linked) != some(&new_links)),
        ];
        for (what, _) in differ.into_iter().filter(|(_, differs)| *differs) {
            report.differ(|| format!("{url}: the recorded {what} are not what the document says"));
        }
        if let Page::Indexed { title, text, .. } = &new_page {
            let text = (digest(title, text), !text.is_empty());
            self.pages.insert(url, Seen { target, text, rank, member });
        }
        Ok(())
    }

    /// Finds the page that should be shown for each indexed page, by union-find.
    pub(super) fn canonicals(&self, report: &mut VerifyReport) -> Canonicals<'_> {
        let pages: Vec<(&String, &Seen)> = self.pages.iter().collect();
        let mut parent: Vec<usize> = (0..pages.len()).collect();
        let mut first: HashMap<Joint<'_>, usize> = HashMap::new();
        for (number, (url, page)) in pages.iter().enumerate() {
            let (digest, is_text) = page.text;
            let own = is_text && page.target.is_none();
            let joints = [
                Some(Joint::Address(url)),
                page.target.as_deref().map(Joint::Address),
                own.then_some(Joint::Text(digest)),
            ];
            for joint in joints.into_iter().flatten() {
                let other = *first.entry(joint).or_insert(number);
                let (a, b) = (root(&mut parent, number), root(&mut parent, other));
                parent[a] = b;
            }
        }
        // Prefer a page with its own text to one that stands for another, then the higher
        // rank, then the first address.
        let better = |a: usize, b: usize| {
            let ((a_url, a), (b_url, b)) = (pages[a], pages[b]);
            let by_kind = a.target.is_some().cmp(&b.target.is_some());
            by_kind.then(b.rank.total_cmp(&a.rank)).then(a_url.cmp(b_url)).is_lt()
        };
        let mut best: HashMap<usize, (usize, usize)> = HashMap::new();
        for number in 0..pages.len() {
            let (best, size) = best.entry(root(&mut parent, number)).or_insert((number, 0));
            *size += 1;
            if better(number, *best) {
                *best = number;
            }
        }
        report.clusters = best.values().filter(|(_, size)| *size > 1).count();
        let mut canonicals = BTreeMap::new();
        for (number, (url, _)) in pages.iter().enumerate() {
            let (best, _) = best[&root(&mut parent, number)];
            canonicals.insert(url.as_str(), pages[best].0.as_str());
        }
        for (url, best) in &canonicals {
            let recorded = self.recorded.get(*url);
            if recorded.is_none_or(|recorded| recorded != best) {
                report.differ(|| format!("{url}: canonical is {recorded:?}, expected {best}"));
            }
        }
        canonicals
    }

    /// Checks every page that neither redirects nor declares another. The page must be in the
    /// search index, or a page with equal title and text must be shown for it.
    pub(super) fn every_text_is_shown(&self, held: &Held, report: &mut VerifyReport) {
        for (url, page) in self.pages.iter().filter(|(_, page)| page.target.is_none()) {
            let shown = self.recorded.get(url).filter(|shown| held.contains_key(*shown));
            let shows = shown.and_then(|shown| self.pages.get(shown));
            if shows.is_none_or(|shows| shows.text != page.text) {
                report.differ(|| {
                    format!("search: neither {url} nor a page with equal title and text is shown")
                });
            }
        }
    }

    /// Returns where the in-links of a page are placed in addition to home: at its cluster, if
    /// another page is shown for it.
    pub(super) fn holder(&self, target: &str, canonicals: &Canonicals<'_>) -> Option<String> {
        canonicals.get(target).filter(|canonical| **canonical != target)?;
        Some(self.pages.get(target)?.member.as_ref()?.cluster()?.holder())
    }
}

/// A digest of title and text. Only equal pages have equal digests.
fn digest(title: &str, text: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(title.len() as u64).to_le_bytes());
    hasher.update(title.as_bytes());
    hasher.update(text.as_bytes());
    *hasher.finalize().as_bytes()
}

fn root(parent: &mut [usize], mut page: usize) -> usize {
    while parent[page] != page {
        parent[page] = parent[parent[page]];
        page = parent[page];
    }
    page
}
