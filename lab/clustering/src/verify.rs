//! Compares a repository with the rule.

use std::collections::HashMap;

use percolator::{Error, InvalidKind, Result};

use crate::document::Document;
use crate::observers::{Joined, number};
use crate::repository::{CLUSTER, KEY, MERGED};
use crate::rule::{self, Shape};
use crate::{KEYS, KEYS_AT_FIRST, Repository};

/// The result of comparing a repository with the rule.
///
/// See [`Repository::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// The number of documents in the repository.
    pub documents: u64,
    /// The number of documents that are not clustered yet.
    pub waiting: u64,
    /// The number of documents in another cluster than that of the rule.
    pub wrong: u64,
    /// The shape of the clustering.
    pub shape: Shape,
}

/// A clustered document.
struct Found {
    document: Document,
    start_ts: u64,
    representative: u64,
}

impl Repository {
    /// Compares every document's cluster with that of the rule. The rule gets the documents in
    /// the order of the transactions that clustered them. Those are serializable, so only
    /// their order may influence the result.
    ///
    /// The fourth key merges existing clusters. There the order decides which document
    /// represents a merged cluster. So with four keys, only the membership of clusters is
    /// compared.
    ///
    /// See the [crate's page](crate) for an example.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `keys` is neither three nor four. Otherwise the errors of the
    /// database.
    pub async fn verify(&self, keys: usize) -> Result<Check> {
        if !(KEYS_AT_FIRST..=KEYS).contains(&keys) {
            let range = format!("{KEYS_AT_FIRST} or {KEYS}");
            return Err(Error::invalid(
                InvalidKind::Options,
                format!("{keys} keys: a repository is clustered by {range}"),
            ));
        }
        let (mut found, mut waiting, mut merged) = (Vec::new(), 0, HashMap::new());
        let snapshot = self.database().snapshot().await?;
        let mut scan = snapshot.scan(&self.tables.documents).columns([&KEY, &CLUSTER, &MERGED]);
        while let Some(row) = scan.next().await? {
            let of = |column| row.cells.iter().find(|(name, _)| *name == column).map(|(_, v)| v);
            let Some(record) = of(KEY) else { continue };
            let document = Document::decode(record)?;
            let Some(joined) = of(CLUSTER) else {
                waiting += 1;
                continue;
            };
            let Joined { representative, start_ts } = Joined::decode(joined)?;
            if let Some(into) = of(MERGED) {
                merged.insert(document.id, number(into)?);
            }
            found.push(Found { document, start_ts, representative });
        }
        found.sort_unstable_by_key(|found| found.start_ts);
        let documents: Vec<Document> = found.iter().map(|found| found.document).collect();
        let expected = rule::passes(&documents, keys);
        let last = |id: u64| merged.get(&id).copied().unwrap_or(id);
        let mut representatives: Vec<u64> =
            found.iter().map(|found| last(found.representative)).collect();
        let wrong = match keys {
            KEYS_AT_FIRST => representatives.iter().zip(&expected).filter(|(a, b)| a != b).count(),
            _ => differing(&representatives, &expected),
        };
        Ok(Check {
            documents: found.len() as u64 + waiting,
            waiting,
            wrong: wrong as u64,
            shape: Shape::of(&mut representatives),
        })
    }
}

/// The number of documents that are clustered with different documents in the two clusterings.
fn differing(found: &[u64], expected: &[u64]) -> usize {
    let (mut there, mut back) = (HashMap::new(), HashMap::new());
    let one_to_one = |(a, b): (&u64, &u64)| {
        *there.entry(*a).or_insert(*b) == *b && *back.entry(*b).or_insert(*a) == *a
    };
    found.iter().zip(expected).map(one_to_one).filter(|same| !same).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusterings_differ_in_who_is_together() {
        assert_eq!(differing(&[1, 1, 3, 3], &[2, 2, 4, 4]), 0);
        assert_eq!(differing(&[1, 1, 3, 3], &[2, 2, 2, 4]), 2);
        assert_eq!(differing(&[1, 1, 1], &[2, 2, 4]), 1);
        assert_eq!(differing(&[1, 2, 3], &[5, 5, 5]), 2);
    }
}
