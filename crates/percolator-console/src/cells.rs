//! Converts keys and names of cells between the recorder, the API and requests.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percolator::{Bytes, Column, RowKey};
use serde::{Deserialize, Serialize};

/// A key, a column or a value in JSON: text if it is UTF-8 without control characters, else
/// base64. Text that would be read as bytes when somebody types it is base64, too.
///
/// ```
/// use percolator_console::Key;
/// assert_eq!(serde_json::to_string(&Key::of(b"Bob"))?, r#"{"utf8":"Bob"}"#);
/// assert_eq!(serde_json::to_string(&Key::of(b"\x00\xff"))?, r#"{"b64":"AP8="}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    /// Text.
    Utf8(String),
    /// Bytes in base64.
    B64(String),
}

impl Key {
    /// The JSON form of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            // A request that returned text with a prefix would be parsed as bytes.
            Ok(text)
                if !text.starts_with("b64:")
                    && !text.starts_with("hex:")
                    && !text
                        .chars()
                        .any(|c| c.is_control() && !['\n', '\r', '\t'].contains(&c)) =>
            {
                Key::Utf8(text.to_owned())
            }
            _ => Key::B64(BASE64_STANDARD.encode(bytes)),
        }
    }
}

/// A cell by its names, which this value owns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) table: Box<str>,
    pub(crate) row: RowKey,
    pub(crate) column: Column,
}

impl Place {
    pub(crate) fn new(table: &str, row: &RowKey, column: &Column) -> Self {
        Place { table: table.into(), row: row.clone(), column: column.clone() }
    }
}

/// A cell as the API writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CellDto {
    pub(crate) table: String,
    pub(crate) row: Key,
    pub(crate) column: Key,
}

impl From<&Place> for CellDto {
    fn from(place: &Place) -> Self {
        cell_dto(&place.table, &place.row, &place.column)
    }
}

pub(crate) fn cell_dto(table: &str, row: &RowKey, column: &Column) -> CellDto {
    CellDto {
        table: table.to_owned(),
        row: Key::of(row.as_bytes()),
        column: Key::of(column.as_bytes()),
    }
}

/// Parses a key in a request: plain text, or `b64:` and base64.
pub(crate) fn parse_key(given: &str) -> Result<Bytes, String> {
    match given.strip_prefix("b64:") {
        None => Ok(Bytes::copy_from_slice(given.as_bytes())),
        Some(coded) => BASE64_STANDARD
            .decode(coded)
            .map(Bytes::from)
            .map_err(|error| format!("{given:?} is not base64: {error}")),
    }
}

/// The first bytes, at most so many, which do not end in the middle of a character.
pub(crate) fn beginning(bytes: &[u8], bytes_max: usize) -> &[u8] {
    let Some(cut) = bytes.get(..bytes_max).filter(|cut| cut.len() < bytes.len()) else {
        return bytes;
    };
    match std::str::from_utf8(cut) {
        Err(error) if error.error_len().is_none() => &cut[..error.valid_up_to()],
        _ => cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_text_or_base64() {
        assert_eq!(Key::of("naïve\n".as_bytes()), Key::Utf8("naïve\n".into()));
        assert_eq!(Key::of(b"b64:x"), Key::B64("YjY0Ong=".into()));
        assert_eq!(Key::of(b"\xff\x00"), Key::B64("/wA=".into()));
        assert_eq!(Key::of(b"\x1b[31m"), Key::B64("G1szMW0=".into()));
        assert_eq!(parse_key("b64:/wA=").unwrap(), &b"\xff\x00"[..]);
        assert_eq!(parse_key("a b").unwrap(), &b"a b"[..]);
        assert!(parse_key("b64:?").is_err());
    }
}
