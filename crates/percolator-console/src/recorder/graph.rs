//! Learns which columns each observer writes, for the graph of columns and observers.
//!
//! The store knows the edges from columns to observers, because observers are registered. The
//! edges from observers to the columns that they write are learned here. A column that no
//! observer watches counts with its family. So an application with one column for each link has
//! one node for all links.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use percolator::observe::Observed;
use percolator::store::sync::locked;

/// The most observers that are kept, and the most targets of each.
const EDGES_MAX: usize = 4_096;

/// A column, or a family, that an observer writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) table: String,
    /// The name of the column if an observer watches it, else the name of its family.
    pub(crate) column: Vec<u8>,
    /// Whether `column` names a column, and not a family.
    pub(crate) observed: bool,
}

/// The edges from observers to the columns that they were seen to write.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    observed: BTreeMap<String, BTreeSet<Vec<u8>>>,
    /// How many cells each observer wrote, by target.
    edges: BTreeMap<String, BTreeMap<Target, u64>>,
}

impl Graph {
    /// Replaces the set of observed columns.
    pub(crate) fn declared(&self, observed: &[Observed]) {
        let mut inner = locked(&self.inner);
        inner.observed.clear();
        for Observed { table, column, .. } in observed {
            let columns = inner.observed.entry(table.clone()).or_default();
            columns.insert(column.as_bytes().to_vec());
        }
    }

    /// Counts cells that an observer has written.
    pub(crate) fn wrote<'c>(
        &self,
        observer: &str,
        cells: impl Iterator<Item = (&'c str, &'c [u8])>,
    ) {
        let mut inner = locked(&self.inner);
        let Inner { observed, edges } = &mut *inner;
        if !edges.contains_key(observer) && edges.len() < EDGES_MAX {
            edges.insert(observer.to_owned(), BTreeMap::new());
        }
        let Some(of) = edges.get_mut(observer) else { return };
        for (table, column) in cells {
            let whole = observed.get(table).is_some_and(|columns| columns.contains(column));
            let family = column.split(|b| *b == b':').next().unwrap_or_default();
            let column = if whole { column } else { family };
            let target =
                Target { table: table.to_owned(), column: column.to_vec(), observed: whole };
            if let Some(count) = of.get_mut(&target) {
                *count += 1;
            } else if of.len() < EDGES_MAX {
                of.insert(target, 1);
            }
        }
    }

    /// Returns the learned edges, each with the number of cells written along it.
    pub(crate) fn edges(&self) -> Vec<(String, Target, u64)> {
        let inner = locked(&self.inner);
        let of = |(observer, targets): (&String, &BTreeMap<Target, u64>)| {
            let observer = observer.clone();
            let edge = move |(target, n): (&Target, &u64)| (observer.clone(), target.clone(), *n);
            targets.iter().map(edge).collect::<Vec<_>>()
        };
        inner.edges.iter().flat_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use percolator::Column;
    use percolator::observe::Strength;

    use super::*;

    #[test]
    fn observed_columns_are_nodes_and_others_count_with_their_family() {
        let graph = Graph::default();
        graph.declared(&[Observed {
            table: "docs".into(),
            column: Column::literal("doc:text"),
            observer: "count".into(),
            strength: Strength::Strong,
        }]);
        let cells: [(&str, &[u8]); 3] =
            [("docs", b"doc:text"), ("links", b"in:a"), ("links", b"in:b")];
        graph.wrote("parse", cells.into_iter());
        let edges = graph.edges();
        let shown: Vec<_> = edges
            .iter()
            .map(|(o, t, n)| (o.as_str(), &t.table[..], &t.column[..], t.observed, *n))
            .collect();
        assert_eq!(
            shown,
            [
                ("parse", "docs", &b"doc:text"[..], true, 1),
                ("parse", "links", &b"in"[..], false, 2),
            ]
        );
    }
}
