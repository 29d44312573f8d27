//! How much of a page is read, and what a page that has more comes to.

/// The largest page, in bytes as stored; larger ones are skipped.
pub const PAGE_BYTES_MAX: usize = 16 << 20;

/// The most distinct targets that one page may link to; pages with more are skipped.
pub const LINKS_PER_PAGE_MAX: usize = 50_000;

/// How many distinct anchors are kept per target, in document order; further ones are dropped.
pub const ANCHORS_PER_LINK_MAX: usize = 8;

/// Where an anchor is cut, in characters.
pub const ANCHOR_CHARS_MAX: usize = 160;

/// Where a title is cut, in bytes, at a character boundary.
pub const TITLE_BYTES_MAX: usize = 1024;

/// The most attributes that a tag may have; a page with more in any tag is skipped.
///
/// Repeated ones count, and so do those of a tag that never ends. Nothing that people wrote comes
/// near this: what does is data, or made to keep parsers busy.
pub const ATTRIBUTES_PER_TAG_MAX: usize = 1_000;

/// The longest delay of a meta refresh that is taken for a redirect.
///
/// A page that stays for longer is meant to be read.
pub const REDIRECT_SECONDS_MAX: u64 = 10;

/// Why a page is not indexed. A loader counts these by [`Skip::name`] and goes on.
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
    /// No bytes, or nothing but white space.
    #[error("the page is empty")]
    Empty,
    /// More than [`PAGE_BYTES_MAX`].
    #[error("the page has {bytes} bytes, indexed are up to {PAGE_BYTES_MAX}")]
    TooLarge {
        /// The size of the page.
        bytes: usize,
    },
    /// More than [`LINKS_PER_PAGE_MAX`].
    #[error("the page links to {links} different pages, indexed are up to {LINKS_PER_PAGE_MAX}")]
    TooManyLinks {
        /// The number of distinct targets.
        links: usize,
    },
    /// A tag with more than [`ATTRIBUTES_PER_TAG_MAX`] attributes.
    #[error("a tag of the page has more than {ATTRIBUTES_PER_TAG_MAX} attributes")]
    TooManyAttributes,
    /// Not text: an image, an archive or the like with the name of a page.
    #[error("the file is binary data, not HTML")]
    Binary,
    /// Text without a single HTML tag.
    #[error("the file has no HTML tag")]
    NoMarkup,
    /// The page asks robots not to index it: `<meta name=robots content=noindex>`.
    #[error("the page asks not to be indexed (robots noindex)")]
    NoIndex,
}

impl Skip {
    /// Returns a short name of the reason, to count by.
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
