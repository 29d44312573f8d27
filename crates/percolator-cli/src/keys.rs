//! Reads and shows rows, columns and values as people write them.
//!
//! On input a key has one of two forms:
//!
//! * text, in which `\\`, `\n`, `\r`, `\t` and `\xNN` stand for bytes;
//! * `hex:` or `b64:`, followed by the bytes in that form.
//!
//! Keys are shown with the same escapes, so a printed key can be typed. In JSON a key is
//! `{"utf8": ...}`, or `{"b64": ...}` when it is not text or
//! would be read as bytes. The console uses the same form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use percolator::transaction::COLUMN_BYTES_MAX;
use percolator::{Bytes, Column, RowKey, Timestamp};
use percolator_console::Key;
use serde_json::{Value, json};

use crate::exit::Failure;

const FORMS: &str =
    "write text with \\xNN for any byte and \\\\ for a backslash, hex:00ff, or b64:AP8=";

/// Most bytes of a key that an error message repeats.
const SHOWN_BYTES_MAX: usize = 60;

/// Reads the bytes of a key or value.
pub(crate) fn bytes(text: &str) -> anyhow::Result<Bytes> {
    let parsed = if let Some(digits) = text.strip_prefix("hex:") {
        from_hex(digits)
    } else if let Some(code) = text.strip_prefix("b64:") {
        let code = code.trim_end_matches('=');
        STANDARD_NO_PAD.decode(code).map_err(|error| format!("not base64: {error}"))
    } else {
        from_escapes(text)
    };
    match parsed {
        Ok(bytes) => Ok(bytes.into()),
        Err(why) => Err(Failure::usage(format!("cannot read {}: {why}", brief(text)), FORMS)),
    }
}

/// Reads the key of a row.
pub(crate) fn row(text: &str) -> anyhow::Result<RowKey> {
    let key = RowKey::from(bytes(text)?);
    match key.check() {
        Ok(()) => Ok(key),
        Err(_) => Err(Failure::usage(
            format!("row key {} has {} bytes", brief(text), key.as_bytes().len()),
            format!(
                "a row key has 1 to {} bytes; use a hash as the key of a longer name",
                bigtable::ROW_KEY_BYTES_MAX
            ),
        )),
    }
}

/// Reads the name of a column.
pub(crate) fn column(text: &str) -> anyhow::Result<Column> {
    let name = bytes(text)?;
    let length = name.len();
    Column::new(name).map_err(|_| {
        let why = match length {
            0 => "it is empty".to_owned(),
            n if n > COLUMN_BYTES_MAX => format!("it has {n} bytes, at most {COLUMN_BYTES_MAX}"),
            _ => "its family is missing, reserved, or has a character it cannot have".to_owned(),
        };
        Failure::usage(
            format!("{} is not a column's name: {why}", brief(text)),
            "write family:qualifier, or family alone; the family is of the form \
             [-_.a-zA-Z0-9]+ and not `ack`",
        )
    })
}

/// Checks that a number is a logical timestamp.
pub(crate) fn timestamp(number: u64) -> anyhow::Result<Timestamp> {
    Timestamp::new(number).ok_or_else(|| {
        Failure::usage(
            format!("{number} is not a timestamp"),
            format!("timestamps are numbers from 0 to {}", Timestamp::MAX),
        )
    })
}

/// Shows bytes as text. Bytes that are not printable are escaped.
pub(crate) fn text(bytes: &Bytes) -> String {
    RowKey::from(bytes.clone()).to_string()
}

/// Returns bytes in JSON.
pub(crate) fn json(bytes: &[u8]) -> Value {
    json!(Key::of(bytes))
}

/// Returns the text in quotes, cut off when it is long.
pub(crate) fn brief(text: &str) -> String {
    if text.len() <= SHOWN_BYTES_MAX {
        return format!("{text:?}");
    }
    let cut = (0..=SHOWN_BYTES_MAX).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{:?}...", &text[..cut])
}

fn from_hex(digits: &str) -> Result<Vec<u8>, String> {
    if !digits.len().is_multiple_of(2) {
        return Err(format!("the number of hexadecimal digits is {}, which is odd", digits.len()));
    }
    digits.as_bytes().chunks(2).map(hex_byte).collect()
}

fn hex_byte(digits: &[u8]) -> Result<u8, String> {
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    match digits {
        [high, low] => value(high).zip(value(low)).map(|(high, low)| (high * 16 + low) as u8),
        _ => None,
    }
    .ok_or_else(|| format!("{:?} is not a byte in hexadecimal", String::from_utf8_lossy(digits)))
}

fn from_escapes(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        let (kind, after) = rest.split_first().ok_or("it ends with a single \\; write \\\\")?;
        rest = after;
        match kind {
            b'\\' => out.push(b'\\'),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'x' => {
                let digits = rest.get(..2).unwrap_or(rest);
                out.push(hex_byte(digits)?);
                rest = &rest[2..];
            }
            _ => return Err("a \\ begins \\\\, \\n, \\r, \\t or \\xNN".to_owned()),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<u8> {
        bytes(text).expect(text).to_vec()
    }

    #[test]
    fn every_form_of_a_key_is_read() {
        assert_eq!(read("Bob"), b"Bob");
        assert_eq!(read(r"foo\x00bar"), b"foo\0bar");
        assert_eq!(read(r"a\\b\tc\n"), b"a\\b\tc\n");
        assert_eq!(read("hex:00fF"), [0, 255]);
        assert_eq!(read("b64:AP8="), [0, 255]);
        assert_eq!(read("b64:AP8"), [0, 255]);
        assert_eq!(read("https://a/?q=é"), "https://a/?q=é".as_bytes());
        assert_eq!(read(""), b"");
    }

    #[test]
    fn what_is_shown_can_be_typed() {
        for key in [&b"Bob"[..], b"a\\x00", b"\0\xff\n\t", "é\u{85}".as_bytes()] {
            assert_eq!(read(&text(&Bytes::copy_from_slice(key))), key);
        }
    }

    #[test]
    fn malformed_keys_are_refused() {
        for wrong in ["\\", r"\q", r"\x", r"\x0", r"\xzz", "\\x\u{e9}", "hex:0", "hex:zz", "b64:!"]
        {
            let error = bytes(wrong).expect_err(wrong).to_string();
            assert!(error.starts_with("cannot read"), "{error}");
        }
    }

    #[test]
    fn rows_and_columns_are_checked() {
        assert!(row("").is_err());
        assert!(row(&"k".repeat(4096)).is_ok());
        let error = row(&"k".repeat(4097)).unwrap_err().to_string();
        assert!(error.contains("4097 bytes") && error.len() < 120, "{error}");
        assert_eq!(column("doc:title").unwrap(), Column::literal("doc:title"));
        for wrong in ["", ":title", "a b", "ack:x"] {
            assert!(column(wrong).is_err(), "{wrong}");
        }
        assert!(timestamp(1 << 53).is_err());
    }

    #[test]
    fn json_tells_text_from_bytes() {
        assert_eq!(json(b"Bob"), json!({ "utf8": "Bob" }));
        assert_eq!(json(&[0, 255]), json!({ "b64": "AP8=" }));
    }
}
