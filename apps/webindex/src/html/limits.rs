//! The limits on how much of a page is read, and the reasons to skip a page.

/// The largest page, in bytes as stored. Larger pages are skipped.
pub const PAGE_BYTES_MAX: usize = 16 << 20;

/// The most distinct targets that one page may link to. Pages with more are skipped.
pub const LINKS_PER_PAGE_MAX: usize = 50_000;

/// How many distinct anchors are kept for each target, in document order. Further ones are
/// dropped.
pub const ANCHORS_PER_LINK_MAX: usize = 8;

/// The length at which an anchor is cut, in characters.
pub const ANCHOR_CHARS_MAX: usize = 160;

/// The length at which a title is cut, in bytes, at a character boundary.
pub const TITLE_BYTES_MAX: usize = 1024;

/// The most attributes that a tag may have. A page with more in any tag is skipped.
///
/// Repeated attributes count, and so do those of a tag that never ends. No page written by
/// people comes near this limit. Pages beyond it are data, or were made to keep parsers busy.
pub const ATTRIBUTES_PER_TAG_MAX: usize = 1_000;

/// The longest delay at which a meta refresh counts as a redirect.
///
/// A page that is shown for longer is meant to be read.
pub const REDIRECT_SECONDS_MAX: u64 = 10;

/// The reason why a page is not indexed. A loader counts these by [`Skip::name`] and goes on.
///
/// ```
/// use webindex::html::{Skip, parse};
///
/// let url = url::Url::parse("https://example.org/logo.html").expect("a URL");
/// assert_eq!(parse(&url, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), Err(Skip::Binary));
/// assert_eq!(parse(&url, b"").unwrap_err().name(), "empty");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Skip {
    /// The page has no bytes, or only white space.
    #[error("the page is empty")]
    Empty,
    /// The page has more than [`PAGE_BYTES_MAX`] bytes.
    #[error("the page has {bytes} bytes, and pages of more than {PAGE_BYTES_MAX} are not indexed")]
    TooLarge {
        /// The size of the page.
        bytes: usize,
    },
    /// The page links to more than [`LINKS_PER_PAGE_MAX`] targets.
    #[error(
        "the page links to {links} different pages, and pages with more than {LINKS_PER_PAGE_MAX} \
         links are not indexed"
    )]
    TooManyLinks {
        /// The number of distinct targets.
        links: usize,
    },
    /// A tag has more than [`ATTRIBUTES_PER_TAG_MAX`] attributes.
    #[error("a tag of the page has more than {ATTRIBUTES_PER_TAG_MAX} attributes")]
    TooManyAttributes,
    /// The file is not text: an image or an archive, for example, with the name of a page.
    #[error("the file is binary data, not HTML")]
    Binary,
    /// The file is text without a single HTML tag.
    #[error("the file has no HTML tag")]
    NoMarkup,
    /// The page asks robots not to index it: `<meta name=robots content=noindex>`.
    #[error("the page asks not to be indexed (robots noindex)")]
    NoIndex,
}

impl Skip {
    /// Returns a short name of the reason, for counting.
    pub fn name(&self) -> &'static str {
        match self {
            Skip::Empty => "empty",
            Skip::TooLarge { .. } => "too-large",
            Skip::TooManyLinks { .. } => "too-many-links",
            Skip::TooManyAttributes => "too-many-attributes",
            Skip::Binary => "binary",
            Skip::NoMarkup => "no-markup",
            Skip::NoIndex => "noindex",
        }
    }
}
