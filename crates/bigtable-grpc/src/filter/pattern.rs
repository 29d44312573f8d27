//! Compiles regular expressions of the API: RE2, on bytes, matching the whole text.
//!
//! A pattern is translated byte by byte into the syntax of the crate `regex`. Bytes outside of
//! ASCII become `\xNN`, so that any pattern matches bytes. RE2 syntax that `regex` lacks is
//! written in another way. A byte that only `regex` would take for syntax is escaped.

use std::fmt::Write;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::hir::HirKind;

/// Memory of one compiled pattern; RE2 has the same bound.
const PROGRAM_BYTES_MAX: usize = 8 << 20;
/// Greatest depth of nested groups.
const NEST_MAX: u32 = 200;

/// A pattern that matches whole texts.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    /// Matches exactly this text.
    Exact(Vec<u8>),
    /// Matches by a regular expression.
    Regex(Regex),
}

impl Pattern {
    /// Compiles a pattern. The error says what is wrong with it.
    pub(crate) fn new(pattern: &[u8]) -> Result<Self, String> {
        let text = translate(pattern)?;
        // The pattern is first parsed alone, so that the group added below cannot make `a)(b`
        // valid.
        let parsed = regex_syntax::ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .nest_limit(NEST_MAX)
            .build()
            .parse(&text)
            .map_err(|error| error.to_string())?;
        match parsed.kind() {
            HirKind::Empty => return Ok(Pattern::Exact(Vec::new())),
            HirKind::Literal(literal) => return Ok(Pattern::Exact(literal.0.to_vec())),
            _ => {}
        }
        let whole = RegexBuilder::new(&format!("^(?:{text})$"))
            .unicode(false)
            .size_limit(PROGRAM_BYTES_MAX)
            .nest_limit(NEST_MAX + 2)
            .build();
        whole.map(Pattern::Regex).map_err(|error| error.to_string())
    }

    /// True if the whole text matches.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        match self {
            Pattern::Exact(exact) => exact == text,
            Pattern::Regex(regex) => regex.is_match(text),
        }
    }
}

/// The rest of a pattern, and its translation so far.
struct Source<'a> {
    left: &'a [u8],
    out: String,
}

fn translate(pattern: &[u8]) -> Result<String, String> {
    let mut source = Source { left: pattern, out: String::with_capacity(pattern.len() * 2) };
    while let Some(byte) = source.take() {
        match byte {
            b'\\' => source.escape(false)?,
            b'[' => source.class()?,
            byte => source.plain(byte),
        }
    }
    Ok(source.out)
}

impl Source<'_> {
    fn take(&mut self) -> Option<u8> {
        let (first, left) = self.left.split_first()?;
        self.left = left;
        Some(*first)
    }

    fn take_if(&mut self, wanted: u8) -> bool {
        let found = self.left.first() == Some(&wanted);
        if found {
            self.left = &self.left[1..];
        }
        found
    }

    fn literal(&mut self, byte: u8) {
        // Writing to a string cannot fail.
        let _ = write!(self.out, "\\x{byte:02x}");
    }

    fn plain(&mut self, byte: u8) {
        if byte.is_ascii_graphic() { self.out.push(char::from(byte)) } else { self.literal(byte) }
    }

    /// Translates the text after a backslash.
    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let byte = self.take().ok_or("it ends with a backslash")?;
        match byte {
            b'C' if !in_class => self.out.push_str("(?s:.)"),
            b'Q' => {
                while !self.left.is_empty() {
                    if let Some(left) = self.left.strip_prefix(b"\\E") {
                        self.left = left;
                        break;
                    }
                    if let Some(byte) = self.take() {
                        self.literal(byte);
                    }
                }
            }
            b'E' => {}
            b'x' => self.hex()?,
            b'0'..=b'7' => self.octal(byte)?,
            b'd' | b'D' | b's' | b'S' | b'w' | b'W' | b'a' | b'f' | b't' | b'n' | b'r' | b'v' => {
                self.out.push('\\');
                self.out.push(char::from(byte));
            }
            b'b' | b'B' | b'A' | b'z' if !in_class => {
                self.out.push('\\');
                self.out.push(char::from(byte));
            }
            byte if byte.is_ascii_alphanumeric() => {
                return Err(format!("unknown escape \\{}", char::from(byte)));
            }
            byte => self.literal(byte),
        }
        Ok(())
    }

    fn hex(&mut self) -> Result<(), String> {
        const WRONG: &str = "\\x must be followed by two hexadecimal digits, or some in braces";
        let digits = if self.take_if(b'{') {
            let end = self.left.iter().position(|byte| *byte == b'}').ok_or(WRONG)?;
            let digits = &self.left[..end];
            self.left = &self.left[end + 1..];
            digits
        } else {
            let (digits, left) = self.left.split_at_checked(2).ok_or(WRONG)?;
            self.left = left;
            digits
        };
        let hex = digits.iter().all(u8::is_ascii_hexdigit) && !digits.is_empty();
        let digits = str::from_utf8(digits).ok().filter(|_| hex).ok_or(WRONG)?;
        let byte = u8::from_str_radix(digits.trim_start_matches('0'), 16);
        let zero = digits.bytes().all(|digit| digit == b'0');
        self.literal(if zero { 0 } else { byte.map_err(|_| "\\x{...} is larger than a byte")? });
        Ok(())
    }

    fn octal(&mut self, first: u8) -> Result<(), String> {
        let is_octal = |byte: Option<&u8>| byte.is_some_and(|b| (b'0'..=b'7').contains(b));
        if first != b'0' && !is_octal(self.left.first()) {
            return Err(format!("unknown escape \\{}", char::from(first)));
        }
        let mut number = u32::from(first - b'0');
        for _ in 0..2 {
            if !is_octal(self.left.first()) {
                break;
            }
            number = number * 8 + self.take().map_or(0, |digit| u32::from(digit - b'0'));
        }
        self.literal(u8::try_from(number).map_err(|_| "an octal escape is larger than a byte")?);
        Ok(())
    }

    /// Translates a class of bytes, after its opening bracket.
    fn class(&mut self) -> Result<(), String> {
        const OPEN: &str = "a class has no closing bracket";
        self.out.push('[');
        if self.take_if(b'^') {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let byte = self.take().ok_or(OPEN)?;
            match byte {
                b']' if !first => break,
                b'\\' => self.escape(true)?,
                b'[' if self.left.first() == Some(&b':') => {
                    let end = self.left.windows(2).position(|two| two == b":]").ok_or(OPEN)?;
                    let (name, left) = self.left.split_at(end + 2);
                    self.left = left;
                    self.out.push('[');
                    name.iter().for_each(|byte| self.plain(*byte));
                }
                b'-' if first => self.literal(b'-'),
                b'-' if self.take_if(b'-') => self.out.push_str("-\\-"),
                b'-' => self.out.push('-'),
                b'^' => self.literal(b'^'),
                byte if byte.is_ascii_alphanumeric() => self.out.push(char::from(byte)),
                byte => self.literal(byte),
            }
            first = false;
        }
        self.out.push(']');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &[u8], yes: &[&[u8]], no: &[&[u8]]) {
        let compiled = Pattern::new(pattern).unwrap();
        for text in yes {
            assert!(compiled.matches(text), "{:?} on {text:?}", pattern.escape_ascii().to_string());
        }
        for text in no {
            assert!(
                !compiled.matches(text),
                "{:?} on {text:?}",
                pattern.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn patterns_match_whole_texts() {
        check(b"foo", &[b"foo"], &[b"", b"fo", b"foox", b"xfoo", b"FOO"]);
        check(b"|a", &[b"", b"a"], &[b"aa", b"b"]);
        check(b"a|bc", &[b"a", b"bc"], &[b"ac", b"abc"]);
        check(b"fo+.*", &[b"foo", b"fox"], &[b"f", b"fo\n"]);
        check(b"", &[b""], &[b"a"]);
        check(b"(?i)foo", &[b"FoO"], &[b"fo"]);
        check(b"(?s).*", &[b"", b"a\nb"], &[]);
    }

    #[test]
    fn patterns_match_bytes() {
        check(b"\\x80\\x80", &[b"\x80\x80"], &[b"\x80", "\u{80}\u{80}".as_bytes()]);
        check(b"\x80*", &[b"", b"\x80\x80"], &[b"\x81"]);
        check(b"\\x80*", &[b"", b"\x80\x80"], &[b"\x81"]);
        check(b"[\\x7f\\x80]{2}", &[b"\x7f\x80", b"\x80\x80"], &[b"\x80", b"\x81\x80"]);
        check(b"[\x7f\x80]{2}", &[b"\x7f\x80", b"\x80\x80"], &[b"\x80", b"\x81\x80"]);
        check(b"\\C{2}", &[b"\x80\x81", b"a\n"], &[b"", b"a"]);
        check("é".as_bytes(), &["é".as_bytes()], &[b"\xe9"]);
        check(b".", &[b"\xff", b"a"], &[b"\n", "é".as_bytes()]);
        check(b"\\x{ff}|\\x{0}|\\001", &[b"\xff", b"\0", b"\x01"], &[b"\x02"]);
    }

    #[test]
    fn quoted_texts_match_themselves() {
        let all: Vec<u8> = (1..=255).collect();
        let mut quoted = Vec::new();
        for byte in &all {
            if !byte.is_ascii_alphanumeric() && *byte != b'_' && *byte < 0x80 {
                quoted.push(b'\\');
            }
            quoted.push(*byte);
        }
        assert!(matches!(Pattern::new(&quoted), Ok(Pattern::Exact(exact)) if exact == all));
        check(b"\\Qa.b*\\E+", &[b"a.b*", b"a.b**"], &[b"aab"]);
        check(b"\\<a\\>", &[b"<a>"], &[b"a"]);
    }

    #[test]
    fn classes_mean_what_they_mean_in_re2() {
        check(b"[[:digit:]x]+", &[b"12x"], &[b"a", b""]);
        check(b"[a&&b]+", &[b"a&b"], &[b"c"]);
        check(b"[a~~b]+", &[b"a~b"], &[b"c"]);
        check(b"[]a]+", &[b"]a"], &[b"b"]);
        check(b"[^]a]", &[b"b", b"\xff"], &[b"]", b"a"]);
        check(b"[[a]+", &[b"[a"], &[b"]"]);
        check(b"[+--]+", &[b"+,-"], &[b"."]);
        check(b"[--/]+", &[b"-./"], &[b","]);
        check(b"[a^]+", &[b"a^"], &[b"b"]);
        check(b"[\\d\\-]+", &[b"1-2"], &[b"a"]);
    }

    #[test]
    fn bad_patterns_are_refused() {
        for bad in [
            &b"*"[..],
            b"(",
            b")",
            b"a)(b",
            b"[",
            b"[a",
            b"\\",
            b"\\pL",
            b"\\1",
            b"\\8",
            b"\\xg0",
            b"\\x{100}",
            b"\\x{",
            b"\\x1",
            b"a{1001}{1001}{1001}",
            b"(?P<n",
            b"[b-a]",
            b"\\777",
        ] {
            assert!(Pattern::new(bad).is_err(), "{:?}", bad.escape_ascii().to_string());
        }
        assert!(Pattern::new(&b"(".repeat(10_000)).is_err());
    }
}
