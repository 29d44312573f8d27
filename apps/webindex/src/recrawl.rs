//! Plans a recrawl from a seed: which pages change, and how.
//!
//! It imitates what a crawler finds on the live web, reproducibly. Of a few percent of the
//! pages, most have been edited, some are gone, and some are unchanged. The plan chooses pages
//! by their place in the sorted list of URLs, and each edit depends only on the seed and the
//! URL. So an interrupted recrawl can be done again from the start with the same result.

use crate::Error;
use crate::charset;
use crate::prng::Prng;

/// The percentages of the planned pages that are edited and deleted. The remaining pages are
/// crawled again without a change.
pub const EDITED_PERCENT: usize = 60;
/// See [`EDITED_PERCENT`].
pub const DELETED_PERCENT: usize = 20;

/// The percentages of edited pages that become redirects, and that declare a canonical URL.
const REDIRECT_PERCENT: usize = 5;
const CANONICAL_PERCENT: usize = 10;

/// The action on a page.
///
/// ```
/// assert_ne!(webindex::recrawl::Action::Edit, webindex::recrawl::Action::Delete);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Edit the page, see [`edit`].
    Edit,
    /// Delete the page.
    Delete,
    /// Crawl the page again without a change.
    Unchanged,
}

/// One step of a recrawl.
///
/// ```
/// use webindex::recrawl::{Action, plan};
///
/// let urls: Vec<String> = (0..1000).map(|n| format!("https://example.org/{n}")).collect();
/// let steps = plan(&urls, 1.0, 7)?;
/// assert_eq!(steps.len(), 10);
/// assert_eq!(steps.iter().filter(|step| step.action == Action::Delete).count(), 2);
/// # Ok::<(), webindex::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<'u> {
    /// The page.
    pub url: &'u str,
    /// The action on the page.
    pub action: Action,
}

/// Chooses `percent` of the pages, rounded up, in the order in which they are recrawled.
///
/// The plan depends on the order of `urls`, so pass them sorted: then the same pages give the
/// same plan.
///
/// # Errors
///
/// [`Error::OutOfRange`] if `percent` is not from 0 to 100.
pub fn plan(urls: &[String], percent: f64, seed: u64) -> Result<Vec<Step<'_>>, Error> {
    if !(0.0..=100.0).contains(&percent) {
        let given = percent.abs() as u64;
        let allowed = "0 to 100".to_string();
        return Err(Error::OutOfRange { what: "the percentage of pages", given, allowed });
    }
    let mut order: Vec<&str> = urls.iter().map(String::as_str).collect();
    Prng::new(seed).shuffle(&mut order);
    // The product is at most the number of URLs, so the conversion is exact.
    order.truncate((urls.len() as f64 * percent / 100.0).ceil() as usize);
    let edited = (order.len() * EDITED_PERCENT).div_ceil(100);
    let deleted = (order.len() * DELETED_PERCENT).div_ceil(100);
    let steps = order.into_iter().enumerate().map(|(place, url)| Step {
        url,
        action: match place {
            place if place < edited => Action::Edit,
            place if place < edited + deleted => Action::Delete,
            _ => Action::Unchanged,
        },
    });
    let mut steps: Vec<Step<'_>> = steps.collect();
    // Mix edits, deletions and unchanged pages, instead of one kind after the other.
    Prng::for_item(seed, 1).shuffle(&mut steps);
    Ok(steps)
}

/// Returns the random numbers for editing one page.
pub fn prng_for(url: &str, seed: u64) -> Prng {
    let digest = blake3::hash(url.as_bytes());
    let first = digest.as_bytes().first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Prng::for_item(seed, first)
}

/// Edits a page. Changes its title, removes one link, and adds a paragraph with words that no
/// other page has and a link to one of `targets`. A few pages also become a redirect to one of
/// `targets`, or declare one of them as canonical.
///
/// The result differs from the page, has its encoding (UTF-16 becomes UTF-8), and depends only
/// on the arguments.
///
/// ```
/// use webindex::recrawl::{edit, prng_for};
///
/// let targets = ["https://example.org/b".to_string()];
/// let url = "https://example.org/a";
/// let edited = edit(b"<title>A</title><p>text", &targets, &mut prng_for(url, 7));
/// assert_eq!(edited, edit(b"<title>A</title><p>text", &targets, &mut prng_for(url, 7)));
/// assert!(String::from_utf8_lossy(&edited).contains("example.org/b"));
/// ```
pub fn edit(page: &[u8], targets: &[String], prng: &mut Prng) -> Vec<u8> {
    let mut bytes = ascii_compatible(page);
    let mark = format!("{:012x}", prng.next_u64() >> 16);
    remove_link(&mut bytes, prng);
    let target = prng.pick(targets).map(|target| escape(target));
    let link = target
        .as_ref()
        .map_or(String::new(), |target| format!(" See also <a href=\"{target}\">page {mark}</a>."));
    let paragraph = format!("\n<p>Edited in a recrawl, revision rev{mark}.{link}</p>\n");
    let end = rfind(&bytes, b"</body").unwrap_or(bytes.len());
    insert(&mut bytes, end, &paragraph);
    let title_end = find(&bytes, b"</title", 0);
    match title_end {
        Some(at) => insert(&mut bytes, at, &format!(" (rev{mark})")),
        None => insert_in_head(&mut bytes, &format!("<title>Page rev{mark}</title>\n")),
    }
    if let Some(target) = target {
        if prng.percent(REDIRECT_PERCENT) {
            let content = format!("content=\"0; url={target}\"");
            insert_in_head(&mut bytes, &format!("<meta http-equiv=\"refresh\" {content}>\n"));
        } else if prng.percent(CANONICAL_PERCENT) {
            insert_in_head(&mut bytes, &format!("<link rel=\"canonical\" href=\"{target}\">\n"));
        }
    }
    bytes
}

/// Returns the page in an encoding that writes tags in ASCII.
fn ascii_compatible(page: &[u8]) -> Vec<u8> {
    let is_utf_16 = page.starts_with(b"\xff\xfe") || page.starts_with(b"\xfe\xff");
    if !is_utf_16 {
        return page.to_vec();
    }
    let mut bytes = b"\xef\xbb\xbf".to_vec();
    bytes.extend_from_slice(charset::decode(page).text.as_bytes());
    bytes
}

/// Turns one of the page's links into an anchor that leads nowhere. Its text stays.
fn remove_link(bytes: &mut [u8], prng: &mut Prng) {
    let mut links = Vec::new();
    let mut from = 0;
    while let Some(tag) = find(bytes, b"<a ", from) {
        let end = bytes[tag..].iter().position(|&b| b == b'>').map_or(bytes.len(), |at| tag + at);
        if let Some(href) = find(&bytes[..end], b"href", tag) {
            links.push(href);
        }
        from = end;
    }
    if let Some(&href) = prng.pick(&links) {
        bytes[href..href + b"name".len()].copy_from_slice(b"name");
    }
}

/// Inserts after `<head>`, or else after the doctype, or else after a byte order mark.
fn insert_in_head(bytes: &mut Vec<u8>, text: &str) {
    let after = |tag: &[u8]| {
        let start = find(bytes, tag, 0)?;
        Some(start + bytes[start..].iter().position(|&b| b == b'>')? + 1)
    };
    let bom = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let at = after(b"<head>").or_else(|| after(b"<head ")).or_else(|| after(b"<!doctype"));
    insert(bytes, at.unwrap_or(bom), text);
}

fn insert(bytes: &mut Vec<u8>, at: usize, text: &str) {
    bytes.splice(at..at, text.bytes());
}

fn find(bytes: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let at = rest.windows(needle.len()).position(|window| window.eq_ignore_ascii_case(needle))?;
    Some(from + at)
}

fn rfind(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).rposition(|window| window.eq_ignore_ascii_case(needle))
}

/// Escapes a URL for a double-quoted attribute.
fn escape(url: &str) -> String {
    url.replace('&', "&amp;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::html::parse;

    fn urls(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("https://example.org/{n:04}")).collect()
    }

    fn count(steps: &[Step<'_>], action: Action) -> usize {
        steps.iter().filter(|step| step.action == action).count()
    }

    #[test]
    fn a_plan_has_the_shares_asked_for() {
        let urls = urls(1_000);
        let steps = plan(&urls, 5.0, 7).unwrap();
        assert_eq!(steps.len(), 50);
        assert_eq!(count(&steps, Action::Edit), 30);
        assert_eq!(count(&steps, Action::Delete), 10);
        assert_eq!(count(&steps, Action::Unchanged), 10);
        let mut pages: Vec<&str> = steps.iter().map(|step| step.url).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 50, "each page at most once");
        assert_eq!(plan(&urls, 5.0, 7).unwrap(), steps);
        assert_ne!(plan(&urls, 5.0, 8).unwrap(), steps);
    }

    #[test]
    fn plans_at_the_limits() {
        let urls = urls(10);
        assert!(plan(&urls, 0.0, 1).unwrap().is_empty());
        assert_eq!(plan(&urls, 0.1, 1).unwrap().len(), 1, "rounded up");
        assert_eq!(plan(&urls, 100.0, 1).unwrap().len(), 10);
        assert!(plan(&[], 100.0, 1).unwrap().is_empty());
        for percent in [-1.0, 100.5, f64::NAN, f64::INFINITY] {
            let error = plan(&urls, percent, 1).unwrap_err();
            assert!(error.to_string().contains("0 to 100"), "{error}");
        }
    }

    #[test]
    fn an_edit_changes_title_text_and_links() {
        let page = b"<!DOCTYPE html><html><head><title>Old</title></head><body><p>Text \
            <a class=x href=one.html>one</a> <A HREF=two.html>two</A></body></html>";
        let at = Url::parse("https://example.org/dir/a.html").unwrap();
        let before = parse(&at, page).unwrap();
        let targets = ["https://other.org/?a=1&b=2".to_string()];
        for seed in 0..50 {
            let edited = edit(page, &targets, &mut prng_for(at.as_str(), seed));
            let after = parse(&at, &edited).unwrap();
            assert!(after.title.starts_with("Old (rev"), "{}", after.title);
            assert!(after.text.starts_with("Text one two Edited in a recrawl"), "{}", after.text);
            assert_eq!(after.links.len(), before.links.len(), "one more and one less");
            assert!(after.links.iter().any(|link| link.url == "https://other.org/?a=1&b=2"));
            assert_ne!(after.content_hash, before.content_hash);
        }
    }

    #[test]
    fn some_edits_make_redirects_and_canonicals() {
        let at = Url::parse("https://example.org/a").unwrap();
        let targets = urls(3);
        let (mut redirects, mut canonicals) = (0, 0);
        for seed in 0..400 {
            let edited = edit(b"<title>T</title><p>x", &targets, &mut prng_for(at.as_str(), seed));
            let after = parse(&at, &edited).unwrap();
            redirects += usize::from(after.redirect.is_some());
            canonicals += usize::from(after.canonical.is_some());
        }
        assert!((5..50).contains(&redirects), "{redirects}");
        assert!((15..80).contains(&canonicals), "{canonicals}");
    }

    #[test]
    fn any_page_can_be_edited_and_differs() {
        let utf_16: Vec<u8> = "\u{feff}<p>é".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let at = Url::parse("https://example.org/a").unwrap();
        for page in [&b""[..], b"<a href", b"<a ", b"<p>caf\xe9", b"</body>", b"<head ", &utf_16] {
            let edited = edit(page, &[], &mut prng_for("a", 1));
            assert_ne!(edited, page);
            assert!(parse(&at, &edited).unwrap().title.starts_with("Page rev"));
        }
        let edited = edit(&utf_16, &[], &mut prng_for("a", 1));
        assert!(parse(&at, &edited).unwrap().text.starts_with('é'));
    }

    #[test]
    fn pages_have_edits_of_their_own() {
        let edit_of = |url: &str, seed| edit(b"<p>x", &urls(9), &mut prng_for(url, seed));
        assert_eq!(edit_of("a", 1), edit_of("a", 1));
        assert_ne!(edit_of("a", 1), edit_of("b", 1));
        assert_ne!(edit_of("a", 1), edit_of("a", 2));
    }
}
