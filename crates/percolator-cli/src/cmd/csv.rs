//! Defines the form of an export in CSV.
//!
//! ```text
//!   table,row,row_b64,column,column_b64,value,value_b64
//!   docs,a,,doc:title,,A cod,
//!   docs,,AP8=,doc:empty,,,
//!   ,end,,rows,,2,
//! ```
//!
//! Each record is a cell. Bytes that are text stand in the field of their name, others in base64
//! in the field beside it. At least one of these two fields is empty. If both are, the bytes are
//! empty. The last record has no table, and says how many rows there are. It shows that nothing was
//! cut off.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use csv::{ByteRecord, WriterBuilder};
use percolator::{Bytes, ScannedRow};

/// The fields of a record.
pub(super) const HEADER: [&str; 7] =
    ["table", "row", "row_b64", "column", "column_b64", "value", "value_b64"];

/// The room of a writer, which holds the records of a row.
const ROOM_BYTES: usize = 1024;

/// Returns the header, without the end of its line.
pub(super) fn header() -> anyhow::Result<Vec<u8>> {
    lines([HEADER.map(|name| name.as_bytes().to_vec())])
}

/// Returns the records of a row, without the end of the last one. `None` if it has no cells.
pub(super) fn row(table: &str, row: &ScannedRow) -> anyhow::Result<Option<Vec<u8>>> {
    if row.cells.is_empty() {
        return Ok(None);
    }
    let key = halves(row.row.as_bytes());
    let records = row.cells.iter().map(|(column, value)| {
        let [row, row_b64] = key.clone();
        let [column, column_b64] = halves(column.as_bytes());
        let [value, value_b64] = halves(value);
        [table.as_bytes().to_vec(), row, row_b64, column, column_b64, value, value_b64]
    });
    lines(records).map(Some)
}

/// Returns the last record, without the end of its line.
pub(super) fn end(rows: u64) -> anyhow::Result<Vec<u8>> {
    let rows = rows.to_string();
    lines([["", "end", "", "rows", "", &rows, ""].map(|text| text.as_bytes().to_vec())])
}

/// The number of rows, if a record is the last one.
pub(super) fn is_end(record: &ByteRecord) -> Option<u64> {
    let fields: Vec<&[u8]> = record.iter().collect();
    let [b"", b"end", b"", b"rows", b"", rows, b""] = fields[..] else { return None };
    str::from_utf8(rows).ok()?.parse().ok()
}

/// Returns the bytes of a name or value from its two fields.
pub(super) fn whole(text: &[u8], coded: &[u8], what: &str) -> Result<Bytes, String> {
    if coded.is_empty() {
        let text = str::from_utf8(text).map_err(|_| format!("its {what} is not UTF-8"))?;
        return Ok(Bytes::from(text.to_owned()));
    }
    if !text.is_empty() {
        return Err(format!("it has both {what} and {what}_b64: leave one of them empty"));
    }
    STANDARD.decode(coded).map(Bytes::from).map_err(|error| format!("its {what}_b64: {error}"))
}

/// The two fields of a name or value.
fn halves(bytes: &[u8]) -> [Vec<u8>; 2] {
    match str::from_utf8(bytes) {
        Ok(_) => [bytes.to_vec(), Vec::new()],
        Err(_) => [Vec::new(), STANDARD.encode(bytes).into_bytes()],
    }
}

fn lines<R>(records: impl IntoIterator<Item = R>) -> anyhow::Result<Vec<u8>>
where
    R: IntoIterator<Item: AsRef<[u8]>>,
{
    let mut writer = WriterBuilder::new().buffer_capacity(ROOM_BYTES).from_writer(Vec::new());
    for record in records {
        writer.write_record(record)?;
    }
    let mut lines = writer.into_inner().map_err(|error| error.into_error())?;
    lines.pop();
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_from_their_two_fields() {
        for bytes in [&b""[..], b"b64:AP8=", b"a,\"b\"\r\n", b"\xff\x00", b"\x00", "é".as_bytes()]
        {
            let [text, coded] = halves(bytes);
            assert_eq!(whole(&text, &coded, "row").unwrap(), bytes);
        }
        assert!(whole(b"a", b"YQ==", "row").unwrap_err().contains("both row and row_b64"));
        assert!(whole(b"", b"!", "row").unwrap_err().contains("row_b64"));
        assert!(whole(b"\xff", b"", "row").unwrap_err().contains("not UTF-8"));
    }
}
