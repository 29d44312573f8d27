//! Generates documents to crawl, with random clustering keys.
//!
//! The paper draws three keys uniformly from 750 million for a billion documents. This ratio
//! gives 3.28 documents per cluster, and 92.5 % of them in clusters of more than one, at any
//! size.

use percolator::{Bytes, Error, Result, RowKey};

/// The number of keys of a document: the paper's three, and one that is first used later.
pub const KEYS: usize = 4;
/// The number of keys by which the repository is clustered at first.
pub const KEYS_AT_FIRST: usize = 3;
/// The length of a body in bytes. With keys and bookkeeping a document takes 1 KB, as in the
/// paper.
pub const BODY_BYTES: usize = 944;

/// A crawled document, without its body.
///
/// ```
/// let document = clustering::Corpus::new(1000, 1).document(5);
/// assert!(document.id == 5 && document.keys.iter().all(|key| *key < 750));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document {
    /// The document's position in the order of arrival.
    pub id: u64,
    /// The document's clustering keys.
    pub keys: [u64; KEYS],
}

impl Document {
    /// The document's row in the repository. The order of rows is independent of the order of
    /// arrival, like that of a crawl's URLs.
    pub fn row(&self) -> RowKey {
        key_row(self.id)
    }

    /// The id of the document in a row. `None` if no document has this key.
    ///
    /// ```
    /// let document = clustering::Corpus::new(1000, 1).document(5);
    /// assert_eq!(clustering::Document::id_of(&document.row()), Some(5));
    /// ```
    pub fn id_of(row: &RowKey) -> Option<u64> {
        let bytes = row.as_bytes().try_into().ok()?;
        Some(unmix(u64::from_be_bytes(bytes)))
    }

    pub(crate) fn encode(&self) -> Bytes {
        let numbers = std::iter::once(self.id).chain(self.keys);
        Bytes::from_iter(numbers.flat_map(u64::to_be_bytes))
    }

    pub(crate) fn decode(record: &[u8]) -> Result<Self> {
        let (words, rest) = record.as_chunks::<8>();
        let bad = || Error::application(format!("a record of {} bytes", record.len()));
        let [id, keys @ ..] = words else { return Err(bad()) };
        let keys: [[u8; 8]; KEYS] = keys.try_into().map_err(|_| bad())?;
        if !rest.is_empty() {
            return Err(bad());
        }
        Ok(Document { id: u64::from_be_bytes(*id), keys: keys.map(u64::from_be_bytes) })
    }
}

/// The row of a clustering key in its index table. Keys are mixed, so that rows spread evenly.
///
/// ```
/// assert_ne!(clustering::key_row(7), clustering::key_row(8));
/// ```
pub fn key_row(key: u64) -> RowKey {
    RowKey::from(mix(key).to_be_bytes().to_vec())
}

/// A seeded source of documents: the same seed gives the same documents, in any order.
///
/// ```
/// use clustering::{BODY_BYTES, Corpus};
/// let corpus = Corpus::new(1000, 1);
/// assert_eq!(corpus.key_space(), 750);
/// assert_eq!(corpus.document(7), Corpus::new(1000, 1).document(7));
/// assert_eq!(corpus.body(7).len(), BODY_BYTES);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corpus {
    seed: u64,
    key_space: u64,
}

impl Corpus {
    /// A corpus for a repository that begins with `documents` documents.
    pub fn new(documents: u64, seed: u64) -> Self {
        Corpus { seed, key_space: (documents * 3 / 4).max(1) }
    }

    /// The number of values from which each key is drawn.
    pub fn key_space(&self) -> u64 {
        self.key_space
    }

    /// The document with this id.
    pub fn document(&self, id: u64) -> Document {
        let mut stream = self.stream(id);
        let keys = std::array::from_fn(|_| {
            // Take the high half of the product. The bias is below 2^-32 for any repository
            // that fits on a disk.
            let product = u128::from(stream.next()) * u128::from(self.key_space);
            (product >> 64) as u64
        });
        Document { id, keys }
    }

    /// The document's body: random bytes, so that no store gains from compression.
    pub fn body(&self, id: u64) -> Bytes {
        let mut body = vec![0; BODY_BYTES];
        self.fill_body(id, &mut body);
        body.into()
    }

    pub(crate) fn fill_body(&self, id: u64, body: &mut [u8]) {
        let mut stream = self.stream(!id);
        for word in body.as_chunks_mut::<8>().0 {
            *word = stream.next().to_le_bytes();
        }
    }

    fn stream(&self, item: u64) -> Stream {
        Stream(mix(mix(self.seed) ^ item))
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014), whose state is a counter.
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// SplitMix64's finaliser: it maps different numbers to different numbers.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The inverse of [`mix`]: its factors are the inverses of those in `mix`.
fn unmix(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    z ^ (z >> 30) ^ (z >> 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_others_are_refused() {
        let document = Corpus::new(10, 3).document(u64::MAX);
        assert_eq!(Document::decode(&document.encode()).unwrap(), document);
        let whole = document.encode().len();
        for length in [0, 8, whole - 1, whole + 1, whole + 8] {
            assert!(Document::decode(&vec![0; length]).is_err(), "{length}");
        }
    }

    #[test]
    fn rows_tell_ids() {
        for id in (0..1000).chain([u64::MAX, u64::MAX / 3]) {
            assert_eq!(unmix(mix(id)), id);
        }
        assert_eq!(Document::id_of(&RowKey::from("short")), None);
    }

    #[test]
    fn keys_and_bodies_are_spread_and_differ() {
        let corpus = Corpus::new(1000, 3);
        let mut seen = [0; 750];
        for id in 0..75_000 {
            seen[corpus.document(id).keys[1] as usize] += 1;
        }
        assert!(seen.iter().all(|n| (50..160).contains(n)), "{seen:?}");
        assert_ne!(corpus.body(1), corpus.body(2));
        assert_ne!(corpus.document(1).keys, Corpus::new(1000, 4).document(1).keys);
    }
}
