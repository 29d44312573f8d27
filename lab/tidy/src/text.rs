//! Checks the text of files: the width of comments and the length of files. Also checks that the
//! numbers of hazards and decisions in the code are documented.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// The maximum width of a line with a comment, in characters.
const COLUMNS_MAX: usize = 100;
/// The maximum length of a Rust file, in lines.
const LINES_MAX: usize = 800;
const HAZARDS: &str = "docs/hazards.md";
const DECISIONS: &str = "docs/decisions/";

/// Checks that no line with a comment is wider than 100 columns.
#[must_use]
pub fn comment_width(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.rust() {
        let lines: Vec<&str> = text.lines().collect();
        for (line, _) in Source::of(text).comments {
            let columns = lines.get(line - 1).map_or(0, |line| line.chars().count());
            if columns > COLUMNS_MAX {
                let message = format!("{columns} columns: wrap the comment at {COLUMNS_MAX}");
                findings.push(Finding::new(file, line, "comment-width", message));
            }
        }
    }
    findings
}

/// Checks that no Rust file is longer than 800 lines, except generated code.
#[must_use]
pub fn file_length(tree: &Tree) -> Vec<Finding> {
    let finding = |(file, text): (&str, &str)| {
        let lines = text.lines().count();
        let message = format!("{lines} lines, at most {LINES_MAX} are allowed: split the file");
        (lines > LINES_MAX).then(|| Finding::new(file, LINES_MAX + 1, "file-length", message))
    };
    tree.rust().filter_map(finding).collect()
}

/// Checks that every hazard that the code names, by an H and two digits, has a row in
/// `docs/hazards.md`. Also checks that every row has a sentence in the list above the table.
///
/// `lab/sim/tests/suite/hazards.rs` checks the rows themselves.
#[must_use]
pub fn hazards(tree: &Tree) -> Vec<Finding> {
    let table = tree.get(HAZARDS).unwrap_or_default();
    let rows: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| H")?.split_once(' '))
        .map(|(number, _)| number)
        // Not the table's first row, which says `Hazard`.
        .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    let known = |number: &str| number.len() != 2 || rows.contains(number);
    let remedy = format!("has no row in {HAZARDS}: add the row, or correct the number");
    let mut findings = numbers(tree, "hazards", "H", known, &remedy);
    for number in rows.iter().filter(|number| !table.contains(&format!("* **H{number}** "))) {
        let message = format!("H{number} has a row and no sentence: add it to the list");
        findings.push(Finding::new(HAZARDS, 1, "hazards", message));
    }
    findings
}

/// Checks that every decision that the code names has a file in `docs/decisions/`, whose name
/// begins with its number.
#[must_use]
pub fn decisions(tree: &Tree) -> Vec<Finding> {
    let digits = |name: &str| name.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok();
    let files: BTreeSet<u32> =
        tree.below(DECISIONS).filter_map(|(path, _)| digits(&path[DECISIONS.len()..])).collect();
    let known = |number: &str| number.parse().is_ok_and(|number| files.contains(&number));
    let remedy = format!("has no file in {DECISIONS}: write it, or correct the number");
    numbers(tree, "decisions", "ADR-", known, &remedy)
}

/// Finds every number after `prefix` that is not known.
fn numbers(
    tree: &Tree,
    rule: &'static str,
    prefix: &str,
    known: impl Fn(&str) -> bool,
    remedy: &str,
) -> Vec<Finding> {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let mut findings = Vec::new();
    for (file, text) in tree.rust() {
        for (index, line) in text.lines().enumerate() {
            for (at, _) in line.match_indices(prefix) {
                let rest = &line[at + prefix.len()..];
                let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
                let (number, behind) = rest.split_at(end);
                let apart = !line[..at].ends_with(is_word) && !behind.starts_with(is_word);
                if apart && !number.is_empty() && !known(number) {
                    let message = format!("{prefix}{number} {remedy}");
                    findings.push(Finding::new(file, index + 1, rule, message));
                }
            }
        }
    }
    findings
}
