//! Reads a page: its title, visible text, links with their anchors, redirect and canonical
//! URL.
//!
//! The tokenizer of html5gum, which follows the HTML standard, feeds a page into a sink. The
//! sink keeps the parts that an index needs. No tree is built: nothing here needs one, and the
//! tree of a hostile page can be deep enough to overflow a stack. Instead of a tree builder,
//! the sink decides:
//!
//! * which elements hold raw text (`script`, `style`, `textarea`, `title`, ...);
//! * that `svg` content is foreign, until a tag that cannot occur in it shows that it was not
//!   closed;
//! * that an `<a>` inside an `<a>` ends the outer one.
//!
//! ```text
//! bytes --charset--> text --tokenizer--> pieces --feed--> tags and text
//!       --sink--> raw links and words --resolve--> ParsedPage
//! ```
//!
//! Invariants:
//!
//! * [`parse`] is a pure function of the page's URL and bytes, and never panics.
//! * Its time is linear in the number of bytes, whatever they are, and its memory is a small
//!   multiple of them. The tokenizer never goes back, and only the needed attributes of a tag
//!   are kept.
//! * A limit either cuts, as the constants say, or makes the page a [`Skip`]. No page is
//!   partly indexed without a trace.
//!
//! Not here: what CSS and scripts would show or hide, frames, and `robots.txt`, which concerns
//! the program that fetches pages. A page's own `noindex` is a [`Skip`].

use url::Url;

use crate::address::canonical;
use crate::charset;

mod elements;
mod feed;
mod limits;
mod links;
mod refresh;
mod resolve;
mod sink;
mod tag;
mod words;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

pub use limits::{
    ANCHOR_CHARS_MAX, ANCHORS_PER_LINK_MAX, ATTRIBUTES_PER_TAG_MAX, LINKS_PER_PAGE_MAX,
    PAGE_BYTES_MAX, REDIRECT_SECONDS_MAX, Skip, TITLE_BYTES_MAX,
};
pub use links::Link;

/// How many characters at a page's start are checked for binary data.
const BINARY_CHECK_CHARS: usize = 4096;

/// The parts of a page that an index needs.
///
/// ```
/// use webindex::html::parse;
///
/// let url = url::Url::parse("https://example.org/")?;
/// let page = parse(&url, b"<h1>Fish</h1><a href=a><img alt=Cod></a> and <a href=/a>more</a>")?;
/// assert_eq!(page.text, "Fish and more");
/// assert_eq!(page.hyperlinks, 2);
/// assert_eq!(page.links[0].anchors, ["Cod", "more"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedPage {
    /// The first title that is not empty, or the empty string.
    pub title: String,
    /// The visible text: words separated by single spaces.
    pub text: String,
    /// The link targets, each once, sorted by URL. Never the page itself.
    pub links: Vec<Link>,
    /// How many `<a href>` and `<area href>` lead to an http or https URL, including the page
    /// itself.
    pub hyperlinks: usize,
    /// How many of these links were left out because the URL is longer than
    /// [`URL_BYTES_MAX`](crate::address::URL_BYTES_MAX).
    pub overlong_links: usize,
    /// The target of a meta refresh within [`REDIRECT_SECONDS_MAX`], unless it is the page
    /// itself.
    pub redirect: Option<String>,
    /// The first `rel=canonical`, which may name the page itself.
    pub canonical: Option<String>,
    /// BLAKE3 of title and text. `None` if there is no text, because such pages cannot be
    /// compared.
    pub content_hash: Option<[u8; 32]>,
    /// The name of the encoding that the page was decoded from.
    pub encoding: &'static str,
}

/// Parses the page that is stored at the URL `page`. Links are resolved against that URL.
///
/// A truncated document is a page: the part before the cut counts, as in a browser.
///
/// # Errors
///
/// [`Skip`] with the reason why the page must not be indexed. The loader counts and reports
/// it.
pub fn parse(page: &Url, bytes: &[u8]) -> Result<ParsedPage, Skip> {
    if bytes.len() > PAGE_BYTES_MAX {
        return Err(Skip::TooLarge { bytes: bytes.len() });
    }
    let decoded = charset::decode(bytes);
    screen_text(&decoded.text)?;
    let found = feed::run(&decoded.text)?;
    if !found.has_markup {
        return Err(Skip::NoMarkup);
    }
    if found.no_index {
        return Err(Skip::NoIndex);
    }
    let here = canonical(page);
    let base = found.base_of(page);
    let resolved = found.links.resolve(&base, here.as_deref())?;
    let redirect = found.redirect.and_then(|href| links::target(&base, &href));
    let title = found.title.cut_at_byte(TITLE_BYTES_MAX).to_string();
    let text = found.text.finish();
    Ok(ParsedPage {
        content_hash: content_hash(&title, &text),
        title,
        text,
        links: resolved.links,
        hyperlinks: resolved.hyperlinks,
        overlong_links: resolved.overlong,
        redirect: redirect.filter(|target| Some(target) != here.as_ref()),
        canonical: found.canonical.and_then(|href| links::target(&base, &href)),
        encoding: decoded.encoding,
    })
}

/// Decides without parsing whether a file is certainly not a page, so that a loader need not
/// store it.
///
/// ```
/// use webindex::html::{Skip, screen};
///
/// assert_eq!(screen(b" \n"), Err(Skip::Empty));
/// assert_eq!(screen(b"<p>a page"), Ok(()));
/// ```
///
/// # Errors
///
/// The [`Skip`] that [`parse`] would return, if the start of the file shows it already.
pub fn screen(bytes: &[u8]) -> Result<(), Skip> {
    if bytes.len() > PAGE_BYTES_MAX {
        return Err(Skip::TooLarge { bytes: bytes.len() });
    }
    // Enough text to know that it is not blank, and all the text that the check for binary
    // data needs.
    let enough = |text: &str| !is_blank(text) && text.chars().count() >= BINARY_CHECK_CHARS;
    screen_text(&charset::decode_start(bytes, enough))
}

fn screen_text(text: &str) -> Result<(), Skip> {
    if is_blank(text) {
        return Err(Skip::Empty);
    }
    if is_binary(text) {
        return Err(Skip::Binary);
    }
    Ok(())
}

/// Returns the hash by which pages with equal content are found.
///
/// ```
/// use webindex::html::content_hash;
///
/// assert_eq!(content_hash("a", ""), None);
/// assert_ne!(content_hash("a", "b c"), content_hash("a b", "c"));
/// ```
pub fn content_hash(title: &str, text: &str) -> Option<[u8; 32]> {
    if text.is_empty() {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(title.as_bytes());
    // Normalised text has no line feed, so the separator keeps title and text apart.
    hasher.update(b"\n");
    hasher.update(text.as_bytes());
    Some(*hasher.finalize().as_bytes())
}

fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

/// Returns whether the text is binary data: a NUL early on, or more than a tenth control
/// characters.
///
/// Replacement characters count as control characters, because undecodable bytes become them.
fn is_binary(text: &str) -> bool {
    if is_surely_text(text.as_bytes()) {
        return false;
    }
    let mut seen = 0_usize;
    let mut odd = 0_usize;
    for c in text.chars().take(BINARY_CHECK_CHARS) {
        seen += 1;
        match c {
            '\0' => return true,
            '\u{fffd}' => odd += 1,
            c if c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{c}') => odd += 1,
            _ => {}
        }
    }
    odd * 10 > seen
}

/// Returns whether the bytes alone show that a text is not binary in the sense of
/// [`is_binary`].
///
/// For nearly every page they do, and counting bytes is much cheaper than decoding characters.
fn is_surely_text(bytes: &[u8]) -> bool {
    let (mut seen, mut at) = (0, 0);
    while seen < BINARY_CHECK_CHARS && at < bytes.len() {
        let end = (at + BINARY_CHECK_CHARS - seen).min(bytes.len());
        seen += count(&bytes[at..end], |byte| byte & 0xc0 != 0x80);
        at = end;
    }
    let start = &bytes[..at];
    // Every character that counts as odd begins with one of these bytes. So do some others.
    let suspects = count(start, |byte| is_odd_ascii(byte) | (byte == 0xc2) | (byte == 0xef));
    suspects * 10 <= seen && !start.contains(&0)
}

/// Counts bytes, many at a time: a chunk is short enough for its count to fit into a byte.
fn count(bytes: &[u8], counts: impl Fn(u8) -> bool) -> usize {
    let in_chunk = |chunk: &[u8]| chunk.iter().map(|&byte| u8::from(counts(byte))).sum::<u8>();
    bytes.chunks(usize::from(u8::MAX)).map(|chunk| usize::from(in_chunk(chunk))).sum()
}

/// Has no table and no branch, so that the compiler can process many bytes at a time.
fn is_odd_ascii(byte: u8) -> bool {
    let is_space = (byte.wrapping_sub(b'\t') < 5) & (byte != 0x0b);
    ((byte < b' ') & !is_space) | (byte == 0x7f)
}
