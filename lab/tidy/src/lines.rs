//! Counts lines of Rust by their purpose.
//!
//! An earlier version of the tree, without the folders `apps/` and `lab/`, is counted in the same
//! way. So the lists below also name the earlier places of the packages.

use std::collections::BTreeMap;
use std::fmt;

use crate::source::Source;
use crate::tree::Tree;

/// The purpose of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Code that users depend on or run.
    Product,
    /// Tests of products and applications.
    Tests,
    /// Programs that measure and check, with their own tests.
    Laboratory,
    /// Applications and examples.
    Applications,
    /// Code that a program generated.
    Generated,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}").to_lowercase();
        f.pad(&name)
    }
}

/// The folders of the laboratory, today and earlier.
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

/// The folders of applications, today and earlier.
const APPLICATIONS: &[&str] = &["apps/", "crates/webindex/"];

impl Kind {
    /// Returns the purpose of a file. Test code within the file is not considered.
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
