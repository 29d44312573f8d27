//! What a page is found by, and its coming and going.

use std::path::Path;

use tantivy::TantivyError;

use crate::Error;

/// The state of a page to be shown, or its deletion.
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
    /// The number of the state: of two updates of one URL, the higher one is newer.
    pub seq: u64,
    /// What to show; `None` deletes.
    pub page: Option<IndexedPage>,
}

/// What a page is found by.
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
    /// How many hyperlinks the page has. A page with little text for each of them scores less.
    pub hyperlinks: u64,
    /// What links to the page say; the order counts for the digest.
    pub anchors: Vec<String>,
}

impl IndexedPage {
    /// Returns a digest of title, text, anchors and the number of hyperlinks: 128 bits of BLAKE3.
    pub fn digest(&self) -> u128 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.hyperlinks.to_le_bytes());
        let parts = [&self.title, &self.text].into_iter().chain(&self.anchors);
        for part in parts {
            // The length goes first, so that no two lists of parts look the same.
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
