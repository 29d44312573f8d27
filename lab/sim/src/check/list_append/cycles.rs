//! Finds a cycle of dependencies that snapshot isolation forbids.
//!
//! Snapshot isolation forbids a cycle without two `rw` edges in a row. The search therefore
//! works on a graph with two nodes for each transaction:
//!
//! * Edges other than `rw` end at a transaction's first node. Any edge may begin there.
//! * `rw` edges end at a transaction's second node. Only edges other than `rw` may begin there.
//!
//! Any cycle in this graph is a forbidden one. The search runs three times, with ever more
//! kinds of edges, so that a cycle gets the name of the worst anomaly that it shows.

use super::anomaly;
use crate::history::Finding;

/// How a transaction depends on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Ww,
    Wr,
    Rw,
}

/// A dependency: `to` comes after `from`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: Kind,
}

/// Returns one cycle of the worst kind, if there is any.
pub(super) fn find(txns: usize, edges: &[Edge]) -> Option<Finding> {
    [Kind::Ww, Kind::Wr, Kind::Rw].into_iter().find_map(|most| {
        let allowed = |edge: &&Edge| edge.kind <= most;
        let cycle = Graph::new(txns, edges.iter().filter(allowed)).cycle()?;
        let rw = cycle.iter().filter(|edge| edge.kind == Kind::Rw).count();
        let property = match (most, rw) {
            (Kind::Ww, _) => anomaly::G0,
            (Kind::Wr, _) => anomaly::G1C,
            (Kind::Rw, 1) => anomaly::G_SINGLE,
            (Kind::Rw, _) => anomaly::G_NONADJACENT,
        };
        let path: Vec<_> = cycle
            .iter()
            .map(|edge| format!("{} -{:?}-> {}", edge.from, edge.kind, edge.to))
            .collect();
        Some(Finding { property, facts: path.join(", ") })
    })
}

/// The doubled graph: node `2 t` of transaction `t` is reached by any edge but `rw`, node
/// `2 t + 1` by `rw`.
struct Graph {
    /// For each node: the target of each outgoing edge, and the edge.
    next: Vec<Vec<(usize, Edge)>>,
}

/// The state of a node in the search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    No,
    OnPath,
    Done,
}

impl Graph {
    fn new<'a>(txns: usize, edges: impl Iterator<Item = &'a Edge>) -> Self {
        let mut next = vec![Vec::new(); 2 * txns];
        for edge in edges {
            match edge.kind {
                Kind::Rw => next[2 * edge.from].push((2 * edge.to + 1, *edge)),
                Kind::Ww | Kind::Wr => {
                    next[2 * edge.from].push((2 * edge.to, *edge));
                    next[2 * edge.from + 1].push((2 * edge.to, *edge));
                }
            }
        }
        Graph { next }
    }

    /// Finds some cycle, depth first. The search keeps its own stack, since a path may be as
    /// long as the history.
    fn cycle(&self) -> Option<Vec<Edge>> {
        let mut seen = vec![Seen::No; self.next.len()];
        for root in 0..self.next.len() {
            if seen[root] != Seen::No {
                continue;
            }
            seen[root] = Seen::OnPath;
            // The nodes of the path, each with the number of its edges that were followed.
            let mut path = vec![(root, 0)];
            while let Some((node, followed)) = path.last_mut() {
                let Some((to, _)) = self.next[*node].get(*followed) else {
                    seen[*node] = Seen::Done;
                    path.pop();
                    continue;
                };
                *followed += 1;
                match seen[*to] {
                    Seen::No => {
                        seen[*to] = Seen::OnPath;
                        path.push((*to, 0));
                    }
                    Seen::OnPath => return Some(self.edges_from(*to, &path)),
                    Seen::Done => {}
                }
            }
        }
        None
    }

    /// Returns the edges of the path from a node of it to the end of the path. The last edge
    /// leads back to that node.
    fn edges_from(&self, start: usize, path: &[(usize, usize)]) -> Vec<Edge> {
        path.iter()
            .skip_while(|(node, _)| *node != start)
            .map(|(node, followed)| self.next[*node][followed - 1].1)
            .collect()
    }
}
