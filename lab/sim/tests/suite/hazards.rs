//! Tests the table of hazards: every hazard has its row, every test and mutant that a row
//! names exists, and no mutant is missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bigtable::mutants::Mutant;

const HAZARDS: usize = 80;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Adds the names of all functions in the sources below a directory.
fn functions(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let after = text.split("fn ").skip(1);
            let name = |rest: &str| rest.split('(').next().map(str::to_owned);
            names.extend(after.filter_map(name));
        }
    }
}

/// Returns the mutants of all crates.
fn all_mutants() -> impl Iterator<Item = &'static Mutant> {
    let of_crates = percolator_core::mutants::ALL.iter().chain(bigtable_fjall::mutants::ALL);
    of_crates.chain(percolator_sim::mutated::ALL)
}

/// Returns those parts of a table cell that are in backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_hazard_has_a_row_and_what_the_rows_name_exists() {
    let text = std::fs::read_to_string(root().join("docs/hazards.md")).unwrap();
    let mut names = BTreeSet::new();
    for dir in ["crates", "apps", "lab"] {
        functions(&root().join(dir), &mut names);
    }
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| H") && !line.starts_with("| Hazard"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), HAZARDS);
    let mut mutants = BTreeSet::new();
    for (index, row) in rows.iter().enumerate() {
        let [hazard, defence, tests, of] = row[..] else { panic!("{row:?}") };
        assert_eq!(hazard, format!("H{:02}", index + 1));
        assert!(!quoted(defence).is_empty(), "{hazard} names no file");
        for test in quoted(tests) {
            assert!(names.contains(test), "{hazard}: no test {test}");
            let number = format!("{}_", hazard.to_lowercase());
            assert!(test.contains(&number), "{hazard}: {test} carries another number");
        }
        for name in quoted(of) {
            let mutant = all_mutants().find(|mutant| mutant.name == name);
            let mutant = mutant.unwrap_or_else(|| panic!("{hazard}: no mutant {name}"));
            assert!(mutant.hazards.contains(hazard), "{hazard}: {name} is of other hazards");
            mutants.insert(name);
        }
    }
    assert_eq!(mutants.len(), all_mutants().count(), "a mutant is missing in the table");
    for test in all_mutants().filter_map(|mutant| mutant.test) {
        assert!(names.contains(test), "no test {test}");
    }
}
