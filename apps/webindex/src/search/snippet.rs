//! Chooses the snippet of a page: the passage of its text that matches a query best.
//!
//! A window of at most [`CHARS_MAX`] characters slides over the words in the text that the
//! query asks for. Its value is the sum of the weights of the different words in it. A word in
//! exactly the requested form counts more than in another form. If two windows have equal
//! value, the earlier one wins.

use std::collections::BTreeMap;
use std::ops::Range;

use tantivy::tokenizer::TextAnalyzer;

use super::words;

/// The largest length of a snippet, in characters.
pub(super) const CHARS_MAX: usize = 200;

/// How many characters of a snippet precede its first match, if the text has them.
const CHARS_BEFORE: usize = 40;

/// How many matches of a text are considered. Further matches in a text full of them show
/// nothing new.
const MATCHES_MAX: usize = 10_000;

/// The weight of another form of a word, where the requested form has weight 1.
const OTHER_FORM: f32 = 0.7;

/// The words that snippets show, by stem, with their weights and the requested forms.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    by_stem: BTreeMap<String, (f32, Vec<String>)>,
}

/// A passage, and the byte ranges in it that match.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Snippet {
    pub(super) text: String,
    pub(super) highlights: Vec<Range<usize>>,
}

/// An occurrence of a requested word in the text.
#[derive(Debug)]
struct Match<'a> {
    stem: &'a str,
    weight: f32,
    at: Range<usize>,
}

impl Wanted {
    pub(super) fn add(&mut self, stem: String, form: String, weight: f32) {
        let (held, forms) = self.by_stem.entry(stem).or_default();
        *held = held.max(weight);
        forms.push(form);
    }

    /// Makes the snippet of a text. Without a match, the snippet is the beginning of the text.
    pub(super) fn snippet(&self, text: &str) -> Snippet {
        let matches = self.matches(text);
        let Some(best) = best_window(text, &matches) else {
            let end = forward(text, 0, CHARS_MAX);
            return Snippet { text: text[..end].to_owned(), highlights: Vec::new() };
        };
        let (first, last) = (&matches[best.start], &matches[best.end - 1]);
        let range = around(text, first.at.start..last.at.end);
        let inside = matches.iter().map(|found| found.at.clone());
        let inside = inside.filter(|at| at.start >= range.start && at.end <= range.end);
        let highlights = merged(inside.map(|at| at.start - range.start..at.end - range.start));
        Snippet { text: text[range].to_owned(), highlights }
    }

    fn matches(&self, text: &str) -> Vec<Match<'_>> {
        let mut matches = Vec::new();
        if self.by_stem.is_empty() {
            return matches;
        }
        let (mut stems, mut forms) = (words::stems_of_query(), words::words_of_query());
        let mut stream = stems.token_stream(text);
        while matches.len() < MATCHES_MAX && stream.advance() {
            let token = stream.token();
            let Some((stem, (weight, asked))) = self.by_stem.get_key_value(&token.text) else {
                continue;
            };
            let at = token.offset_from..token.offset_to;
            let is_exact = is_one_of(&mut forms, &text[at.clone()], asked);
            let weight = if is_exact { *weight } else { *weight * OTHER_FORM };
            matches.push(Match { stem, weight, at });
        }
        matches
    }
}

/// Whether a piece of text is one of the requested forms of a word.
fn is_one_of(forms: &mut TextAnalyzer, piece: &str, asked: &[String]) -> bool {
    let mut stream = forms.token_stream(piece);
    stream.advance() && asked.contains(&stream.token().text)
}

/// Returns the matches, by index, of the window with the highest value.
fn best_window(text: &str, matches: &[Match<'_>]) -> Option<Range<usize>> {
    let mut best: Option<(f32, Range<usize>)> = None;
    let mut end = 0;
    for start in 0..matches.len() {
        let from = matches[start].at.start;
        let room = CHARS_MAX - CHARS_BEFORE;
        end = end.max(start + 1);
        while end < matches.len() && is_within(text, from..matches[end].at.end, room) {
            end += 1;
        }
        let mut by_stem: BTreeMap<&str, f32> = BTreeMap::new();
        for found in &matches[start..end] {
            let weight = by_stem.entry(found.stem).or_default();
            *weight = weight.max(found.weight);
        }
        let worth: f32 = by_stem.values().sum();
        if best.as_ref().is_none_or(|(held, _)| worth > *held) {
            best = Some((worth, start..end));
        }
    }
    best.map(|(_, window)| window)
}

/// Whether a range has at most `chars` characters.
fn is_within(text: &str, range: Range<usize>, chars: usize) -> bool {
    let bytes = range.end - range.start;
    bytes <= chars || (bytes <= 4 * chars && text[range].chars().count() <= chars)
}

/// Extends a range to a snippet that begins and ends between words, if there are blanks.
fn around(text: &str, core: Range<usize>) -> Range<usize> {
    let core_chars = text[core.clone()].chars().count();
    if core_chars >= CHARS_MAX {
        return core.start..forward(text, core.start, CHARS_MAX);
    }
    let spare = CHARS_MAX - core_chars;
    let mut start = backward(text, core.start, spare.min(CHARS_BEFORE));
    let before = text[start..core.start].chars().count();
    let end = forward(text, core.end, spare - before);
    if end == text.len() {
        // At the end of the text, the characters that are left over go to the front.
        let after = text[core.end..].chars().count();
        start = backward(text, core.start, spare - after);
    }
    let start = match start {
        0 => 0,
        start => text[start..core.start].find(' ').map_or(start, |blank| start + blank + 1),
    };
    let end = if end == text.len() {
        end
    } else {
        text[core.end..end].rfind(' ').map_or(end, |blank| core.end + blank)
    };
    start..end
}

/// Returns the character boundary that is `chars` characters further on.
fn forward(text: &str, from: usize, chars: usize) -> usize {
    text[from..].char_indices().nth(chars).map_or(text.len(), |(at, _)| from + at)
}

/// Returns the character boundary that is `chars` characters earlier.
fn backward(text: &str, from: usize, chars: usize) -> usize {
    match chars {
        0 => from,
        chars => text[..from].char_indices().rev().nth(chars - 1).map_or(0, |(at, _)| at),
    }
}

/// Joins ranges that overlap, as pairs of characters do. The ranges must be in order.
fn merged(ranges: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(words: &[(&str, &str)]) -> Wanted {
        let mut wanted = Wanted::default();
        for (stem, form) in words {
            wanted.add((*stem).into(), (*form).into(), 1.0);
        }
        wanted
    }

    fn highlighted(snippet: &Snippet) -> Vec<&str> {
        snippet.highlights.iter().map(|at| &snippet.text[at.clone()]).collect()
    }

    #[test]
    fn the_passage_with_most_of_the_words_is_shown_wherever_it_is() {
        let filler = "lorem ipsum dolor ".repeat(10_000);
        let text = format!("pike {filler} a pike eats roach {filler} roach");
        let found = wanted(&[("pike", "pike"), ("roach", "roach")]).snippet(&text);
        assert!(found.text.contains("a pike eats roach"), "{}", found.text);
        assert!(found.text.starts_with("dolor ") || found.text.starts_with("lorem "));
        assert_eq!(highlighted(&found), ["pike", "roach"]);
        assert!(found.text.chars().count() <= CHARS_MAX);
    }

    #[test]
    fn the_form_that_was_asked_for_is_preferred() {
        let text = format!("It constrains. {} A constraint.", "lorem ".repeat(100));
        let found = wanted(&[("constrain", "constrain"), ("constraint", "constraint")]);
        assert_eq!(highlighted(&found.snippet(&text)), ["constraint"]);
        let found = wanted(&[("constrain", "constrain")]).snippet(&text);
        assert_eq!(highlighted(&found), ["constrains"]);
    }

    #[test]
    fn without_a_match_it_is_the_beginning() {
        let text = "ü".repeat(500);
        let found = wanted(&[("cod", "cod")]).snippet(&text);
        assert_eq!((found.text.chars().count(), found.highlights.len()), (CHARS_MAX, 0));
        assert_eq!(wanted(&[]).snippet(""), Snippet::default());
    }

    #[test]
    fn pairs_of_characters_are_highlighted_together_and_long_words_are_cut() {
        let text = format!("{}。環境変数の設定。{}", "日本語".repeat(300), "日本語".repeat(300));
        let found = wanted(&[("環境", "環境"), ("境変", "境変"), ("変数", "変数")]);
        let found = found.snippet(&text);
        assert_eq!(highlighted(&found), ["環境変数"]);
        assert!(found.text.chars().count() <= CHARS_MAX);
        let found = wanted(&[("cod", "cod")]).snippet(&format!("cod{}", "\u{301}".repeat(1_000)));
        assert!(found.text.chars().count() <= CHARS_MAX);
    }
}
