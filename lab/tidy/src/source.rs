//! Reads Rust source, and blanks comments, strings and test code without changing lengths or
//! lines.

use std::ops::Range;

/// A Rust file in two parts.
pub(crate) struct Source {
    /// The code, with spaces in place of comments and of the text between quotes.
    pub(crate) code: String,
    /// The line and text of each comment; a comment of several lines has an entry for each.
    pub(crate) comments: Vec<(usize, String)>,
}

impl Source {
    pub(crate) fn of(text: &str) -> Source {
        let mut reader = Reader {
            chars: text.chars().collect(),
            at: 0,
            line: 1,
            code: String::with_capacity(text.len()),
            comments: Vec::new(),
        };
        while reader.at < reader.chars.len() {
            reader.step();
        }
        Source { code: reader.code, comments: reader.comments }
    }

    /// Returns the code without items under `#[cfg(test)]`.
    pub(crate) fn without_tests(&self) -> String {
        let mut chars: Vec<char> = self.code.chars().collect();
        for range in tests(&chars) {
            chars[range].iter_mut().filter(|char| **char != '\n').for_each(|char| *char = ' ');
        }
        chars.into_iter().collect()
    }

    /// Counts the lines of items under `#[cfg(test)]`.
    pub(crate) fn test_lines(&self) -> usize {
        let chars: Vec<char> = self.code.chars().collect();
        let lines = |range: Range<usize>| 1 + chars[range].iter().filter(|c| **c == '\n').count();
        tests(&chars).into_iter().map(lines).sum()
    }
}

/// Returns the places of items under `#[cfg(test)]`, including the attribute.
fn tests(chars: &[char]) -> Vec<Range<usize>> {
    let (mut tests, mut at) = (Vec::new(), 0);
    while at < chars.len() {
        let attribute = if chars[at] == '#' { test_attribute(&chars[at..]) } else { None };
        match attribute {
            Some(len) => {
                let end = end_of_item(chars, at + len);
                tests.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
    tests
}

/// Returns the length of an attribute that limits the next item to test builds.
fn test_attribute(chars: &[char]) -> Option<usize> {
    let attributes = ["#[cfg(test)]", "#[cfg(all(test"];
    let begins = |text: &str| text.chars().zip(chars).all(|(a, &b)| a == b);
    let found = attributes.into_iter().find(|text| chars.len() >= text.len() && begins(text));
    found.and_then(|_| chars.iter().position(|&char| char == ']')).map(|end| end + 1)
}

/// Finds the end of the item, field or argument that begins at `at`.
fn end_of_item(chars: &[char], mut at: usize) -> usize {
    let (mut depth, mut angles) = (0_usize, 0_usize);
    let head: String = chars[at..].iter().take(400).collect();
    let mut words = head.split(|char: char| !char.is_alphanumeric() && char != '_');
    let items = ["fn", "impl", "mod", "use", "struct", "enum", "trait", "const", "static", "type"];
    // These are the first words of an item, after its other attributes. A field has none of them.
    let is_item = words.by_ref().take(60).any(|word| items.contains(&word));
    while at < chars.len() {
        match chars[at] {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return at,
            '}' if depth == 1 => return at + 1,
            ')' | ']' | '}' => depth -= 1,
            '<' => angles += 1,
            '>' => angles = angles.saturating_sub(1),
            ';' if depth == 0 => return at + 1,
            ',' if depth == 0 && angles == 0 && !is_item => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    line: usize,
    code: String,
    comments: Vec<(usize, String)>,
}

impl Reader {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Passes over one character, and keeps it or writes a space.
    fn pass(&mut self, visible: bool) -> char {
        let char = self.peek(0);
        self.at += 1;
        if char == '\n' {
            self.line += 1;
        }
        self.code.push(if visible || char == '\n' { char } else { ' ' });
        char
    }

    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => self.line_comment(),
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('\'', _) => self.quote(),
            (char, _) if char.is_alphabetic() || char == '_' => self.word(),
            _ => {
                self.pass(true);
            }
        }
    }

    fn line_comment(&mut self) {
        let (line, mut text) = (self.line, String::new());
        while self.at < self.chars.len() && self.peek(0) != '\n' {
            text.push(self.pass(false));
        }
        self.comments.push((line, text));
    }

    fn block_comment(&mut self) {
        let (mut depth, mut line, mut text) = (0, self.line, String::new());
        while self.at < self.chars.len() {
            let pair = (self.peek(0), self.peek(1));
            if matches!(pair, ('/', '*') | ('*', '/')) {
                depth += if pair.0 == '/' { 1 } else { -1 };
                text.push(self.pass(false));
            }
            if self.peek(0) == '\n' {
                self.comments.push((line, std::mem::take(&mut text)));
                line += 1;
            }
            text.push(self.pass(false));
            if depth == 0 {
                break;
            }
        }
        self.comments.push((line, text));
    }

    fn string(&mut self) {
        self.pass(true);
        while self.at < self.chars.len() && self.peek(0) != '"' {
            if self.pass(false) == '\\' {
                self.pass(false);
            }
        }
        self.pass(true);
    }

    /// Reads a character literal, a lifetime or a label.
    fn quote(&mut self) {
        let is_char = self.peek(1) == '\\' || self.peek(2) == '\'';
        self.pass(true);
        if is_char {
            if self.pass(false) == '\\' {
                self.pass(false);
            }
            while self.at < self.chars.len() && self.peek(0) != '\'' {
                self.pass(false);
            }
            self.pass(true);
        }
    }

    /// Reads a word, or a string or character with a prefix.
    fn word(&mut self) {
        let mut word = String::new();
        while self.peek(0).is_alphanumeric() || self.peek(0) == '_' {
            word.push(self.pass(true));
        }
        if !matches!(word.as_str(), "r" | "br" | "cr") {
            return;
        }
        let hashes = (0..).take_while(|&ahead| self.peek(ahead) == '#').count();
        if self.peek(hashes) != '"' {
            return;
        }
        for _ in 0..=hashes {
            self.pass(true);
        }
        let ends = |reader: &Reader| {
            reader.peek(0) == '"' && (1..=hashes).all(|ahead| reader.peek(ahead) == '#')
        };
        while self.at < self.chars.len() && !ends(self) {
            self.pass(false);
        }
        for _ in 0..=hashes {
            self.pass(true);
        }
    }
}
