//! Reads lines of JSON: those of an export, and those of other programs.
//!
//! A field that occurs twice in an object makes a bad line, because its two values may differ.
//!
//! The fields of other programs become values by these rules:
//!
//! * Text is the value, without quotes and escapes.
//! * A number is its text, as it stands in the line. `true` and `false` likewise.
//! * An object or a list is its JSON, as it stands in the line. It cannot be a key.
//! * `null`, and a field that is missing, make no cell.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percolator::observe::{Observed, Strength};
use percolator::{Bytes, Column, RowKey};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::cmd::import::input::{self, Input, LINE_BYTES_MAX, Text};
use crate::cmd::import::mapping::{Field, Mapping};
use crate::cmd::import::row::{Bad, Item, Line, Row};
use crate::cmd::transfer::VERSION;
use crate::keys::brief;

/// The lines of a file.
pub(super) struct JsonLines {
    input: Input,
    mapping: Option<Mapping>,
    number: u64,
}

impl JsonLines {
    pub(super) fn new(input: Input, mapping: Option<Mapping>) -> Self {
        JsonLines { input, mapping, number: 0 }
    }

    /// Reads the next line.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Item>> {
        let Some(text) = input::line(&mut self.input, LINE_BYTES_MAX)? else { return Ok(None) };
        self.number += 1;
        let (line, text) = match text {
            Text::Whole(text) => (parse(&text, self.mapping.as_ref()), text),
            Text::TooLong(text) => {
                let why = format!("it has more than {LINE_BYTES_MAX} bytes");
                (Err(format!("{why}, and only its beginning is shown")), text)
            }
        };
        let bad = |why| {
            let text = String::from_utf8_lossy(&text);
            Bad { why, text: text.trim_end_matches('\r').to_owned() }
        };
        Ok(Some(Item { number: self.number, line: line.map_err(bad) }))
    }
}

fn parse(line: &[u8], mapping: Option<&Mapping>) -> Result<Line, String> {
    let line = str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    if line.trim_ascii().is_empty() {
        return Ok(Line::Blank);
    }
    match mapping {
        Some(mapping) => mapped(line, mapping).map(Line::Row),
        None => exported(line),
    }
}

/// The fields of an object.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Unique;
        impl<'de> Visitor<'de> for Unique {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("the field {name:?} occurs twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Unique)
    }
}

impl<'a> Fields<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            if error.is_data() { error.to_string() } else { format!("it is not JSON: {error}") }
        })
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|value| value.get())
    }
}

/// Reads a line of an export.
fn exported(line: &str) -> Result<Line, String> {
    let fields = Fields::read(line)?;
    if let Some(version) = fields.get("percolator_export") {
        if version != VERSION.to_string() {
            return Ok(Line::Unknown(version.to_owned()));
        }
        let observers = fields.get("observers").map(list).transpose()?.unwrap_or_default();
        let observers = observers.into_iter().map(|value| observed(value.get()));
        return Ok(Line::Begin(observers.collect::<Result<_, _>>()?));
    }
    if let Some(end) = fields.get("end") {
        let rows = Fields::read(end)?.get("rows").and_then(|rows| rows.parse().ok());
        return Ok(Line::End(rows.unwrap_or(0)));
    }
    let row = RowKey::from(bytes(fields.get("row"), "row")?);
    let cells = fields.get("cells").and_then(|cells| list(cells).ok()).ok_or("it has no cells")?;
    let cells = cells.into_iter().map(|cell| {
        let cell = Fields::read(cell.get())?;
        Ok((column(cell.get("column"))?, bytes(cell.get("value"), "value")?))
    });
    let cells = cells.collect::<Result<_, String>>()?;
    let row = Row { table: text(fields.get("table"), "table")?, row, cells };
    row.check()?;
    Ok(Line::Row(row))
}

fn list(value: &str) -> Result<Vec<&RawValue>, String> {
    serde_json::from_str(value).map_err(|error| error.to_string())
}

/// The text of a value that is a string.
fn as_text(value: &str) -> Option<String> {
    serde_json::from_str(value).ok()
}

fn text(value: Option<&str>, what: &str) -> Result<String, String> {
    value.and_then(as_text).ok_or_else(|| format!("its {what} is not text"))
}

fn bytes(value: Option<&str>, what: &str) -> Result<Bytes, String> {
    if let Some(text) = value.and_then(as_text) {
        return Ok(Bytes::from(text));
    }
    let object = value.and_then(|value| Fields::read(value).ok());
    let coded = object.and_then(|fields| fields.get("b64").and_then(as_text));
    let coded = coded.ok_or_else(|| format!("its {what} is neither text nor {{\"b64\": ..}}"))?;
    STANDARD.decode(coded).map(Bytes::from).map_err(|error| format!("its {what}: {error}"))
}

fn column(value: Option<&str>) -> Result<Column, String> {
    Column::new(bytes(value, "column")?).map_err(|error| error.to_string())
}

fn observed(value: &str) -> Result<Observed, String> {
    let fields = Fields::read(value)?;
    Ok(Observed {
        table: text(fields.get("table"), "observer's table")?,
        column: column(fields.get("column"))?,
        observer: text(fields.get("observer"), "observer")?,
        strength: match fields.get("strength").and_then(as_text).as_deref() {
            Some("strong") => Strength::Strong,
            Some("weak") => Strength::Weak,
            _ => return Err("its observer's strength is neither strong nor weak".to_owned()),
        },
    })
}

/// Makes a row of a line of another program.
fn mapped(line: &str, mapping: &Mapping) -> Result<Row, String> {
    let fields = Fields::read(line)?;
    let key = find(&fields, &mapping.key)?;
    if key.is_some_and(|key| key.starts_with(['{', '['])) {
        return Err(format!("its key {:?} is an object or a list", mapping.key.text));
    }
    let mut values = Vec::with_capacity(mapping.cells.len());
    for (field, _) in &mapping.cells {
        values.push(find(&fields, field)?.map_or(Ok(None), value)?);
    }
    mapping.row(key.map_or(Ok(None), value)?, values.into_iter())
}

/// The value of a field. `None` if a name of its path is missing, or is not in an object.
fn find<'a>(fields: &Fields<'a>, field: &Field) -> Result<Option<&'a str>, String> {
    let mut names = field.path.iter();
    let mut found = names.next().and_then(|name| fields.get(name));
    for name in names {
        found = match found {
            Some(object) if object.starts_with('{') => Fields::read(object)?.get(name),
            _ => return Ok(None),
        };
    }
    Ok(found)
}

/// The bytes of a value by the rules of the module.
fn value(raw: &str) -> Result<Option<Bytes>, String> {
    match raw {
        "null" => Ok(None),
        raw if raw.starts_with('"') => {
            let text = as_text(raw).ok_or_else(|| format!("{} is not text", brief(raw)))?;
            Ok(Some(Bytes::from(text)))
        }
        raw => Ok(Some(Bytes::from(raw.to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(line: &[u8], mapping: Option<&Mapping>) -> String {
        parse(line, mapping).err().unwrap_or_default()
    }

    #[test]
    fn a_line_is_read_or_refused_with_a_reason() {
        let row = r#"{"table":"t","row":{"b64":"AP8="},"cells":[{"column":"c:q","value":""}]}"#;
        let Ok(Line::Row(row)) = parse(row.as_bytes(), None) else { panic!("a row") };
        assert_eq!((row.row.as_bytes(), row.cells.len()), (&[0, 255][..], 1));
        assert!(row.cells[0].1.is_empty());
        for (line, why) in [
            ("{", "not JSON"),
            ("7", "expected an object"),
            ("{}", "its row"),
            (r#"{"table":"t","row":"","cells":[]}"#, "empty"),
            (r#"{"table":"t","row":"a"}"#, "no cells"),
            (r#"{"row":"a","cells":[]}"#, "its table"),
            (r#"{"table":"t","row":{"b64":"!"},"cells":[]}"#, "its row"),
            (r#"{"table":"t","row":"a","cells":[{"column":"c","value":7}]}"#, "its value"),
            (r#"{"table":"percolator.x","row":"a","cells":[]}"#, "not a table name"),
            (r#"{"table":"a b","row":"a","cells":[]}"#, "not a table name"),
            (r#"{"table":"t","row":"a","row":"b","cells":[]}"#, "\"row\" occurs twice"),
        ] {
            let found = super::tests::why(line.as_bytes(), None);
            assert!(found.contains(why), "{line}: {found}");
        }
        assert_eq!(why(b"{\xff}", None), "it is not UTF-8");
        assert!(matches!(parse(b" \r", None), Ok(Line::Blank)));
    }

    #[test]
    fn fields_of_others_become_cells() {
        let map = ["title=d:t", "by.name=d:by", "n=d:n", "all=d:all"].map(str::to_owned);
        let mapping = Mapping::new("docs", "id", &map).unwrap();
        let row = |line: &str| match parse(line.as_bytes(), Some(&mapping)) {
            Ok(Line::Row(row)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let cells = row.cells.iter();
                let cells = cells.map(|(column, value)| format!("{column}={}", text(value)));
                (text(row.row.as_bytes()), cells.collect::<Vec<_>>().join(" "))
            }
            _ => panic!("{line}: {}", why(line.as_bytes(), Some(&mapping))),
        };
        let is = |key: &str, cells: &str| (key.to_owned(), cells.to_owned());
        let line = r#"{"id":7, "title":"a\u0041", "by":{"name":"B"}, "n":1.50e3, "all":[1, {}]}"#;
        assert_eq!(row(line), is("7", "d:t=aA d:by=B d:n=1.50e3 d:all=[1, {}]"));
        let line = r#"{"id":"a","title":"","by":"B","n":null,"more":1,"all":true}"#;
        assert_eq!(row(line), is("a", "d:t= d:all=true"));
        let big = "123456789012345678901234567890";
        assert_eq!(row(&format!(r#"{{"id":{big},"n":{big}}}"#)), is(big, &format!("d:n={big}")));
        for (line, expected) in [
            (r#"{"title":"a"}"#, "no field \"id\""),
            (r#"{"id":null,"title":"a"}"#, "no field \"id\""),
            (r#"{"id":"","title":"a"}"#, "row key is empty"),
            (r#"{"id":["a"],"title":"a"}"#, "an object or a list"),
            (r#"{"id":"a","title":null}"#, "none of the mapped fields"),
            (r#"{"id":"a","id":"b","title":"a"}"#, "\"id\" occurs twice"),
            (r#"{"id":"a","by":{"name":"a","name":"b"}}"#, "\"name\" occurs twice"),
            ("[]", "expected an object"),
            (r#"{"id":"a","title":"\ud800"}"#, "is not text"),
        ] {
            let found = why(line.as_bytes(), Some(&mapping));
            assert!(found.contains(expected), "{line}: {found}");
        }
    }
}
