//! How many lines of Rust there are, by what they are for.
//!
//! A tree that is older than the folders `apps/` and `lab/` is counted the same way: what has moved
//! there since is known by its place before.

use std::collections::BTreeMap;
use std::fmt;

use crate::source::Source;
use crate::tree::Tree;

/// The purpose of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Code that users depend on or run.
    Product,
    /// Tests of product and applications.
    Tests,
    /// Programs that measure and check, with their own tests.
    Laboratory,
    /// Applications and examples.
    Applications,
    /// Code that a program made.
    Generated,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}").to_lowercase();
        f.pad(&name)
    }
}

/// Where the laboratory is, and where it was.
const LABORATORY: &[&str] = &[
    "lab/",
    "fuzz/",
    "crates/clustering/",
    "crates/percolator-sim/",
    "crates/tpce/",
    "crates/percolator-cli/src/bench",
    "crates/percolator-cli/src/cmd/bench",
    "crates/percolator-cli/src/torture",
    "crates/percolator-cli/src/cmd/torture",
    "crates/percolator-cli/tests/bench",
    "crates/percolator-cli/tests/torture",
];

/// Where applications are, and where they were.
const APPLICATIONS: &[&str] = &["apps/", "crates/webindex/"];

impl Kind {
    /// Returns what a file is for; its test code, if it has any, is not asked about.
    fn of(file: &str) -> Kind {
        let begins = |places: &[&str]| places.iter().any(|place| file.starts_with(place));
        let is_test = file.contains("/tests/") || file.ends_with("/tests.rs");
        if file.contains("/generated/") {
            Kind::Generated
        } else if begins(LABORATORY) {
            Kind::Laboratory
        } else if is_test || file.contains("/src/conformance") || file.ends_with("/testing.rs") {
            Kind::Tests
        } else if begins(APPLICATIONS) || file.contains("/examples/") {
            Kind::Applications
        } else {
            Kind::Product
        }
    }
}

/// Counts the lines of all Rust files.
#[must_use]
pub fn lines(tree: &Tree) -> BTreeMap<Kind, usize> {
    let mut lines = BTreeMap::new();
    for (file, text) in tree.below("").filter(|(file, _)| file.ends_with(".rs")) {
        let (kind, all) = (Kind::of(file), text.lines().count());
        let tests = match kind {
            Kind::Product | Kind::Applications => Source::of(text).test_lines(),
            Kind::Tests | Kind::Laboratory | Kind::Generated => 0,
        };
        *lines.entry(kind).or_default() += all - tests;
        *lines.entry(Kind::Tests).or_default() += tests;
    }
    lines
}
