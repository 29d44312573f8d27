//! Divides text into the words by which it is found.
//!
//! A word is a run of letters and digits, in lower case, without accents and in the plain form
//! of its characters: `Ünïcode` is `unicode`, and the ligature in `ﬁle` is two letters.
//!
//! Chinese, Japanese and Korean are written without spaces, or with endings attached to words.
//! So a run of their characters becomes its overlapping pairs: `環境変数` becomes `環境`, `境変` and
//! `変数`. A word of such characters is found as a phrase of pairs, wherever it occurs. Texts
//! also keep single characters, for searches for just one.
//!
//! [`STEMS`] also removes English endings, with the Snowball stemmer: `constraints` becomes
//! `constraint`.
//!
//! Not here: Thai, Lao, Khmer and Burmese, which have no spaces either. A run of their
//! characters is one word.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use frostem::{Algorithm, Stemmer};
use tantivy::Index;
use tantivy::tokenizer::{TextAnalyzer, Token, TokenStream, Tokenizer};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::cut;

/// The names under which an index knows its two ways to divide text into words.
pub(super) const WORDS: &str = "words";
pub(super) const STEMS: &str = "stems";

/// The length at which a word is cut, in bytes, at a character boundary. It is the same in
/// queries and in texts.
const WORD_BYTES_MAX: usize = 64;

/// How many stems are cached. Beyond that, the cache is emptied.
const STEMS_MAX: usize = 1 << 14;

/// Registers [`WORDS`] and [`STEMS`] with an index.
pub(super) fn register(index: &Index) {
    index.tokenizers().register(WORDS, Words { of_query: false, stems: None });
    index.tokenizers().register(STEMS, Words { of_query: false, stems: Some(Stems::default()) });
}

/// Returns the reader of words in a query.
pub(super) fn words_of_query() -> TextAnalyzer {
    TextAnalyzer::from(Words { of_query: true, stems: None })
}

/// Returns the reader of stems in a query.
pub(super) fn stems_of_query() -> TextAnalyzer {
    TextAnalyzer::from(Words { of_query: true, stems: Some(Stems::default()) })
}

/// Returns a text's words with their positions.
pub(super) fn list(analyzer: &mut TextAnalyzer, text: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    analyzer.token_stream(text).process(&mut |token| {
        words.push((token.position, token.text.clone()));
    });
    words
}

/// Divides texts into words.
#[derive(Clone)]
struct Words {
    /// Whether single characters of a run of pairs are left out, because the pairs contain
    /// them.
    of_query: bool,
    /// Present if English endings are removed.
    stems: Option<Stems>,
}

/// Removes English endings. A site uses few words, and each of them many times, so their stems
/// are cached. Without the cache, the stemmer would take a sixth of the time of a load.
struct Stems {
    stemmer: Stemmer,
    known: HashMap<Box<str>, Box<str>, RandomState>,
}

impl Default for Stems {
    fn default() -> Self {
        Stems { stemmer: Stemmer::new(Algorithm::English), known: HashMap::default() }
    }
}

/// A copy begins with an empty cache: each segment that is written uses its own copy.
impl Clone for Stems {
    fn clone(&self) -> Self {
        Stems::default()
    }
}

impl Stems {
    /// Replaces a word by its stem.
    fn apply(&mut self, word: &mut String) {
        if let Some(stem) = self.known.get(word.as_str()) {
            word.clear();
            word.push_str(stem);
            return;
        }
        let stem = self.stemmer.stem(word).into_owned();
        if self.known.len() >= STEMS_MAX {
            self.known.clear();
        }
        let word = std::mem::replace(word, stem.clone());
        self.known.insert(word.into(), stem.into());
    }
}

impl Tokenizer for Words {
    type TokenStream<'a> = Stream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Stream<'a> {
        Stream {
            text,
            at: 0,
            position: 0,
            unit: None,
            pair: None,
            of_query: self.of_query,
            stems: self.stems.as_mut(),
            token: Token::default(),
        }
    }
}

/// A character that is a word of its own, with the marks behind it.
#[derive(Debug)]
struct Unit {
    folded: String,
    from: usize,
    to: usize,
    /// Whether the character is the second half of a pair.
    in_pair: bool,
}

/// Yields the words of a text in order.
struct Stream<'a> {
    text: &'a str,
    /// The index in the text at which reading continues.
    at: usize,
    /// The position of the next word.
    position: usize,
    /// A character that was read and is not yielded yet.
    unit: Option<Unit>,
    /// The pair that begins with the character that was yielded last.
    pair: Option<(String, usize, usize)>,
    of_query: bool,
    stems: Option<&'a mut Stems>,
    token: Token,
}

/// The role of a character in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Part of a word.
    Letter,
    /// A word of its own, and half of a pair.
    Unit,
    /// Belongs to the character before it.
    Mark,
    Other,
}

impl Kind {
    fn of(c: char) -> Kind {
        match c {
            c if c.is_ascii() => {
                if c.is_ascii_alphanumeric() {
                    Kind::Letter
                } else {
                    Kind::Other
                }
            }
            // These are the halves of Hangul syllables, the voice marks of kana, variation
            // selectors, the soft hyphen, and joiners.
            '\u{1160}'..='\u{11ff}'
            | '\u{3099}'
            | '\u{309a}'
            | '\u{ff9e}'
            | '\u{ff9f}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{e0100}'..='\u{e01ef}'
            | '\u{ad}'
            | '\u{200c}'
            | '\u{200d}'
            | '\u{2060}' => Kind::Mark,
            c if is_unit(c) => Kind::Unit,
            c if is_combining_mark(c) => Kind::Mark,
            c if c.is_alphanumeric() => Kind::Letter,
            _ => Kind::Other,
        }
    }
}

/// Whether a character belongs to Chinese, Japanese or Korean writing.
fn is_unit(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{115f}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}'
        | '\u{3041}'..='\u{3096}' | '\u{309d}'..='\u{309f}' | '\u{30a1}'..='\u{30fa}'
        | '\u{30fc}'..='\u{30ff}' | '\u{3105}'..='\u{312f}' | '\u{3131}'..='\u{318e}'
        | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9d}' | '\u{20000}'..='\u{3fffd}')
}

impl Stream<'_> {
    /// Returns the end of the run that begins at `from` and continues while `more` is true.
    fn end_of(&self, from: usize, more: impl Fn(Kind) -> bool) -> usize {
        let rest = self.text[from..].char_indices().skip(1);
        let end = rest.map(|(at, c)| (at, Kind::of(c))).find(|(_, kind)| !more(*kind));
        end.map_or(self.text.len(), |(at, _)| from + at)
    }

    /// Returns the end of the word that begins at `from`. Most words are ASCII to their end.
    fn end_of_word(&self, from: usize) -> usize {
        let bytes = &self.text.as_bytes()[from..];
        let plain = bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        match bytes.get(plain) {
            Some(next) if !next.is_ascii() => {
                self.end_of(from, |kind| matches!(kind, Kind::Letter | Kind::Mark))
            }
            _ => from + plain,
        }
    }

    /// Reads the character at the reading position, if it is a word of its own.
    fn read_unit(&mut self) -> Option<Unit> {
        let from = self.at;
        let first = self.text[from..].chars().next()?;
        if Kind::of(first) != Kind::Unit {
            return None;
        }
        let to = self.end_of(from, |kind| kind == Kind::Mark);
        self.at = to;
        let mut folded = String::new();
        fold(&self.text[from..to], &mut folded);
        Some(Unit { folded, from, to, in_pair: false })
    }

    /// Yields the rest of a run of characters that are words of their own.
    fn advance_run(&mut self) -> bool {
        if let Some((pair, from, to)) = self.pair.take() {
            self.set(&pair, from, to, self.position - 1);
            return true;
        }
        while let Some(unit) = self.unit.take() {
            self.unit = self.read_unit();
            let position = self.position;
            self.position += 1;
            let is_alone = self.unit.is_none() && !unit.in_pair;
            if let Some(next) = &mut self.unit {
                next.in_pair = true;
                let pair = format!("{}{}", unit.folded, next.folded);
                self.pair = Some((pair, unit.from, next.to));
            }
            if !self.of_query || is_alone {
                self.set(&unit.folded, unit.from, unit.to, position);
                return true;
            }
            if let Some((pair, from, to)) = self.pair.take() {
                self.set(&pair, from, to, position);
                return true;
            }
        }
        false
    }

    fn set(&mut self, word: &str, from: usize, to: usize, position: usize) {
        self.token.text.clear();
        self.token.text.push_str(cut::at_bytes(word, WORD_BYTES_MAX));
        self.place(from, to, position);
    }

    fn place(&mut self, from: usize, to: usize, position: usize) {
        self.token.offset_from = from;
        self.token.offset_to = to;
        self.token.position = position;
    }
}

impl TokenStream for Stream<'_> {
    fn advance(&mut self) -> bool {
        if (self.unit.is_some() || self.pair.is_some()) && self.advance_run() {
            return true;
        }
        loop {
            // Most of what lies between words is ASCII.
            let rest = &self.text.as_bytes()[self.at..];
            let is_between = |byte: &&u8| byte.is_ascii() && !byte.is_ascii_alphanumeric();
            self.at += rest.iter().take_while(is_between).count();
            let Some(first) = self.text[self.at..].chars().next() else { return false };
            match Kind::of(first) {
                Kind::Unit => {
                    self.unit = self.read_unit();
                    return self.advance_run();
                }
                Kind::Letter => {
                    let from = self.at;
                    let to = self.end_of_word(from);
                    self.at = to;
                    let position = self.position;
                    self.position += 1;
                    let mut word = std::mem::take(&mut self.token.text);
                    word.clear();
                    fold(&self.text[from..to], &mut word);
                    if let Some(stems) = &mut self.stems {
                        stems.apply(&mut word);
                    }
                    word.truncate(cut::at_bytes(&word, WORD_BYTES_MAX).len());
                    self.token.text = word;
                    self.place(from, to, position);
                    return true;
                }
                Kind::Mark | Kind::Other => self.at += first.len_utf8(),
            }
        }
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

/// Appends a word in lower case, without accents, in the plain form of its characters. Reads
/// only as many bytes as a word may have.
fn fold(word: &str, out: &mut String) {
    if word.is_ascii() {
        out.push_str(cut::at_bytes(word, WORD_BYTES_MAX));
        out.make_ascii_lowercase();
        return;
    }
    let start = out.len();
    for c in word.chars() {
        let Some(plain) = in_plain_form(c) else {
            out.truncate(start);
            return fold_any(word, out);
        };
        out.push(plain);
        if out.len() >= WORD_BYTES_MAX {
            return;
        }
    }
}

/// Returns the folded form of a character that decomposes into nothing else. `None` for all
/// others, and for scripts in which few sites are written.
fn in_plain_form(c: char) -> Option<char> {
    match c {
        '\u{439}' | '\u{419}' => None,
        // Cyrillic capital letters lie 32 below the small ones.
        '\u{410}'..='\u{42f}' => char::from_u32(u32::from(c) + 0x20),
        c if c.is_ascii() => Some(c.to_ascii_lowercase()),
        '\u{430}'..='\u{44f}'
        | '\u{3041}'..='\u{3096}'
        | '\u{30a1}'..='\u{30fa}'
        | '\u{30fc}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}' => Some(c),
        _ => None,
    }
}

/// As [`fold`], of characters of any script.
fn fold_any(word: &str, out: &mut String) {
    let plain = word.nfkd().filter(|c| !is_dropped(*c)).nfc();
    for c in plain.flat_map(char::to_lowercase) {
        match c {
            'ß' => out.push_str("ss"),
            'æ' => out.push_str("ae"),
            'œ' => out.push_str("oe"),
            'ø' => out.push('o'),
            'đ' => out.push('d'),
            'ł' => out.push('l'),
            'ı' => out.push('i'),
            'ς' => out.push('σ'),
            c => out.push(c),
        }
        if out.len() >= WORD_BYTES_MAX {
            return;
        }
    }
}

/// Whether a character of a decomposed word is left out: accents of Latin, Greek and Cyrillic
/// letters, and invisible characters. The vowel signs of Indic scripts are letters, and stay.
fn is_dropped(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{e0100}'..='\u{e01ef}' | '\u{ad}' | '\u{200c}' | '\u{200d}' | '\u{2060}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_the_same_before_and_after_the_kept_ones_are_forgotten() {
        let mut stems = Stems::default();
        let mut stem = |word: &str| {
            let mut word = word.to_owned();
            stems.apply(&mut word);
            word
        };
        for round in 0..2 {
            assert_eq!((stem("constraints"), stem("running")), ("constraint".into(), "run".into()));
            for n in 0..STEMS_MAX {
                assert_eq!(stem(&format!("r{round}n{n}")), format!("r{round}n{n}"));
            }
        }
        assert!(stems.known.len() <= STEMS_MAX);
    }

    #[test]
    fn characters_in_plain_form_fold_as_any_others_do() {
        let plain: Vec<char> = (1..=0x10ffff_u32).filter_map(char::from_u32).collect();
        let plain: Vec<char> = plain.into_iter().filter(|c| in_plain_form(*c).is_some()).collect();
        assert!(plain.len() > 39_000);
        let both = |word: &str| {
            let (mut quick, mut any) = (String::new(), String::new());
            fold(word, &mut quick);
            fold_any(word, &mut any);
            (quick, any)
        };
        for (at, c) in plain.iter().enumerate() {
            // Some other character behind it, so that no two of them combine.
            let word: String = [*c, plain[at * 7_919 % plain.len()]].into_iter().collect();
            let (quick, any) = both(&word);
            assert_eq!(quick, any, "{word}");
        }
        for word in ["\u{30ab}\u{3099}", "\u{ac00}\u{11a8}", "и\u{306}", "ЙОД", "Ёлка"] {
            let (quick, any) = both(word);
            assert_eq!(quick, any, "{word}");
        }
    }

    #[test]
    fn a_word_ends_where_its_last_letter_or_mark_does() {
        let mut words = TextAnalyzer::from(Words { of_query: false, stems: None });
        let found = |text: &str, words: &mut TextAnalyzer| {
            list(words, text).into_iter().map(|(_, word)| word).collect::<Vec<_>>()
        };
        assert_eq!(found("ab1 cde\u{301}f-g", &mut words), ["ab1", "cdef", "g"]);
        assert_eq!(found("abÜc abc環d", &mut words), ["abuc", "abc", "環", "d"]);
    }
}
