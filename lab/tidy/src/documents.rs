//! Rules about the documents: their length, and that their links lead somewhere.
//!
//! A link is checked if it is relative, and stands outside of code. Its file or folder must be in
//! the repository. A heading behind `#` must be in the file, named as GitHub names it.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tree::Tree;

/// Documents at the root that must stay short, and their longest length in lines.
const LINES_MAX: &[(&str, usize)] = &[("README.md", 110), ("ARCHITECTURE.md", 150)];

/// Checks that README.md has at most 110 lines and ARCHITECTURE.md at most 150.
#[must_use]
pub fn document_length(tree: &Tree) -> Vec<Finding> {
    let finding = |&(file, max): &(&str, usize)| {
        let lines = tree.get(file).map_or(0, |text| text.lines().count());
        let message = match lines {
            0 => "missing or empty: write it".to_owned(),
            _ if lines > max => format!("{lines} lines, at most {max} are allowed: shorten it"),
            _ => return None,
        };
        Some(Finding::new(file, max + 1, "document-length", message))
    };
    LINES_MAX.iter().filter_map(finding).collect()
}

/// Checks that every relative link of every Markdown file leads to a file and a heading.
#[must_use]
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.below("").filter(|(path, _)| path.ends_with(".md")) {
        for (line, target) in targets(text) {
            if let Some(message) = problem(tree, file, target) {
                findings.push(Finding::new(file, line, "links", message));
            }
        }
    }
    findings
}

/// Returns the problem of a link, if it has one.
fn problem(tree: &Tree, file: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let Some(path) = resolve(file, path) else {
        return Some(format!("{target} leads out of the repository: correct the path"));
    };
    if !tree.exists(&path) {
        return Some(format!("{target} leads to {path}, which does not exist: correct the path"));
    }
    let known = heading.is_empty() || headings(tree.get(&path)?).contains(heading);
    (!known).then(|| format!("{target} names no heading of {path}: correct what follows the `#`"))
}

/// The path of a link's target, seen from the root of the repository.
fn resolve(file: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(file.to_owned());
    }
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The targets of the links of a text, with their lines.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut targets = Vec::new();
    for (line, text) in prose(text) {
        for (at, _) in text.match_indices("](") {
            let in_code = text[..at].matches('`').count() % 2 == 1;
            let rest = &text[at + 2..];
            if let Some(end) = rest.find([')', ' '])
                && !in_code
            {
                targets.push((line, &rest[..end]));
            }
        }
    }
    targets
}

/// The names that GitHub gives to the headings of a text.
fn headings(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter_map(|char| match char {
            ' ' => Some('-'),
            '-' | '_' => Some(char),
            char if char.is_alphanumeric() => Some(char),
            _ => None,
        });
        let name: String = kept.flat_map(char::to_lowercase).collect();
        let again = (1..).map(|n| format!("{name}-{n}")).find(|again| !names.contains(again));
        let name = if names.contains(&name) { again.unwrap_or(name) } else { name };
        names.insert(name);
    }
    names
}

/// The lines of a Markdown text outside of fenced code, counted from one.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!fence && !in_code).then_some((index + 1, line))
    })
}
