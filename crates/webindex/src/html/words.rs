//! Words separated by single spaces: how all text of a page is stored.
//!
//! Text arrives in pieces that end anywhere, also inside a word, so [`Words`] remembers whether
//! white space or the edge of a block lies between what it has and what comes next.
//!
//! Invariant: the result neither begins nor ends with white space, has no two spaces in a row and
//! no other white space at all.

use crate::cut;

/// Normalised text that grows at its end, up to a limit.
#[derive(Debug)]
pub(super) struct Words {
    text: String,
    /// Whether the next word is separated from the last.
    gap: bool,
    /// Once the text has this many bytes, nothing is added.
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
        self.gap |= piece.starts_with(char::is_whitespace);
        for word in piece.split_whitespace() {
            if self.gap && !self.text.is_empty() {
                self.text.push(' ');
            }
            self.text.push_str(word);
            self.gap = true;
        }
        // After the last word the flag is set, whether or not white space followed it.
        if piece.ends_with(|c: char| !c.is_whitespace()) {
            self.gap = false;
        }
    }

    /// Returns the text.
    pub(super) fn finish(self) -> String {
        self.text
    }

    /// Returns the text, cut to at most `bytes` at a character boundary.
    pub(super) fn finish_at_byte(mut self, bytes: usize) -> String {
        let end = cut::at_bytes(&self.text, bytes).len();
        self.text.truncate(end);
        self.trim_end()
    }

    /// Returns the text, cut to at most `chars` characters.
    pub(super) fn finish_at_char(mut self, chars: usize) -> String {
        if let Some((end, _)) = self.text.char_indices().nth(chars) {
            self.text.truncate(end);
        }
        self.trim_end()
    }

    fn trim_end(mut self) -> String {
        let end = self.text.trim_end().len();
        self.text.truncate(end);
        self.text
    }
}
