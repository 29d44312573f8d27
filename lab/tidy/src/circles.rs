//! Finds import circles: files that import from each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use crate::finding::Finding;
use crate::imports::Graph;
use crate::modules::Modules;
use crate::tree::Tree;

const RULE: &str = "circles";
/// The largest circle of a package without an exception, in files.
const FILES_MAX: usize = 3;

/// Checks that no import circle of a package has more than three files.
///
/// An exception names a package's folder and the size of its largest circle today. An
/// exception that is larger than the circle is a finding, so that the number follows.
#[must_use]
pub fn circles(tree: &Tree, exceptions: &[(&str, usize)]) -> Vec<Finding> {
    let packages = tree.packages();
    let allowed: BTreeMap<&str, usize> = exceptions.iter().copied().collect();
    let gone = allowed.keys().filter(|package| !packages.contains(package));
    let mut findings: Vec<Finding> = gone
        .map(|package| {
            Finding::new(package, 1, RULE, "there is no such package: delete its exception".into())
        })
        .collect();
    for package in packages {
        let graph = Modules::of(tree, package).graph();
        let allowed = allowed.get(package).copied();
        let largest = components(&graph).into_iter().max_by_key(BTreeSet::len).unwrap_or_default();
        let max = allowed.unwrap_or(FILES_MAX);
        if largest.len() > max {
            findings.push(too_large(&graph, &largest, max));
        } else if allowed.is_some_and(|allowed| allowed <= FILES_MAX) {
            let message = format!("up to {FILES_MAX} files need no exception: delete it");
            findings.push(Finding::new(package, 1, RULE, message));
        } else if allowed.is_some() && largest.len() < max {
            let size = largest.len();
            let message = format!(
                "the largest circle has {size} files, and the exception allows {max}: lower it to \
                 {size}, or delete it if that is at most {FILES_MAX}"
            );
            findings.push(Finding::new(package, 1, RULE, message));
        }
    }
    findings
}

/// Describes a circle, with the imports within it.
fn too_large(graph: &Graph, circle: &BTreeSet<&str>, max: usize) -> Finding {
    let mut message = format!(
        "{} files import each other in a circle, at most {max} may: move what they share into a \
         file of its own\n",
        circle.len()
    );
    let mut place = None;
    for file in circle {
        let inside = graph[*file].iter().filter(|(other, _)| circle.contains(other.as_str()));
        for (other, line) in inside {
            place.get_or_insert((*file, *line));
            let _ = writeln!(message, "    {file}:{line} imports from {other}");
        }
    }
    let (file, line) = place.unwrap_or_default();
    Finding::new(file, line, RULE, message.trim_end().to_owned())
}

/// Finds the sets of files that reach each other.
fn components(graph: &Graph) -> Vec<BTreeSet<&str>> {
    let imports = graph
        .iter()
        .flat_map(|(file, others)| others.keys().map(move |other| (file.as_str(), other.as_str())));
    let imports = DiGraphMap::<&str, ()>::from_edges(imports);
    tarjan_scc(&imports).into_iter().map(BTreeSet::from_iter).collect()
}
