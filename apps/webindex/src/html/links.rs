//! Collects links while a page is read, and resolves their targets at its end.
//!
//! `<base href>` may come after a link that it applies to, so links are kept as written and
//! resolved at the end. Links whose `href` is the same, apart from the fragment after `#`, are
//! kept as one entry. So a page that links to one target a thousand times, or to a thousand
//! places on one page, costs the parsing of one URL.

use std::collections::HashMap;

use url::Url;

use super::limits::{ANCHOR_CHARS_MAX, ANCHORS_PER_LINK_MAX, LINKS_PER_PAGE_MAX, Skip};
use super::resolve::Resolver;
use super::words::Words;

/// All hyperlinks from a page to one target.
///
/// ```
/// let link = webindex::html::Link { url: "https://example.org/".into(), anchors: vec![] };
/// assert!(link.anchors.is_empty(), "a link around an image without text has no anchor");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The target in canonical form.
    pub url: String,
    /// The distinct anchor texts, without empty ones, in document order.
    pub anchors: Vec<String>,
}
use crate::address::{URL_BYTES_MAX, canonical};

/// The most bytes that [`ANCHOR_CHARS_MAX`] characters can have.
const ANCHOR_BYTES_MAX: usize = ANCHOR_CHARS_MAX * 4;

/// Longer than any spelling of a URL that is short enough once its dots and escapes are
/// resolved.
const HREF_BYTES_MAX: usize = URL_BYTES_MAX * 4;

/// The links of a page as written, by their `href` without its fragment.
#[derive(Debug, Default)]
pub(super) struct RawLinks {
    by_href: HashMap<Box<str>, RawLink>,
    /// How many links were added. The count numbers the links in document order.
    added: usize,
    overlong: usize,
}

#[derive(Debug, Default)]
struct RawLink {
    first: usize,
    count: usize,
    /// The distinct anchors, each with the number of the first link that has it.
    anchors: Vec<(usize, String)>,
}

/// The `<a>` that is open. One object serves all of a page, so that its buffers are reused.
#[derive(Debug)]
pub(super) struct OpenAnchor {
    pub(super) is_open: bool,
    href: String,
    pub(super) text: Words,
    /// The alternative texts of the images inside, which are the anchor if there is no text.
    pub(super) alt: Words,
}

impl OpenAnchor {
    pub(super) fn new() -> Self {
        OpenAnchor {
            is_open: false,
            href: String::new(),
            text: Words::new(ANCHOR_BYTES_MAX),
            alt: Words::new(ANCHOR_BYTES_MAX),
        }
    }

    pub(super) fn open(&mut self, href: &str) {
        self.is_open = true;
        self.href.clear();
        self.href.push_str(without_fragment(href));
        self.text.clear();
        self.alt.clear();
    }
}

/// The links of a page by target.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) links: Vec<Link>,
    pub(super) hyperlinks: usize,
    pub(super) overlong: usize,
}

impl RawLinks {
    pub(super) fn add_anchor(&mut self, anchor: &OpenAnchor) {
        let words = if anchor.text.is_empty() { &anchor.alt } else { &anchor.text };
        self.add(&anchor.href, words);
    }

    pub(super) fn add_area(&mut self, href: &str, alt: &str) {
        let mut words = Words::new(ANCHOR_BYTES_MAX);
        words.push(alt);
        self.add(without_fragment(href), &words);
    }

    fn add(&mut self, href: &str, words: &Words) {
        if href.len() > HREF_BYTES_MAX {
            // A `data:` URL of a picture may have any length. It is not a hyperlink to a page.
            self.overlong += usize::from(!has_other_scheme(href));
            return;
        }
        let number = self.added;
        self.added += 1;
        let link = match self.by_href.get_mut(href) {
            Some(link) => link,
            None => {
                let link = RawLink { first: number, ..RawLink::default() };
                self.by_href.entry(href.into()).or_insert(link)
            }
        };
        link.count += 1;
        if link.anchors.len() < ANCHORS_PER_LINK_MAX && !words.is_empty() {
            let anchor = words.cut_at_char(ANCHOR_CHARS_MAX);
            if link.anchors.iter().all(|(_, known)| known != anchor) {
                link.anchors.push((number, anchor.to_string()));
            }
        }
    }

    /// Resolves all links. Links to `here`, the page itself, are counted and left out.
    pub(super) fn resolve(self, base: &Url, here: Option<&str>) -> Result<Resolved, Skip> {
        let mut hyperlinks = self.overlong;
        let mut overlong = self.overlong;
        let mut targets = Vec::with_capacity(self.by_href.len());
        let resolver = Resolver::new(base);
        for (href, link) in self.by_href {
            let Some(url) = resolver.resolve(&href) else { continue };
            hyperlinks += link.count;
            if url.len() > URL_BYTES_MAX {
                overlong += link.count;
            } else if Some(url.as_str()) != here {
                targets.push((url, link));
            }
        }
        // From here on the order no longer depends on the hash map: no two entries have the
        // same first link.
        targets.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then(x.first.cmp(&y.first)));
        let links: Vec<Link> = targets
            .chunk_by_mut(|(a, _), (b, _)| a == b)
            .map(|group| {
                let anchors = group.iter_mut().flat_map(|(_, link)| link.anchors.drain(..));
                let anchors = first_distinct(anchors.collect());
                Link { url: std::mem::take(&mut group[0].0), anchors }
            })
            .collect();
        if links.len() > LINKS_PER_PAGE_MAX {
            return Err(Skip::TooManyLinks { links: links.len() });
        }
        Ok(Resolved { links, hyperlinks, overlong })
    }
}

/// Returns the canonical URL that `href` denotes on a page with this base.
pub(super) fn target(base: &Url, href: &str) -> Option<String> {
    canonical(&base.join(href).ok()?)
}

/// Returns the first distinct anchors in document order.
fn first_distinct(mut numbered: Vec<(usize, String)>) -> Vec<String> {
    numbered.sort_unstable_by_key(|(number, _)| *number);
    let mut anchors: Vec<String> = Vec::new();
    for (_, anchor) in numbered {
        if anchors.len() < ANCHORS_PER_LINK_MAX && !anchors.contains(&anchor) {
            anchors.push(anchor);
        }
    }
    anchors
}

fn without_fragment(href: &str) -> &str {
    let href = href.trim_ascii();
    href.split_once('#').map_or(href, |(before, _)| before)
}

/// Returns whether an `href` has a scheme other than http and https.
fn has_other_scheme(href: &str) -> bool {
    let Some((scheme, _)) = href.split_once(':') else { return false };
    scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
        && !scheme.eq_ignore_ascii_case("http")
        && !scheme.eq_ignore_ascii_case("https")
}
