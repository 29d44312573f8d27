//! Defines which documents belong to one cluster.
//!
//! There is one pass for each key, and only representatives go on to the next pass. In the
//! first pass, the earliest of the documents with the same first key represents them. In the
//! second pass, the earliest of these representatives with the same second key represents
//! them, and so on.
//!
//! So two documents with a common key may be in different clusters. If every common key joined
//! two clusters, nearly all documents would be in one, with keys drawn from 0.75 N values.
//!
//! Looking up keys one after the other, in the order of arrival, gives the same result. A hit
//! joins that cluster and ends the search. A miss registers the key and continues with the
//! next.
//!
//! [`passes`] computes the answer with which all others are compared. It sorts, where the
//! others hash or look up.

use crate::Document;

/// Returns the id of each document's representative. The documents are in the order of
/// arrival, and are clustered by the first `keys` of their keys.
///
/// ```
/// use clustering::{Document, rule};
/// let documents = [(7, 1, 1), (8, 2, 1), (9, 2, 3)]
///     .map(|(id, first, second)| Document { id, keys: [first, second, id, id] });
/// // 9 has the first key of 8, and 8 the second of 7.
/// assert_eq!(rule::passes(&documents, 3), [7, 7, 7]);
/// // 9 does not represent itself in the second pass: its key 3 stays unknown.
/// ```
pub fn passes(documents: &[Document], keys: usize) -> Vec<u64> {
    let mut parents: Vec<usize> = (0..documents.len()).collect();
    let mut survivors = parents.clone();
    for pass in 0..keys {
        let mut pairs: Vec<(u64, usize)> =
            survivors.iter().map(|&index| (documents[index].keys[pass], index)).collect();
        pairs.sort_unstable();
        survivors.clear();
        for group in pairs.chunk_by(|a, b| a.0 == b.0) {
            let first = group[0].1;
            survivors.push(first);
            for (_, index) in group {
                parents[*index] = first;
            }
        }
    }
    // A parent comes before its children, so its root is already known.
    for index in 0..parents.len() {
        parents[index] = parents[parents[index]];
    }
    parents.into_iter().map(|index| documents[index].id).collect()
}

/// The numbers that describe a clustering.
///
/// ```
/// let shape = clustering::rule::Shape::of(&mut [7, 7, 9]);
/// assert_eq!((shape.documents, shape.clusters, shape.clustered), (3, 2, 2));
/// assert_eq!(shape.per_cluster(), 1.5);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The number of documents.
    pub documents: u64,
    /// The number of clusters, including those of a single document.
    pub clusters: u64,
    /// The number of documents in clusters of more than one.
    pub clustered: u64,
}

impl Shape {
    /// Computes the shape from the representatives of all documents. Sorts them.
    pub fn of(representatives: &mut [u64]) -> Self {
        representatives.sort_unstable();
        let mut shape =
            Shape { documents: representatives.len() as u64, clusters: 0, clustered: 0 };
        for cluster in representatives.chunk_by(|a, b| a == b) {
            shape.clusters += 1;
            shape.clustered += if cluster.len() > 1 { cluster.len() as u64 } else { 0 };
        }
        shape
    }

    /// The mean number of documents per cluster.
    pub fn per_cluster(&self) -> f64 {
        self.documents as f64 / self.clusters as f64
    }

    /// The share of documents in clusters of more than one.
    pub fn clustered_share(&self) -> f64 {
        self.clustered as f64 / self.documents as f64
    }

    /// Whether the shape is the expected one, within the sampling error.
    pub fn agrees(&self, expected: &Expected) -> bool {
        let near = |value: f64, (mean, sd): (f64, f64)| (value - mean).abs() <= DEVIATIONS * sd;
        near(self.per_cluster(), expected.per_cluster)
            && near(self.clustered_share(), expected.clustered_share)
    }
}

/// The most standard deviations that count as a sampling error.
const DEVIATIONS: f64 = 5.0;

/// The shape that random keys give, with mean and standard deviation of each number.
///
/// ```
/// let paper = clustering::rule::Expected::of(1_000_000_000, 750_000_000, 3);
/// assert!((paper.per_cluster.0 - 3.283).abs() < 0.001);
/// assert!((paper.clustered_share.0 - 0.925).abs() < 0.001);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// The number of documents per cluster.
    pub per_cluster: (f64, f64),
    /// The share of documents in clusters of more than one.
    pub clustered_share: (f64, f64),
}

impl Expected {
    /// The shape of `documents` documents with `keys` keys each, drawn from `key_space`
    /// values.
    pub fn of(documents: u64, key_space: u64, keys: usize) -> Self {
        let (all, space) = (documents as f64, key_space as f64);
        // Model: balls thrown into boxes. Compute how many boxes are hit, and the variance.
        // The first ball of each box goes on to the next pass. A document stays alone if it
        // shares no box in any pass.
        let (mut going_on, mut variance, mut exponent) = (all, 0.0, 0.0);
        for _ in 0..keys {
            let load = going_on / space;
            let empty = (-load).exp();
            exponent += load;
            variance = empty * empty * variance + space * empty * (1.0 - (1.0 + load) * empty);
            going_on = space * (1.0 - empty);
        }
        let alone = (-exponent).exp();
        Expected {
            per_cluster: (all / going_on, all / (going_on * going_on) * variance.sqrt()),
            // The factor 2: two documents that share a box both stop being alone.
            clustered_share: (1.0 - alone, (2.0 * alone * (1.0 - alone) / all).sqrt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{Corpus, KEYS};

    /// The rule as lookups, in the order of arrival.
    fn looked_up(documents: &[Document], keys: usize) -> Vec<u64> {
        let mut indexes = [(); KEYS].map(|()| HashMap::new());
        let mut cluster_of = |document: &Document| {
            let hit = (0..keys).find(|i| indexes[*i].contains_key(&document.keys[*i]));
            let cluster = hit.map_or(document.id, |i| indexes[i][&document.keys[i]]);
            let missed = hit.unwrap_or(keys);
            for (index, key) in indexes.iter_mut().zip(document.keys).take(missed) {
                index.insert(key, cluster);
            }
            cluster
        };
        documents.iter().map(&mut cluster_of).collect()
    }

    #[test]
    fn sorting_and_looking_up_agree() {
        for (n, keys) in [(1, 3), (2, 3), (50, 1), (2000, 2), (2000, 3), (5000, 4)] {
            let corpus = Corpus::new(n, n + keys as u64);
            let documents: Vec<Document> = (0..n).map(|id| corpus.document(id)).collect();
            assert_eq!(passes(&documents, keys), looked_up(&documents, keys), "{n} {keys}");
        }
    }

    #[test]
    fn the_shape_is_that_of_the_paper() {
        let n = 200_000;
        let corpus = Corpus::new(n, 1);
        let documents: Vec<Document> = (0..n).map(|id| corpus.document(id)).collect();
        let shape = Shape::of(&mut passes(&documents, 3));
        let expected = Expected::of(n, corpus.key_space(), 3);
        assert!(shape.agrees(&expected), "{shape:?} {expected:?}");
        assert!((shape.per_cluster() - 3.28).abs() < 0.02, "{}", shape.per_cluster());
        assert!((shape.clustered_share() - 0.925).abs() < 0.005, "{}", shape.clustered_share());
        // Another rule gives another shape: with fewer keys, or with keys from a smaller
        // space.
        assert!(!Shape::of(&mut passes(&documents, 2)).agrees(&expected));
        let narrow = Expected::of(n, corpus.key_space() * 98 / 100, 3);
        assert!(!shape.agrees(&narrow), "{shape:?} {narrow:?}");
    }

    #[test]
    fn deviations_are_those_of_many_draws() {
        let n = 5_000;
        let shapes: Vec<(f64, f64)> = (0..200)
            .map(|seed| {
                let corpus = Corpus::new(n, seed);
                let documents: Vec<Document> = (0..n).map(|id| corpus.document(id)).collect();
                let shape = Shape::of(&mut passes(&documents, 3));
                (shape.per_cluster(), shape.clustered_share())
            })
            .collect();
        let expected = Expected::of(n, n * 3 / 4, 3);
        let sd = |of: &dyn Fn(&(f64, f64)) -> f64| {
            let mean = shapes.iter().map(of).sum::<f64>() / shapes.len() as f64;
            let squares = shapes.iter().map(|shape| (of(shape) - mean).powi(2)).sum::<f64>();
            (squares / shapes.len() as f64).sqrt()
        };
        for (found, (_, expected)) in
            [(sd(&|s| s.0), expected.per_cluster), (sd(&|s| s.1), expected.clustered_share)]
        {
            assert!((0.5..1.3).contains(&(found / expected)), "{found} {expected}");
        }
    }
}
