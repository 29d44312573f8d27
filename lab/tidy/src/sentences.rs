//! Rules about the sentences of comments: how they begin, and how long they are.
//!
//! A paragraph is a run of comment lines; an empty line, a list item or a heading ends it. Code
//! blocks and tables are not read. A sentence ends at `.`, `!`, `?` or `:` before a capital letter,
//! a bracket or a backtick.

use crate::finding::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// The longest sentence, in words.
const WORDS_MAX: usize = 25;

/// Words that begin a sentence whose subject is a clause without a noun.
const HEADLESS: &[&str] = &["What", "Whatever", "Who", "Whoever"];

/// Words that make a clause without a noun of the `One` or `Those` before them.
const BEHIND_ONE: &[&str] = &[
    "as", "at", "by", "can", "from", "had", "has", "in", "is", "may", "more", "of", "that", "to",
    "was", "which", "who", "whose", "with",
];

/// Checks that no sentence of a comment begins with a clause that has no noun as its subject.
/// Two examples are "What was written …" and "Whoever reads …". Questions may begin so.
#[must_use]
pub fn headless(tree: &Tree) -> Vec<Finding> {
    let remedy = "begin with the noun or the actor that the sentence is about";
    let message = |sentence: &str| {
        let found = is_headless(sentence).then(|| shorten(sentence));
        found.map(|begin| format!("\u{201c}{begin}\u{201d}: {remedy}"))
    };
    findings(tree, "headless", message)
}

/// Checks that no sentence of a comment has more than 25 words.
#[must_use]
pub fn sentence_length(tree: &Tree) -> Vec<Finding> {
    let message = |sentence: &str| {
        let words = sentence.split_whitespace().count();
        let remedy = format!("{words} words, at most {WORDS_MAX} are allowed: split the sentence");
        (words > WORDS_MAX).then(|| format!("\u{201c}{}\u{201d}: {remedy}", shorten(sentence)))
    };
    findings(tree, "sentence-length", message)
}

fn findings(
    tree: &Tree,
    rule: &'static str,
    message: impl Fn(&str) -> Option<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.rust() {
        for (line, paragraph) in paragraphs(&Source::of(text).comments) {
            for sentence in sentences(&paragraph) {
                if let Some(message) = message(sentence) {
                    findings.push(Finding::new(file, line, rule, message));
                }
            }
        }
    }
    findings
}

fn is_headless(sentence: &str) -> bool {
    if sentence.ends_with('?') {
        return false;
    }
    let mut words = sentence.split_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match first {
        "One" | "Those" => BEHIND_ONE.contains(&second),
        "That" => second == "which",
        // "What's" and "Who," are headless as well.
        _ => HEADLESS.contains(&first.trim_end_matches(|char: char| !char.is_alphabetic())),
    }
}

/// The beginning of a sentence, by which a person finds it.
fn shorten(sentence: &str) -> String {
    let words: Vec<&str> = sentence.split_whitespace().take(8).collect();
    words.join(" ")
}

/// The paragraphs of a file's comments, each with the number of its first line.
fn paragraphs(comments: &[(usize, String)]) -> Vec<(usize, String)> {
    let (mut paragraphs, mut last, mut is_code) = (Vec::<(usize, String)>::new(), 0, false);
    let mut open = false;
    for (line, text) in comments {
        if *line != last + 1 {
            (open, is_code) = (false, false);
        }
        last = *line;
        let text = text.trim_start_matches(['/', '!', '*']).trim();
        if text.starts_with("```") {
            is_code = !is_code;
            open = false;
        } else if is_code || text.is_empty() || text.starts_with(['|', '#']) {
            open = false;
        } else {
            let item = item(text);
            match paragraphs.last_mut().filter(|_| open && item.is_none()) {
                Some((_, paragraph)) => {
                    paragraph.push(' ');
                    paragraph.push_str(text);
                }
                None => paragraphs.push((*line, item.unwrap_or(text).to_owned())),
            }
            open = true;
        }
    }
    paragraphs
}

/// The text of a list's item, without its mark.
fn item(text: &str) -> Option<&str> {
    let mark = text.split_once(' ')?.0;
    let number = mark.strip_suffix('.').filter(|digits| !digits.is_empty());
    let is_number = number.is_some_and(|digits| digits.chars().all(|char| char.is_ascii_digit()));
    (is_number || mark == "*" || mark == "-").then(|| text[mark.len()..].trim_start())
}

fn sentences(paragraph: &str) -> Vec<&str> {
    let (mut sentences, mut begin) = (Vec::new(), 0);
    for (at, _) in paragraph.match_indices(['.', '!', '?', ':']) {
        let rest = &paragraph[at + 1..];
        let next = rest.trim_start();
        let begins = |char: char| char.is_uppercase() || matches!(char, '`' | '"' | '[');
        if rest.starts_with(' ') && next.starts_with(begins) {
            sentences.push(paragraph[begin..=at].trim());
            begin = at + 1;
        }
    }
    sentences.push(paragraph[begin..].trim());
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(check: fn(&Tree) -> Vec<Finding>, text: &str) -> Vec<usize> {
        let mut tree = Tree::default();
        tree.add("crates/a/src/lib.rs", text);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_sentence_without_a_subject_is_found() {
        for text in [
            "//! What is read.\n",
            "fn f() {} // Whoever reads it.\n",
            "/// A cell. One that was\n/// read is kept.\n",
            "// It ends:\n// What follows is lost.\n",
            "//! * Who reads waits.\n",
            "/// A cell.\n///\n/// Those that wait are kept.\n",
        ] {
            assert_eq!(found(headless, text).len(), 1, "{text}");
        }
        for text in [
            "//! What is read?\n",
            "/// One reader waits. Those readers go on.\n",
            "/// A reader sees what was read.\n",
            "/// ```text\n/// What is read.\n/// ```\n",
            "/// | What | it does |\n",
            "const TEXT: &str = \"// What is read.\";\n",
        ] {
            assert_eq!(found(headless, text), [0; 0], "{text}");
        }
    }

    #[test]
    fn a_sentence_of_26_words_is_found() {
        let words = |count: usize| vec!["word"; count].join(" ");
        let text = format!("/// {}.\n\n/// {}\n/// {}.\n", words(25), words(13), words(13));
        assert_eq!(found(sentence_length, &text), [3]);
        let text = format!("/// {}. And {}: In {}.\n", words(25), words(24), words(24));
        assert_eq!(found(sentence_length, &text), [0; 0]);
    }
}
