//! Computes PageRank by power iteration. The rank decides which page of a cluster is
//! canonical.
//!
//! `rank(v) = (1 - d) / n + d * (sum of rank(u) / out(u) over links u -> v + dangling / n)`
//!
//! Here `dangling` is the rank of pages without links, which is spread evenly. The graph is
//! stored by target, in compressed rows: for each page the pages that link to it, in ascending
//! order.
//!
//! Invariants:
//!
//! * The ranks are not negative and add up to 1, except for rounding.
//! * Every sum is taken in the order of page numbers. So the order of the links does not
//!   change the result by a single bit. How often a link is given does: a link given twice
//!   counts twice.
//!
//! Memory: 8 bytes for each link and 24 for each page, in addition to the caller's list.

use crate::Error;

/// The share of rank that follows links. The rest is spread evenly.
pub const DAMPING: f64 = 0.85;

/// Iteration ends when the ranks change by less than this, summed over all pages.
pub const TOLERANCE: f64 = 1e-9;

/// The largest number of rounds. The change shrinks by [`DAMPING`] in each round, so the
/// tolerance needs at most 133 of them.
pub const ITERATIONS_MAX: u32 = 150;

/// The ranks of all pages, and how the iteration ended.
///
/// ```
/// use webindex::pagerank::pagerank;
///
/// let ranked = pagerank(3, &[(0, 1), (2, 1)])?;
/// assert!(ranked.ranks[1] > ranked.ranks[0]);
/// assert!(ranked.change < webindex::pagerank::TOLERANCE);
/// # Ok::<(), webindex::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PageRank {
    /// The rank of each page, by its number.
    pub ranks: Vec<f64>,
    /// The number of rounds.
    pub iterations: u32,
    /// How much the last round changed the ranks, summed over all pages.
    pub change: f64,
}

/// Computes the ranks of the pages 0 to `pages - 1`, given the links as pairs (from, to).
///
/// # Errors
///
/// [`Error::OutOfRange`] if a link names a page that is not below `pages`.
pub fn pagerank(pages: u32, links: &[(u32, u32)]) -> Result<PageRank, Error> {
    let bad = links.iter().flat_map(|&(from, to)| [from, to]).find(|&page| page >= pages);
    if let Some(page) = bad {
        let allowed = format!("a page below {pages}");
        return Err(Error::OutOfRange { what: "a link's end", given: page.into(), allowed });
    }
    if pages == 0 {
        return Ok(PageRank { ranks: Vec::new(), iterations: 0, change: 0.0 });
    }
    let graph = Graph::new(index(pages), links);
    let mut ranks = vec![1.0 / f64::from(pages); index(pages)];
    let mut next = vec![0.0; index(pages)];
    let mut shares = vec![0.0; index(pages)];
    let mut iterations = 0;
    let mut change = f64::INFINITY;
    while iterations < ITERATIONS_MAX && change >= TOLERANCE {
        change = graph.step(&ranks, &mut shares, &mut next);
        std::mem::swap(&mut ranks, &mut next);
        iterations += 1;
    }
    Ok(PageRank { ranks, iterations, change })
}

/// The links, by target.
struct Graph {
    /// The index at which each page's sources begin. It has one more entry than there are
    /// pages.
    starts: Vec<usize>,
    sources: Vec<u32>,
    out_degrees: Vec<u32>,
}

impl Graph {
    fn new(pages: usize, links: &[(u32, u32)]) -> Self {
        let mut out_degrees = vec![0_u32; pages];
        let mut starts = vec![0_usize; pages + 1];
        for &(from, to) in links {
            out_degrees[index(from)] += 1;
            starts[index(to) + 1] += 1;
        }
        for page in 0..pages {
            starts[page + 1] += starts[page];
        }
        let mut free = starts.clone();
        let mut sources = vec![0_u32; links.len()];
        for &(from, to) in links {
            let slot = &mut free[index(to)];
            sources[*slot] = from;
            *slot += 1;
        }
        for page in 0..pages {
            sources[starts[page]..starts[page + 1]].sort_unstable();
        }
        Graph { starts, sources, out_degrees }
    }

    /// Computes the next ranks, and returns how much they differ, summed over all pages.
    fn step(&self, ranks: &[f64], shares: &mut [f64], next: &mut [f64]) -> f64 {
        let pages = ranks.len() as f64;
        let mut dangling = 0.0;
        for ((share, &rank), &degree) in shares.iter_mut().zip(ranks).zip(&self.out_degrees) {
            if degree == 0 {
                dangling += rank;
                *share = 0.0;
            } else {
                *share = rank / f64::from(degree);
            }
        }
        let even = (1.0 - DAMPING + DAMPING * dangling) / pages;
        let mut change = 0.0;
        for (page, slot) in next.iter_mut().enumerate() {
            let sources = &self.sources[self.starts[page]..self.starts[page + 1]];
            let linked: f64 = sources.iter().map(|&source| shares[index(source)]).sum();
            *slot = even + DAMPING * linked;
            change += (*slot - ranks[page]).abs();
        }
        change
    }
}

/// Converts a page number. Page numbers are u32, which halves the graph's size.
fn index(page: u32) -> usize {
    usize::try_from(page).expect("a usize has 32 bits or more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    fn assert_close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (f, e) in found.iter().zip(expected) {
            assert!((f - e).abs() < 1e-8, "{found:?} should be {expected:?}");
        }
    }

    #[test]
    fn two_pages_of_which_one_links() {
        // Let b be the rank of the page without links. Then a = 0.075 + 0.425 b. With a + b =
        // 1, 1.425 b = 0.925.
        let b = 0.925 / 1.425;
        assert_close(&pagerank(2, &[(0, 1)]).unwrap().ranks, &[1.0 - b, b]);
    }

    #[test]
    fn a_graph_solved_by_hand() {
        // 0 -> 1, 0 -> 2, 1 -> 2, 2 -> 0: no dangling page. Let d = 0.85, e = 0.05. Then r1 =
        // e + d/2 r0; r2 = e + d/2 r0 + d r1; r0 = e + d r2. Substituting, r0 (1 - d^2/2 -
        // d^3/2) = e + d e + d^2 e.
        let (d, e) = (0.85, 0.05);
        let r0 = (e + d * e + d * d * e) / (1.0 - d * d / 2.0 - d * d * d / 2.0);
        let r1 = e + d / 2.0 * r0;
        let ranked = pagerank(3, &[(0, 1), (0, 2), (1, 2), (2, 0)]).unwrap();
        assert_close(&ranked.ranks, &[r0, r1, 1.0 - r0 - r1]);
        assert!(ranked.iterations < ITERATIONS_MAX && ranked.change < TOLERANCE);
    }

    #[test]
    fn symmetric_graphs_are_even() {
        assert_close(&pagerank(4, &[]).unwrap().ranks, &[0.25; 4]);
        assert_close(&pagerank(3, &[(0, 1), (1, 2), (2, 0)]).unwrap().ranks, &[1.0 / 3.0; 3]);
        assert_close(&pagerank(1, &[(0, 0)]).unwrap().ranks, &[1.0]);
        assert!(pagerank(0, &[]).unwrap().ranks.is_empty());
    }

    #[test]
    fn a_link_given_twice_counts_twice() {
        let ranks = pagerank(3, &[(0, 1), (0, 1), (0, 2)]).unwrap().ranks;
        let extra = |page: usize| ranks[page] - ranks[0];
        assert!((extra(1) - 2.0 * extra(2)).abs() < 1e-8);
    }

    #[test]
    fn a_link_out_of_range_is_refused() {
        let error = pagerank(2, &[(0, 1), (2, 0)]).unwrap_err().to_string();
        assert!(error.contains("is 2") && error.contains("below 2"), "{error}");
        assert!(pagerank(0, &[(0, 0)]).is_err());
    }

    #[test]
    fn the_order_of_links_does_not_matter_to_the_last_bit() {
        let mut prng = Prng::new(1);
        let mut end = || u32::try_from(prng.below(200)).unwrap();
        let mut links: Vec<(u32, u32)> = (0..3_000).map(|_| (end(), end() / 3)).collect();
        let first = pagerank(200, &links).unwrap();
        assert!((first.ranks.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(first.ranks.iter().all(|&rank| rank > 0.0));
        Prng::new(2).shuffle(&mut links);
        assert_eq!(pagerank(200, &links).unwrap(), first);
    }
}
