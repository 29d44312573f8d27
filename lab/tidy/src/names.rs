//! Finds names in the code with words that the glossary replaces.

use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// The words that no name may contain, in lower case and joined by `_`, each with its replacement.
const WORDS: &[(&str, &str)] = &[
    ("aftermath", "settled"),
    ("begin_time", "start_ts"),
    ("bury", "a verb that says what is done, such as roll_back"),
    ("clear_the_way", "what is cleared, such as clear_dead_locks"),
    ("commit_record", "write_record"),
    ("insist", "retry"),
    ("in_one_go", "one_step"),
    ("on_its_way", "in_flight"),
    ("outlived", "what has happened to it, such as collected"),
    ("ripen", "what is waited for"),
    ("told", "returned, reported, printed or named"),
    ("under_way", "in_flight"),
    ("whoever", "the actor, such as a_reader"),
];

/// The keywords before a name.
const KEYWORDS: &[&str] =
    &["fn", "mod", "struct", "enum", "union", "trait", "type", "const", "static"];

/// Checks that no item's name contains a word that the glossary replaces, items of tests included.
#[must_use]
pub fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.rust() {
        for (index, line) in Source::of(text).code.lines().enumerate() {
            let mut words = line.split(|char: char| !char.is_alphanumeric() && char != '_');
            while let Some(keyword) = words.next() {
                if !KEYWORDS.contains(&keyword) {
                    continue;
                }
                let name = words.next().unwrap_or_default();
                let lower = format!("_{}_", snake(name));
                let holds = |(word, _): &&(&str, &str)| lower.contains(&format!("_{word}_"));
                if let Some((word, instead)) = WORDS.iter().find(holds) {
                    let message = format!("{name} holds {word}: write {instead}");
                    findings.push(Finding::new(file, index + 1, "names", message));
                }
            }
        }
    }
    findings
}

/// Returns a name in lower case, with `_` between words.
fn snake(name: &str) -> String {
    let (mut snake, mut before) = (String::new(), '_');
    for char in name.chars() {
        if char.is_uppercase() && (before.is_lowercase() || before.is_numeric()) {
            snake.push('_');
        }
        snake.extend(char.to_lowercase());
        before = char;
    }
    snake
}
