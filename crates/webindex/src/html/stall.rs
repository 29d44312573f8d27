//! What holds the tokenizer up when no token comes: a long comment, or a tag of many attributes.

use std::ops::Range;

use super::ATTRIBUTES_PER_TAG_MAX;
use super::sink::Status;

/// How many bytes may pass without a token before it is asked why.
pub(super) const STALL_BYTES: usize = 32 << 10;

/// Where the tokenizer was last seen to move, and what it has been reading since.
#[derive(Debug, Default)]
pub(super) struct Progress {
    tokens: u64,
    token_end: usize,
    /// Where to look for what is open if no further token comes.
    open_from: usize,
    open: Option<Open>,
}

/// A construct without tokens.
#[derive(Debug)]
enum Open {
    /// A comment, doctype or section: it may take as long as it likes.
    Comment,
    /// A tag, scanned up to a position.
    Tag(TagScan, usize),
}

impl Progress {
    /// Takes note of a piece; returns whether the tokenizer is stuck in a tag.
    ///
    /// Unless pieces end `after_tags`, it cannot be known what is open, and any long time without
    /// a token counts.
    pub(super) fn is_stuck(
        &mut self,
        text: &str,
        piece: Range<usize>,
        status: Status,
        after_tags: bool,
    ) -> bool {
        if status.tokens != self.tokens {
            let open_from = if status.closed { piece.end } else { piece.start };
            let tokens = status.tokens;
            *self = Progress { tokens, token_end: piece.end, open_from, open: None };
            return false;
        }
        if piece.end - self.token_end < STALL_BYTES {
            return false;
        }
        // In raw text, only the end tag can hold tokens back, whatever looks like a comment.
        if !after_tags || status.in_raw_text {
            return true;
        }
        let bytes = text.as_bytes();
        let open = self.open.get_or_insert_with(|| {
            let end = piece.end.min(bytes.len());
            open_construct(bytes, self.open_from..end, status.has_sections)
        });
        match open {
            Open::Comment => false,
            Open::Tag(scan, scanned) => {
                scan.feed(bytes.get(*scanned..piece.end).unwrap_or_default());
                *scanned = piece.end;
                scan.attributes > ATTRIBUTES_PER_TAG_MAX
            }
        }
    }
}

/// Finds the construct that is opened in `range` and not closed there.
///
/// Text and sections may come before it; a complete tag or comment cannot, as pieces end there.
fn open_construct(bytes: &[u8], range: Range<usize>, has_sections: bool) -> Open {
    let mut at = range.start;
    while at + 2 < range.end {
        let rest = &bytes[at..range.end];
        match (rest[0], rest[1], rest[2]) {
            (b'<', b'!', _) if has_sections && rest.starts_with(b"<![CDATA[") => {
                match rest.windows(3).position(|window| window == b"]]>") {
                    Some(end) => at += end,
                    None => return Open::Comment,
                }
            }
            (b'<', b'!' | b'?', _) => return Open::Comment,
            (b'<', b'/', letter) if !letter.is_ascii_alphabetic() => return Open::Comment,
            (b'<', b'/', _) => return Open::Tag(TagScan::default(), at + 2),
            (b'<', letter, _) if letter.is_ascii_alphabetic() => {
                return Open::Tag(TagScan::default(), at + 1);
            }
            _ => {}
        }
        at += 1;
    }
    // Nothing is open that could hold tokens for long.
    Open::Comment
}

/// Counts the attributes of a tag that has not ended, as the tokenizer would see them.
#[derive(Debug, Default)]
struct TagScan {
    state: TagState,
    attributes: usize,
}

#[derive(Debug, Default, Clone, Copy)]
enum TagState {
    #[default]
    TagName,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Unquoted,
    Quoted(u8),
}

impl TagScan {
    fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.step(byte);
        }
    }

    fn step(&mut self, byte: u8) {
        use TagState::{AfterName, BeforeName, BeforeValue, Name, Quoted, TagName, Unquoted};
        let is_space = byte.is_ascii_whitespace();
        self.state = match (self.state, byte) {
            (Quoted(quote), _) if byte == quote => BeforeName,
            (Quoted(quote), _) => Quoted(quote),
            (BeforeValue, b'"' | b'\'') => Quoted(byte),
            (BeforeValue, _) if is_space => BeforeValue,
            (Name | AfterName, b'=') => BeforeValue,
            (Name | AfterName, _) if is_space => AfterName,
            (TagName | BeforeName | Unquoted, _) if is_space => BeforeName,
            (TagName | BeforeName | Name | AfterName, b'/') => BeforeName,
            (BeforeName | AfterName, _) => {
                self.attributes += 1;
                Name
            }
            (BeforeValue | Unquoted, _) => Unquoted,
            (state @ (TagName | Name), _) => state,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(tag: &str) -> usize {
        let mut scan = TagScan::default();
        scan.feed(tag.as_bytes());
        scan.attributes
    }

    #[test]
    fn attributes_are_counted_as_the_tokenizer_does() {
        for (tag, count) in [
            ("img", 0),
            ("img ", 0),
            ("img a b c", 3),
            ("img a=1 b=\"x y / z\" c='\"'d", 4),
            ("img/a/b=/c/d e", 3),
            ("img a = x b", 2),
            ("img a= \"x y", 1),
            ("img =\"b c d", 3),
            ("img a==\"b c", 2),
            ("img a\"b c\"", 2),
        ] {
            assert_eq!(attributes(tag), count, "{tag}");
        }
    }

    #[test]
    fn the_open_construct_is_found_behind_text_and_sections() {
        let find = |text: &str, has_sections| match open_construct(
            text.as_bytes(),
            0..text.len(),
            has_sections,
        ) {
            Open::Comment => None,
            Open::Tag(_, at) => Some(at),
        };
        assert_eq!(find("a < b <3 <p x", false), Some(10));
        assert_eq!(find("</p x", false), Some(2));
        assert_eq!(find("a <!-- <p x", false), None);
        assert_eq!(find("a </3 <p x", false), None);
        assert_eq!(find("<![CDATA[ <b ]]><p x", true), Some(17));
        assert_eq!(find("<![CDATA[ <b ]]><p x", false), None);
        assert_eq!(find("<![CDATA[ <b ]]", true), None);
        assert_eq!(find("", true), None);
    }
}
