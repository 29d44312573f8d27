//! Finds the character encoding of an HTML document, and decodes it to text.
//!
//! The order is the one that browsers use for a local file:
//!
//! 1. the byte order mark;
//! 2. the document's own declaration in its first [`PRESCAN_BYTES`] (`<meta charset>`,
//!    `<meta http-equiv>`, the XML declaration);
//! 3. UTF-8, if the bytes are valid UTF-8;
//! 4. windows-1252, which accepts any bytes.
//!
//! The prescan follows the HTML standard ("prescan a byte stream to determine its encoding").
//! It skips comments and tags, so a charset in a comment or in an attribute of another element
//! does not count.
//!
//! Not here: guessing from letter frequencies. Pages without a label are rare and nearly always
//! UTF-8.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

/// How many bytes of a document are searched for its own declaration of the encoding.
///
/// The standard asks for at least 1024 bytes; generators that put styles first need more.
pub const PRESCAN_BYTES: usize = 4096;

/// How many bytes are decoded first when only the start of a text is needed.
const START_BYTES: usize = 5 << 10;

/// A document's text, and the encoding from which it was decoded.
///
/// ```
/// let page = webindex::charset::decode(b"<meta charset=iso-8859-1><p>caf\xe9");
/// assert!(page.text.ends_with("café"));
/// assert_eq!(page.encoding, "windows-1252");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The text, without byte order mark. Borrowed if the bytes are UTF-8.
    pub text: Cow<'a, str>,
    /// The name of the encoding, as the Encoding standard spells it.
    pub encoding: &'static str,
}

/// Decodes a document. Bytes that are invalid in the encoding become U+FFFD.
pub fn decode(bytes: &[u8]) -> Decoded<'_> {
    if let Some((encoding, bom_bytes)) = Encoding::for_bom(bytes) {
        return decode_as(encoding, bytes.get(bom_bytes..).unwrap_or_default());
    }
    if let Some(encoding) = labelled(bytes) {
        return decode_as(encoding, bytes);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Decoded { text: Cow::Borrowed(text), encoding: UTF_8.name() },
        Err(_) => decode_as(WINDOWS_1252, bytes),
    }
}

/// Returns a start of the text that [`decode`] returns, for which `enough` is true, or else
/// all of it.
///
/// For most documents this reads a few kilobytes only.
pub(crate) fn decode_start(bytes: &[u8], enough: impl Fn(&str) -> bool) -> Cow<'_, str> {
    let mut length = START_BYTES;
    while length < bytes.len() {
        if let Some(text) = start_of(bytes, length).filter(|text| enough(text)) {
            return text;
        }
        length *= 2;
    }
    decode(bytes).text
}

/// Decodes the first `length` bytes as [`decode`] does, without a character that is cut at the
/// end.
///
/// Returns `None` if the text depends on the encoding, and the encoding on the bytes that
/// follow.
fn start_of(bytes: &[u8], length: usize) -> Option<Cow<'_, str>> {
    let start = bytes.get(..length)?;
    if let Some((encoding, bom_bytes)) = Encoding::for_bom(bytes) {
        return Some(start_as(encoding, start.get(bom_bytes..)?));
    }
    match labelled(bytes) {
        Some(encoding) => Some(start_as(encoding, start)),
        // ASCII bytes mean the same in UTF-8 and in windows-1252.
        None if start.is_ascii() => std::str::from_utf8(start).ok().map(Cow::Borrowed),
        None => None,
    }
}

fn start_as<'a>(encoding: &'static Encoding, start: &'a [u8]) -> Cow<'a, str> {
    if encoding == UTF_8 {
        match std::str::from_utf8(start) {
            Ok(text) => return Cow::Borrowed(text),
            Err(error) if error.error_len().is_none() => {
                let whole = start.get(..error.valid_up_to()).unwrap_or_default();
                return Cow::Borrowed(std::str::from_utf8(whole).unwrap_or_default());
            }
            Err(_) => {}
        }
    }
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let bytes_max = decoder.max_utf8_buffer_length(start.len()).unwrap_or(start.len());
    let mut text = String::with_capacity(bytes_max);
    let _ = decoder.decode_to_string(start, &mut text, false);
    Cow::Owned(text)
}

fn decode_as<'a>(encoding: &'static Encoding, bytes: &'a [u8]) -> Decoded<'a> {
    let (text, _had_errors) = encoding.decode_without_bom_handling(bytes);
    Decoded { text, encoding: encoding.name() }
}

/// Returns the encoding that the document declares for itself.
fn labelled(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = bytes.get(..PRESCAN_BYTES).unwrap_or(bytes);
    Prescan { bytes: head, pos: 0 }.run().or_else(|| xml_declaration(head))
}

/// Returns the encoding for a label read from ASCII bytes.
///
/// A label that can be read as ASCII cannot be in a UTF-16 document. So the standard maps
/// UTF-16 labels to UTF-8, and `x-user-defined` to windows-1252.
fn for_ascii_label(label: &[u8]) -> Option<&'static Encoding> {
    let encoding = Encoding::for_label(label)?;
    if encoding == UTF_16LE || encoding == UTF_16BE {
        Some(UTF_8)
    } else if encoding == X_USER_DEFINED {
        Some(WINDOWS_1252)
    } else {
        Some(encoding)
    }
}

/// Reads `<?xml version="1.0" encoding="..."?>` at the very start.
fn xml_declaration(head: &[u8]) -> Option<&'static Encoding> {
    let rest = head.strip_prefix(b"<?xml")?;
    let end = rest.iter().position(|&b| b == b'>')?;
    let declaration = &rest[..end];
    let at = find_ascii_case_insensitive(declaration, b"encoding")?;
    for_ascii_label(value_after_equals(&declaration[at + b"encoding".len()..])?)
}

/// Finds `charset=...` in the content of `<meta http-equiv=content-type content=...>`.
fn from_content(content: &[u8]) -> Option<&'static Encoding> {
    let mut rest = content;
    loop {
        let at = find_ascii_case_insensitive(rest, b"charset")?;
        rest = &rest[at + b"charset".len()..];
        if let Some(label) = value_after_equals(rest) {
            return for_ascii_label(label);
        }
    }
}

/// Reads `= value`, `= "value"` or `= 'value'`. `None` if there is no equals sign.
fn value_after_equals(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    match bytes.first()? {
        quote @ (b'"' | b'\'') => {
            let inner = &bytes[1..];
            let end = inner.iter().position(|b| b == quote)?;
            Some(&inner[..end])
        }
        _ => {
            let ends = |b: &u8| b.is_ascii_whitespace() || *b == b';';
            let end = bytes.iter().position(ends).unwrap_or(bytes.len());
            Some(&bytes[..end])
        }
    }
}

fn find_ascii_case_insensitive(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window.eq_ignore_ascii_case(needle))
}

/// The standard's prescan, which moves a position over tags and comments.
struct Prescan<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Prescan<'a> {
    fn run(&mut self) -> Option<&'static Encoding> {
        while let Some(offset) = self.rest().iter().position(|&b| b == b'<') {
            self.pos += offset;
            let rest = self.rest();
            if rest.starts_with(b"<!--") {
                // Search from offset 2, because `<!-->` is a complete comment.
                self.skip_past(b"-->", 2);
            } else if is_meta(rest) {
                self.pos += b"<meta".len();
                if let Some(encoding) = self.meta() {
                    return Some(encoding);
                }
            } else if starts_tag(rest) {
                self.skip_tag();
            } else if matches!(rest.get(1), Some(b'!' | b'/' | b'?')) {
                self.skip_past(b">", 0);
            } else {
                self.pos += 1;
            }
        }
        None
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.pos..).unwrap_or_default()
    }

    fn skip_past(&mut self, end: &[u8], from: usize) {
        let rest = self.rest().get(from..).unwrap_or_default();
        self.pos = match rest.windows(end.len()).position(|window| window == end) {
            Some(at) => self.pos + from + at + end.len(),
            None => self.bytes.len(),
        };
    }

    fn skip_tag(&mut self) {
        let ends = |b: &u8| b.is_ascii_whitespace() || *b == b'>';
        self.pos += self.rest().iter().position(ends).unwrap_or(self.rest().len());
        while self.attribute().is_some() {}
    }

    /// Reads the attributes of a meta element, and decides by the standard's rules.
    fn meta(&mut self) -> Option<&'static Encoding> {
        let mut is_content_type = false;
        let mut from_charset = None;
        let mut content_charset = None;
        while let Some((name, value)) = self.attribute() {
            if name.eq_ignore_ascii_case(b"http-equiv") {
                is_content_type |= value.eq_ignore_ascii_case(b"content-type");
            } else if name.eq_ignore_ascii_case(b"content") {
                content_charset = content_charset.or_else(|| from_content(value));
            } else if name.eq_ignore_ascii_case(b"charset") {
                from_charset = from_charset.or_else(|| for_ascii_label(value));
            }
        }
        from_charset.or(if is_content_type { content_charset } else { None })
    }

    /// Reads one attribute. `None` at the end of the tag or of the bytes.
    fn attribute(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        self.skip_while(|b| b.is_ascii_whitespace() || b == b'/');
        if matches!(self.rest().first(), None | Some(b'>')) {
            return None;
        }
        let name_start = self.pos;
        // The standard makes a leading `=` a part of the name.
        self.pos += 1;
        self.skip_while(|b| !b.is_ascii_whitespace() && !matches!(b, b'=' | b'/' | b'>'));
        let name = &self.bytes[name_start..self.pos];
        self.skip_while(|b| b.is_ascii_whitespace());
        if self.rest().first() != Some(&b'=') {
            return Some((name, b""));
        }
        self.pos += 1;
        self.skip_while(|b| b.is_ascii_whitespace());
        let value_start = self.pos;
        match self.rest().first() {
            Some(&quote @ (b'"' | b'\'')) => {
                self.pos += 1;
                self.skip_while(|b| b != quote);
                // A quote that is never closed extends to the end of the bytes.
                self.rest().first()?;
                let value = &self.bytes[value_start + 1..self.pos];
                self.pos += 1;
                Some((name, value))
            }
            _ => {
                self.skip_while(|b| !b.is_ascii_whitespace() && b != b'>');
                Some((name, &self.bytes[value_start..self.pos]))
            }
        }
    }

    fn skip_while(&mut self, keep: impl Fn(u8) -> bool) {
        let rest = self.rest();
        self.pos += rest.iter().position(|&b| !keep(b)).unwrap_or(rest.len());
    }
}

fn is_meta(rest: &[u8]) -> bool {
    rest.get(..5).is_some_and(|tag| tag.eq_ignore_ascii_case(b"<meta"))
        && rest.get(5).is_some_and(|&b| b.is_ascii_whitespace() || b == b'/')
}

fn starts_tag(rest: &[u8]) -> bool {
    let letter = if rest.get(1) == Some(&b'/') { rest.get(2) } else { rest.get(1) };
    letter.is_some_and(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding(bytes: &[u8]) -> &'static str {
        decode(bytes).encoding
    }

    #[test]
    fn a_byte_order_mark_beats_the_label() {
        let page = decode(b"\xef\xbb\xbf<meta charset=windows-1251>\xc3\xa9");
        assert_eq!(page.encoding, "UTF-8");
        assert!(page.text.ends_with('é') && page.text.starts_with('<'));
        let utf_16: Vec<u8> = "\u{feff}<p>é".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(decode(&utf_16).text, "<p>é");
        let utf_16: Vec<u8> = "\u{feff}<p>é".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(decode(&utf_16), Decoded { text: "<p>é".into(), encoding: "UTF-16BE" });
    }

    #[test]
    fn labels_are_found_in_every_spelling() {
        for head in [
            &b"<meta charset=euc-kr>"[..],
            b"<META CHARSET='EUC-KR'>",
            b"<html><head><meta\n charset = \"euc-kr\" />",
            b"<meta/charset=euc-kr>",
            b"<meta http-equiv=Content-Type content=\"text/html; charset=euc-kr\">",
            b"<meta content='text/html;CHARSET = \"euc-kr\"' http-equiv='content-type'>",
            b"<?xml version=\"1.0\" encoding=\"euc-kr\"?><html>",
            b"<!-- <meta charset=utf-8> --><meta charset=euc-kr>",
            b"<!--><meta charset=euc-kr>",
            b"<p title='<meta charset=utf-8>'><meta charset=euc-kr>",
            b"<!DOCTYPE html><meta charset=nonsense><meta charset=euc-kr>",
            b"a < b <meta charset=euc-kr>",
            b"<meta content='charset charset=euc-kr' http-equiv=content-type>",
        ] {
            assert_eq!(encoding(head), "EUC-KR", "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn what_is_no_label_does_not_count() {
        for head in [
            &b"<meta content='text/html; charset=euc-kr'>"[..],
            b"<meta http-equiv=refresh content='0; charset=euc-kr'>",
            b"<metal charset=euc-kr>",
            b"<!-- <meta charset=euc-kr>",
            b"<p>charset=euc-kr",
            b"<meta charset=",
            b"<meta charset='euc-kr",
            b"</meta charset=euc-kr>",
        ] {
            assert_eq!(encoding(head), "UTF-8", "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn a_utf_16_label_in_ascii_means_utf_8() {
        assert_eq!(encoding(b"<meta charset=utf-16>\xc3\xa9"), "UTF-8");
        assert_eq!(encoding(b"<meta charset=UTF-16BE>"), "UTF-8");
        assert_eq!(encoding(b"<meta charset=x-user-defined>"), "windows-1252");
    }

    #[test]
    fn without_a_label_valid_utf_8_is_utf_8_and_the_rest_windows_1252() {
        let page = decode("<p>naïve".as_bytes());
        assert_eq!(page.encoding, "UTF-8");
        assert!(matches!(page.text, Cow::Borrowed(_)));
        assert_eq!(
            decode(b"<p>\x93caf\xe9\x94"),
            Decoded { text: "<p>“café”".into(), encoding: "windows-1252" }
        );
    }

    #[test]
    fn a_label_that_lies_gives_replacement_characters() {
        assert_eq!(decode(b"<meta charset=utf-8>caf\xe9").text, "<meta charset=utf-8>caf\u{fffd}");
    }

    #[test]
    fn korean_text_survives_its_label() {
        let page = decode(b"<meta charset=EUC-KR><title>\xbe\xc6\xc6\xc4\xc4\xa1</title>");
        assert!(page.text.contains("아파치"));
    }

    #[test]
    fn labels_beyond_the_prescan_are_not_seen() {
        let mut late = vec![b' '; PRESCAN_BYTES];
        late.extend_from_slice(b"<meta charset=euc-kr>");
        assert_eq!(encoding(&late), "UTF-8");
    }

    #[test]
    fn empty_and_tiny_inputs_decode() {
        for bytes in [&b""[..], b"<", b"<m", b"<meta", b"<meta ", b"<!--", b"<?xml", b"\xff"] {
            decode(bytes);
        }
    }

    #[test]
    fn the_start_is_that_of_the_whole() {
        let long = |unit: &[u8]| unit.repeat(3 * START_BYTES / unit.len());
        for bytes in [
            long(b"ascii "),
            long("ü🦀x".as_bytes()),
            [long(b"ascii "), long("ü".as_bytes())].concat(),
            [long(b"ascii "), long(b"\xfc")].concat(),
            [long("ü".as_bytes()), b"\xfc".to_vec()].concat(),
            [b"<meta charset=utf-8>\xfc".to_vec(), long("ü🦀".as_bytes())].concat(),
            [b"<meta charset=utf-8>".to_vec(), long("ü🦀".as_bytes())].concat(),
            [b"<meta charset=euc-kr>".to_vec(), long(b"\xbe\xc6x")].concat(),
            [b"<meta charset=iso-2022-jp>".to_vec(), long(b"\x1b$B$\"\x1b(B")].concat(),
            [b"\xff\xfe".to_vec(), long(b"a\0\x3c\xd8\x80\xdd")].concat(),
            [b"\xef\xbb\xbf".to_vec(), long("ü".as_bytes())].concat(),
            b"short".to_vec(),
        ] {
            let whole = decode(&bytes).text;
            for chars in [1, 4_096, START_BYTES + 1, usize::MAX] {
                let start = decode_start(&bytes, |text| text.chars().count() >= chars);
                assert!(whole.starts_with(&*start), "{:?}", &whole[..20.min(whole.len())]);
                assert!(start.chars().count() >= chars.min(whole.chars().count()));
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            decode(&bytes);
        }

        #[test]
        fn any_tag_soup_decodes(soup in "[<>!a-e/='\" -]{0,80}(<meta [a-z=;'\" -]{0,40}){0,3}") {
            decode(soup.as_bytes());
        }
    }
}
