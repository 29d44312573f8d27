//! The records in the index's cells, and their encoding with postcard.

use percolator::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::html::{Link, ParsedPage};
use crate::tables::ClusterId;

/// The largest size that a stored document may claim. It is twice the largest page, because a
/// recrawl's edits may add to such a page.
const STORED_BYTES_MAX: usize = 2 * crate::html::PAGE_BYTES_MAX;

/// The hash of a document and its load time, so that an unchanged document is not loaded
/// again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fetch {
    pub(crate) content_hash: [u8; 32],
    pub(crate) loaded_ms: u64,
}

/// The result of parsing a page: its text, or the reason why it is not indexed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Page {
    Indexed { title: String, text: String, hyperlinks: u64 },
    Skipped { reason: String },
}

/// The properties by which a page is clustered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keys {
    pub(crate) content: Option<[u8; 32]>,
    pub(crate) redirect: Option<String>,
    pub(crate) canonical: Option<String>,
}

impl Keys {
    pub(crate) fn of(page: &ParsedPage) -> Self {
        Keys {
            content: page.content_hash,
            redirect: page.redirect.clone(),
            canonical: page.canonical.clone(),
        }
    }

    /// The address that the page at `url` stands for: the target of its redirect, or else
    /// another page that it declares as canonical.
    pub(crate) fn stands_for(&self, url: &str) -> Option<&str> {
        let declared = || self.canonical.as_deref().filter(|canonical| *canonical != url);
        self.redirect.as_deref().or_else(declared)
    }

    /// The cluster of the page at `url`, unless the page stands for another. A page without
    /// text equals no other page.
    pub(crate) fn own_cluster(&self, url: &str) -> Option<ClusterId> {
        let of_text =
            || self.content.map_or_else(|| ClusterId::of_address(url), ClusterId::of_content);
        self.stands_for(url).is_none().then(of_text)
    }
}

/// A page's place in a cluster. Every transaction that changes this place, or the rank that
/// decides it, writes this record. So two such transactions conflict, and none works with an
/// old state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// The address that the page stands for, if it redirects or declares another page.
    pub(crate) stands_for: Option<String>,
    /// The page's cluster, and the rank that decided its place there. `None` until the page is
    /// settled.
    pub(crate) placed: Option<(ClusterId, f64)>,
    /// While a spread is in progress: the last page to which it has given the cluster.
    pub(crate) told: Option<String>,
}

impl Member {
    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        self.placed.map(|(cluster, _)| cluster)
    }

    /// Whether the address is not a page of a cluster. Its record says that pages stood for it, and
    /// holds the progress of a spread.
    pub(crate) fn is_gone(&self) -> bool {
        self.stands_for.is_none() && self.placed.is_none()
    }
}

/// A page's links, sorted by target.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Links(pub(crate) Vec<(String, Vec<String>)>);

impl Links {
    pub(crate) fn of(links: &[Link]) -> Self {
        Links(links.iter().map(|link| (link.url.clone(), link.anchors.clone())).collect())
    }
}

/// Encodes a record.
pub(crate) fn encode<T: Serialize>(record: &T) -> Bytes {
    postcard::to_stdvec(record).expect("records are plain data, which always encodes").into()
}

/// Encodes a document for storage. It is compressed, because most of the written bytes are
/// documents.
pub(crate) fn encode_content(content: &[u8]) -> Bytes {
    lz4_flex::compress_prepend_size(content).into()
}

/// Decodes a stored document.
pub(crate) fn decode_content(stored: &[u8]) -> percolator::Result<Vec<u8>> {
    let size = stored.first_chunk::<4>().map(|size| u32::from_le_bytes(*size));
    if size.is_none_or(|size| size as usize > STORED_BYTES_MAX) {
        return Err(percolator::Error::application("the stored document is damaged"));
    }
    lz4_flex::decompress_size_prepended(stored).map_err(percolator::Error::application)
}

/// Decodes the record in a cell, if the cell exists.
pub(crate) fn decode<T: DeserializeOwned>(value: Option<Bytes>) -> percolator::Result<Option<T>> {
    let decode =
        |value: Bytes| postcard::from_bytes(&value).map_err(percolator::Error::application);
    value.map(decode).transpose()
}

/// Decodes the URL in a cell, if the cell exists.
pub(crate) fn decode_url(value: Option<Bytes>) -> percolator::Result<Option<String>> {
    let decode = |value: Bytes| String::from_utf8(value.to_vec());
    value.map(decode).transpose().map_err(percolator::Error::application)
}

/// Decodes the rank in a cell. A page that was not ranked yet has rank zero.
pub(crate) fn decode_rank(value: Option<&Bytes>) -> f64 {
    let bytes = value.and_then(|value| <[u8; 8]>::try_from(&value[..]).ok());
    bytes.map_or(0.0, f64::from_be_bytes)
}

pub(crate) fn encode_rank(rank: f64) -> Bytes {
    Bytes::copy_from_slice(&rank.to_be_bytes())
}
