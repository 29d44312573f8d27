//! Tests the assembly of rows from chunks: with Google's acceptance test for readers of the
//! stream, and with breaches that it does not cover.
//!
//! `tests/read-rows-acceptance-test.json` is from the source of PyPI's google-cloud-bigtable
//! 2.50.2 (Apache-2.0), unchanged. Its times are microseconds that no table would accept, so
//! the test multiplies them by a thousand.

use base64::Engine;
use serde_json::Value;

use crate::client::merge::Merger;
use crate::proto::data::read_rows_response::CellChunk;
use crate::proto::data::read_rows_response::cell_chunk::RowStatus;

const CASES: &str = include_str!("../../../tests/read-rows-acceptance-test.json");

fn bytes(value: &Value) -> Option<Vec<u8>> {
    let text = value.as_str()?;
    Some(base64::engine::general_purpose::STANDARD.decode(text).unwrap())
}

fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn chunk(case: &Value) -> CellChunk {
    let is = |name: &str| case[name].as_bool().unwrap_or(false);
    let row_status = match (is("commitRow"), is("resetRow")) {
        (true, _) => Some(RowStatus::CommitRow(true)),
        (_, true) => Some(RowStatus::ResetRow(true)),
        _ => None,
    };
    let labels = case["labels"].as_array().into_iter().flatten();
    CellChunk {
        row_key: bytes(&case["rowKey"]).unwrap_or_default().into(),
        family_name: case["familyName"].as_str().map(str::to_owned),
        qualifier: bytes(&case["qualifier"]),
        timestamp_micros: number(&case["timestampMicros"]) * 1000,
        labels: labels.filter_map(|label| label.as_str().map(str::to_owned)).collect(),
        value: bytes(&case["value"]).unwrap_or_default().into(),
        value_size: i32::try_from(number(&case["valueSize"])).unwrap(),
        row_status,
    }
}

/// The cells of the committed rows, and whether the stream kept its rules.
fn merge(chunks: impl Iterator<Item = CellChunk>) -> (Vec<String>, bool) {
    let mut merger = Merger::new(false);
    let mut cells = Vec::new();
    for chunk in chunks {
        let Ok(row) = merger.push(chunk) else { return (cells, false) };
        if let Some(row) = row {
            cells.extend(row.cells.iter().map(|cell| {
                let (qualifier, value) = (cell.qualifier.escape_ascii(), cell.value.escape_ascii());
                format!("{} {}:{qualifier}@{}={value}", row.key, cell.family, cell.timestamp)
            }));
        }
    }
    (cells, merger.finish().is_ok())
}

/// An expected result; its names and values are text.
fn wanted(result: &Value) -> String {
    let text = |name: &str| result[name].as_str().unwrap_or_default();
    let (row, family, qualifier) = (text("rowKey"), text("familyName"), text("qualifier"));
    let (at, value) = (number(&result["timestampMicros"]), text("value"));
    format!("{row} {family}:{qualifier}@{at}={value}")
}

#[test]
fn googles_acceptance_test() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let cases = cases["readRowsTests"].as_array().unwrap();
    assert!(cases.len() > 30);
    for case in cases {
        let name = case["description"].as_str().unwrap();
        let results: Vec<_> = case["results"].as_array().into_iter().flatten().collect();
        let is_error = |result: &&&Value| result["error"].as_bool().unwrap_or(false);
        let sound = !results.iter().any(|result| is_error(&result));
        let mut cells: Vec<_> =
            results.iter().filter(|result| !is_error(result)).map(|r| wanted(r)).collect();
        let chunks = case["chunks"].as_array().into_iter().flatten().map(chunk);
        let (mut got, got_sound) = merge(chunks);
        // Sorted, because rows sort their cells.
        got.sort();
        cells.sort();
        assert_eq!((got, got_sound), (cells, sound), "{name}");
    }
}

#[test]
fn what_breaks_the_rules_otherwise() {
    let cell = |row: &'static str, commits: bool| CellChunk {
        row_key: row.into(),
        family_name: Some("f".to_owned()),
        qualifier: Some(b"q".to_vec()),
        row_status: commits.then_some(RowStatus::CommitRow(true)),
        ..Default::default()
    };
    let sound = |chunks: &[CellChunk]| merge(chunks.iter().cloned()).1;
    assert!(sound(&[cell("a", true), cell("b", true)]));
    assert!(sound(&[cell("a", false), cell("a", true)]), "the key may be said again");
    assert!(!sound(&[cell("b", true), cell("a", true)]), "rows are in order");
    let size = |chunk: CellChunk| CellChunk { value_size: 4, value: "ab".into(), ..chunk };
    assert!(!sound(&[size(cell("a", false)), cell("", true)]), "a column within a cell");
    assert!(!sound(&[size(cell("a", true))]), "a row that ends within a cell");
    let odd = CellChunk { timestamp_micros: 1, ..cell("a", true) };
    assert!(!sound(&[odd]), "a time between two milliseconds");
    let mut backwards = Merger::new(true);
    assert!(backwards.push(cell("b", true)).is_ok() && backwards.push(cell("a", true)).is_ok());
    assert!(backwards.push(cell("a", true)).is_err());
}
