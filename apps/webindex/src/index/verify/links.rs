//! Stores the links that a verification expects in little memory. Each takes 17 bytes: a
//! fingerprint of 16, and a byte that says whether the link was found.
//!
//! A link consists of its row of in-links, its source and its anchors. The set keeps a
//! fingerprint of the three, not the link. So it can decide whether a link is expected, and
//! whether an expected link was not found. To name the links that were not found, the caller
//! goes through all links a second time.
//!
//! A fingerprint is half a BLAKE3 hash. Among a thousand million links, the odds that any two
//! have the same fingerprint are below one to 10^20.

use crate::tables::LinkRow;

/// A set of links. First all expected links are added, then those found are taken.
#[derive(Debug, Default)]
pub(super) struct ExpectedLinks {
    /// Sorted once all links are added.
    prints: Vec<u128>,
    /// Whether the link with the fingerprint at this index was found.
    found: Vec<bool>,
}

/// The outcome of looking up a link that was found in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Expected,
    /// The link should not exist, or has other anchors.
    Unexpected,
}

impl ExpectedLinks {
    pub(super) fn add(&mut self, row: &LinkRow, source: &str, anchors: &[String]) {
        self.prints.push(print(row, source, anchors));
    }

    /// Ends the adding of links.
    pub(super) fn seal(&mut self) {
        self.prints.sort_unstable();
        self.prints.shrink_to_fit();
        self.found = vec![false; self.prints.len()];
    }

    /// Notes that a link was found.
    pub(super) fn take(&mut self, row: &LinkRow, source: &str, anchors: &[String]) -> Taken {
        match self.prints.binary_search(&print(row, source, anchors)) {
            Ok(place) => {
                self.found[place] = true;
                Taken::Expected
            }
            Err(_) => Taken::Unexpected,
        }
    }

    /// How many links were not found.
    pub(super) fn missing(&self) -> usize {
        self.found.iter().filter(|found| !**found).count()
    }

    /// Whether a link is expected and was not found.
    pub(super) fn is_missing(&self, row: &LinkRow, source: &str, anchors: &[String]) -> bool {
        let place = self.prints.binary_search(&print(row, source, anchors));
        place.is_ok_and(|place| !self.found[place])
    }
}

/// The fingerprint of a link. Each part is hashed with its length, so that no two links have
/// the same bytes.
fn print(row: &LinkRow, source: &str, anchors: &[String]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(row.key().as_bytes());
    part(source.as_bytes());
    anchors.iter().for_each(|anchor| part(anchor.as_bytes()));
    let mut half = [0; 16];
    hasher.finalize_xof().fill(&mut half);
    u128::from_le_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_link_is_compared() {
        let home = LinkRow::home("https://a.example/", 3);
        let said = |anchors: &[&str]| anchors.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut links = ExpectedLinks::default();
        links.add(&home, "https://b.example/", &said(&["fish", "cod"]));
        links.add(&home, "https://c.example/", &said(&[]));
        links.seal();
        let elsewhere = home.at("https://d.example/");
        let other_bucket = LinkRow { bucket: 4, ..home.clone() };
        for (row, source, anchors) in [
            (&elsewhere, "https://b.example/", said(&["fish", "cod"])),
            (&other_bucket, "https://b.example/", said(&["fish", "cod"])),
            (&home, "https://b.example/x", said(&["fish", "cod"])),
            (&home, "https://b.example/", said(&["cod", "fish"])),
            (&home, "https://b.example/", said(&["fishcod"])),
            (&home, "https://b.example/", said(&["fish"])),
        ] {
            assert_eq!(links.take(row, source, &anchors), Taken::Unexpected, "{row:?} {source}");
        }
        assert_eq!(links.missing(), 2);
        assert_eq!(links.take(&home, "https://c.example/", &[]), Taken::Expected);
        assert_eq!(links.missing(), 1);
        assert!(links.is_missing(&home, "https://b.example/", &said(&["fish", "cod"])));
        assert!(!links.is_missing(&home, "https://c.example/", &[]));
        assert!(!links.is_missing(&home, "https://e.example/", &[]));
    }
}
