//! Reads the lines of a file, each up to a bound.

use std::io::{self, BufRead, Cursor, Read};

/// The longest line in bytes. In JSON a row takes more bytes than in a transaction.
pub(super) const LINE_BYTES_MAX: usize = 512 << 20;
/// How much of a line that is too long is kept, to show it.
const SHOWN_BYTES_MAX: usize = 1000;

/// The input of an import.
pub(super) type Input = Box<dyn BufRead + Send>;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Removes the byte order mark from the beginning of the input, if there is one.
pub(super) fn without_mark(mut input: Input) -> io::Result<Input> {
    let mut start = Vec::new();
    (&mut input).take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut start)?;
    if start == BYTE_ORDER_MARK {
        start.clear();
    }
    Ok(Box::new(Cursor::new(start).chain(input)))
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Text {
    Whole(Vec<u8>),
    /// The beginning of a line that is longer than the bound.
    TooLong(Vec<u8>),
}

/// Reads the next line, which has at most `max` bytes. `None` at the end of the input.
pub(super) fn line(input: &mut impl BufRead, max: usize) -> io::Result<Option<Text>> {
    let mut line = Vec::new();
    input.take(max as u64 + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > max {
        input.skip_until(b'\n')?;
        line.truncate(SHOWN_BYTES_MAX);
        return Ok(Some(Text::TooLong(line)));
    }
    Ok(Some(Text::Whole(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, max: usize) -> Vec<Text> {
        let mut input = text.as_bytes();
        std::iter::from_fn(|| line(&mut input, max).unwrap()).collect()
    }

    #[test]
    fn lines_are_bounded_and_the_last_one_needs_no_end() {
        let whole = |text: &str| Text::Whole(text.into());
        assert_eq!(lines("a\n\nbcd\r\ne", 4), [whole("a"), whole(""), whole("bcd\r"), whole("e")]);
        let long = Text::TooLong("abcde".into());
        assert_eq!(lines("abcdefgh\nabcd\n", 4), [long, whole("abcd")]);
        assert_eq!(lines("abcd", 4), [whole("abcd")]);
        assert!(matches!(&lines("abcdefgh", 4)[..], [Text::TooLong(_)]));
    }

    #[test]
    fn a_byte_order_mark_is_removed() {
        for (bytes, rest) in [
            (&b"\xef\xbb\xbfab"[..], &b"ab"[..]),
            (b"ab", b"ab"),
            (b"\xef\xbb", b"\xef\xbb"),
            (b"", b""),
        ] {
            let mut read = Vec::new();
            without_mark(Box::new(bytes)).unwrap().read_to_end(&mut read).unwrap();
            assert_eq!(read, rest);
        }
    }
}
