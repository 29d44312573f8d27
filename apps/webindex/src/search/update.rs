//! The updates of the search index: the content by which a page is found, or its deletion.

use std::path::Path;

use tantivy::TantivyError;

use crate::Error;

/// A new state of a page, or its deletion.
///
/// ```
/// use webindex::search::Update;
///
/// let delete = Update { url: "https://example.org/a".into(), seq: 7, page: None };
/// assert!(delete.page.is_none());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The canonical URL.
    pub url: String,
    /// The number of the state. Among updates of one URL, a higher number is newer.
    pub seq: u64,
    /// The page to show. `None` deletes the page.
    pub page: Option<IndexedPage>,
}

/// The content by which a page is found.
///
/// ```
/// use webindex::search::IndexedPage;
///
/// let page = IndexedPage { title: "Fish".into(), ..IndexedPage::default() };
/// let other = IndexedPage { text: "Fish".into(), ..IndexedPage::default() };
/// assert_ne!(page.digest(), other.digest());
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IndexedPage {
    /// The title.
    pub title: String,
    /// The visible text.
    pub text: String,
    /// How many hyperlinks the page has. A page with little text for each hyperlink scores
    /// less.
    pub hyperlinks: u64,
    /// The anchor texts of links to the page. Their order counts for the digest.
    pub anchors: Vec<String>,
}

impl IndexedPage {
    /// Returns a digest of title, text, anchors and the number of hyperlinks: 128 bits of BLAKE3.
    pub fn digest(&self) -> u128 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.hyperlinks.to_le_bytes());
        let parts = [&self.title, &self.text].into_iter().chain(&self.anchors);
        for part in parts {
            // The length comes first, so that no two lists of parts have the same bytes.
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut digest = [0; 16];
        hasher.finalize_xof().fill(&mut digest);
        u128::from_be_bytes(digest)
    }
}

pub(super) fn failed(action: &'static str, path: &Path, source: TantivyError) -> Error {
    Error::Index { action, path: path.to_path_buf(), source: Box::new(source) }
}
