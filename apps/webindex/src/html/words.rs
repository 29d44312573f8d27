//! Normalises text to words separated by single spaces, the form in which all text of a page
//! is stored.
//!
//! Text arrives in pieces that may end inside a word. So [`Words`] remembers whether white
//! space or the edge of a block separates the next piece from the text so far.
//!
//! Invariant: the result neither begins nor ends with white space, has no two spaces in a row,
//! and has no other white space.

use crate::cut;

/// Normalised text that grows at its end, up to a limit.
#[derive(Debug)]
pub(super) struct Words {
    text: String,
    /// Whether the next word is separated from the last one.
    gap: bool,
    /// The limit. Once the text has this many bytes, nothing is added.
    bytes_max: usize,
}

impl Words {
    pub(super) fn new(bytes_max: usize) -> Self {
        Words { text: String::new(), gap: false, bytes_max }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Ends the current word.
    pub(super) fn gap(&mut self) {
        self.gap = true;
    }

    /// Adds a piece of text.
    pub(super) fn push(&mut self, piece: &str) {
        if self.text.len() >= self.bytes_max {
            return;
        }
        let mut rest = piece;
        while let Some(start) = rest.find(|c: char| !c.is_whitespace()) {
            self.gap |= start > 0;
            if self.gap && !self.text.is_empty() {
                self.text.push(' ');
            }
            let (words, after) = rest[start..].split_at(normal_bytes(&rest[start..]));
            self.text.push_str(words);
            self.gap = false;
            rest = after;
        }
        // Only white space is left.
        self.gap |= !rest.is_empty();
    }

    /// Drops the text.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.gap = false;
    }

    /// Returns the text.
    pub(super) fn finish(self) -> String {
        self.text
    }

    /// Returns the text, cut to at most `bytes` at a character boundary.
    pub(super) fn cut_at_byte(&self, bytes: usize) -> &str {
        cut::at_bytes(&self.text, bytes).trim_end()
    }

    /// Returns the text, cut to at most `chars` characters.
    pub(super) fn cut_at_char(&self, chars: usize) -> &str {
        if self.text.len() <= chars {
            return &self.text;
        }
        let end = self.text.char_indices().nth(chars).map_or(self.text.len(), |(end, _)| end);
        self.text[..end].trim_end()
    }
}

/// Returns how many bytes of a text that begins with a word are words with single spaces
/// between them.
///
/// Most text has this form, so whole pieces can be copied at a time.
fn normal_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if !byte.is_ascii() {
            let c = text[at..].chars().next().unwrap_or_default();
            if c.is_whitespace() {
                return at;
            }
            at += c.len_utf8();
        } else if !is_space(byte) {
            at += 1;
        } else if byte == b' ' && bytes.get(at + 1).is_some_and(|&b| b.is_ascii() && !is_space(b)) {
            at += 2;
        } else {
            return at;
        }
    }
    at
}

/// Returns whether an ASCII character is white space, as `char::is_whitespace` has it.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn pieces_become_words(
            pieces in proptest::collection::vec("[a-c\u{e9} \t\u{a0}]{0,6}", 0..8)
        ) {
            let mut words = Words::new(usize::MAX);
            for piece in &pieces {
                words.push(piece);
            }
            let whole = pieces.concat();
            let expected = whole.split_whitespace().collect::<Vec<_>>().join(" ");
            proptest::prop_assert_eq!(words.finish(), expected);
        }
    }
}
