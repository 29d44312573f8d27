//! Reads records of CSV: those of an export, and those of other programs.
//!
//! Neighbouring records of an export that belong to one row make one row, so one transaction
//! writes all its cells. A field of another program is a value as it stands. CSV has no null: an
//! empty field is an empty value.

use std::io::{self, Read};

use csv::{ByteRecord, Reader, ReaderBuilder, Trim};
use percolator::{Bytes, Column, RowKey};

use crate::cmd::csv as form;
use crate::cmd::import::input::{Input, LINE_BYTES_MAX};
use crate::cmd::import::mapping::{Field, Mapping};
use crate::cmd::import::row::{Bad, Item, Line, ROW_BYTES_MAX, ROW_CELLS_MAX, Row};
use crate::exit::Failure;

const BUFFER_BYTES: usize = 1 << 16;

/// The records of a file.
pub(super) struct CsvRecords {
    reader: Reader<Kept>,
    fields: usize,
    form: Form,
    record: ByteRecord,
    /// The row whose records are being read.
    row: Option<Part>,
    /// The item after that row.
    after: Option<Item>,
}

/// A row of which more records may follow.
struct Part {
    /// The number of its last record so far.
    number: u64,
    row: Row,
    bytes: usize,
}

impl Part {
    fn new(number: u64, row: Row) -> Part {
        Part { number, bytes: row.bytes(), row }
    }

    fn item(self) -> Item {
        Item { number: self.number, line: Ok(Line::Row(self.row)) }
    }

    /// Adds another record of the row. Returns the record if it belongs to another row, or if no
    /// transaction could write both.
    fn add(&mut self, number: u64, mut more: Row) -> Option<Row> {
        let bytes = self.bytes + more.bytes();
        let same = (&self.row.table, &self.row.row) == (&more.table, &more.row);
        if !same || bytes > ROW_BYTES_MAX || self.row.cells.len() >= ROW_CELLS_MAX {
            return Some(more);
        }
        self.row.cells.append(&mut more.cells);
        (self.number, self.bytes) = (number, bytes);
        None
    }
}

/// How a record becomes a row.
enum Form {
    Exported,
    /// The places of the key and of the columns among the fields.
    Mapped {
        mapping: Mapping,
        key: usize,
        cells: Vec<usize>,
    },
}

impl CsvRecords {
    /// Reads the header.
    pub(super) fn new(input: Input, mapping: Option<Mapping>) -> anyhow::Result<Self> {
        let kept = Kept { input, bytes: Vec::new(), begin: 0, from: 0, max: LINE_BYTES_MAX };
        let mut builder = ReaderBuilder::new();
        builder.has_headers(false).flexible(true).trim(Trim::None).buffer_capacity(BUFFER_BYTES);
        let mut reader = builder.from_reader(kept);
        let mut header = ByteRecord::new();
        if !reader.read_byte_record(&mut header)? {
            let help = "name a file of CSV that begins with the names of its fields";
            return Err(Failure::usage("the file is empty, and has no header", help));
        }
        let form = match mapping {
            Some(mapping) => {
                let key = place(&header, &mapping.key)?;
                let cells = mapping.cells.iter().map(|(field, _)| place(&header, field));
                let cells = cells.collect::<anyhow::Result<_>>()?;
                Form::Mapped { mapping, key, cells }
            }
            None if header.iter().eq(form::HEADER.map(str::as_bytes)) => Form::Exported,
            None => {
                return Err(Failure::usage(
                    format!("the header is not that of an export: {}", form::HEADER.join(",")),
                    "say with --table, --key and --map how its fields become rows",
                ));
            }
        };
        let record = ByteRecord::new();
        Ok(CsvRecords { reader, fields: header.len(), form, record, row: None, after: None })
    }

    /// Whether the file must have the last record of an export.
    pub(super) fn is_export(&self) -> bool {
        matches!(self.form, Form::Exported)
    }

    /// Reads the next row, or bad record.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Item>> {
        if let Some(item) = self.after.take() {
            return Ok(Some(item));
        }
        loop {
            let next = match self.record()? {
                Some(Item { number, line: Ok(Line::Row(row)) }) if self.is_export() => {
                    let Some(part) = &mut self.row else {
                        self.row = Some(Part::new(number, row));
                        continue;
                    };
                    let Some(other) = part.add(number, row) else { continue };
                    let part = self.row.replace(Part::new(number, other));
                    return Ok(part.map(Part::item));
                }
                other => other,
            };
            let Some(part) = self.row.take() else { return Ok(next) };
            self.after = next;
            return Ok(Some(part.item()));
        }
    }

    /// Reads the next record.
    fn record(&mut self) -> anyhow::Result<Option<Item>> {
        let from = self.reader.position().byte();
        self.reader.get_mut().from = from;
        if !self.reader.read_byte_record(&mut self.record)? {
            return Ok(None);
        }
        let (begin, end) = (self.record.position(), self.reader.position().byte());
        let text = self.reader.get_ref().text(from, end);
        // The position is that before empty lines, and before the second character of the end of
        // the line before.
        let blank = text.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let ends = text[..blank].iter().filter(|byte| **byte == b'\n').count();
        let number = begin.map_or(1, csv::Position::line) + ends as u64;
        let line = self.line().map_err(|why| {
            let text = String::from_utf8_lossy(&text[blank..]);
            Bad { why, text: text.trim_end_matches(['\r', '\n']).to_owned() }
        });
        Ok(Some(Item { number, line }))
    }

    fn line(&self) -> Result<Line, String> {
        let record = &self.record;
        if record.len() != self.fields {
            let (found, wanted) = (record.len(), self.fields);
            return Err(format!("it has {found} fields, and the header has {wanted}"));
        }
        match &self.form {
            Form::Exported => exported(record),
            Form::Mapped { mapping, key, cells } => {
                let value = |at: &usize| {
                    let text = str::from_utf8(&record[*at]);
                    let text = text.map_err(|_| format!("field {} is not UTF-8", at + 1))?;
                    Ok::<_, String>(Some(Bytes::from(text.to_owned())))
                };
                let values = cells.iter().map(value).collect::<Result<Vec<_>, _>>()?;
                mapping.row(value(key)?, values.into_iter()).map(Line::Row)
            }
        }
    }
}

/// Makes a row with one cell of a record of an export.
fn exported(record: &ByteRecord) -> Result<Line, String> {
    if let Some(rows) = form::is_end(record) {
        return Ok(Line::End(rows));
    }
    let table = str::from_utf8(&record[0]).map_err(|_| "its table is not UTF-8")?;
    let row = RowKey::from(form::whole(&record[1], &record[2], "row")?);
    let column = form::whole(&record[3], &record[4], "column")?;
    let column = Column::new(column).map_err(|error| error.to_string())?;
    let value = form::whole(&record[5], &record[6], "value")?;
    let row = Row { table: table.to_owned(), row, cells: vec![(column, value)] };
    row.check()?;
    Ok(Line::Row(row))
}

/// The place of a field in the header.
fn place(header: &ByteRecord, field: &Field) -> anyhow::Result<usize> {
    let mut places = (0..header.len()).filter(|at| header[*at] == *field.text.as_bytes());
    let wrong = match (places.next(), places.next()) {
        (Some(place), None) => return Ok(place),
        (None, _) => "has no",
        (Some(_), Some(_)) => "has more than one",
    };
    let names = header.iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(", ");
    Err(Failure::usage(
        format!("the header {wrong} field {:?}", field.text),
        format!("name fields with --key and --map that the header has once: {names}"),
    ))
}

/// The input, with the text of the record that is being read.
struct Kept {
    input: Input,
    /// The bytes of the input from `begin` on that were read.
    bytes: Vec<u8>,
    begin: u64,
    /// Bytes before this place are not needed any more.
    from: u64,
    max: usize,
}

impl Kept {
    fn text(&self, from: u64, to: u64) -> &[u8] {
        let place = |at: u64| usize::try_from(at - self.begin).unwrap_or(usize::MAX);
        self.bytes.get(place(from)..place(to)).unwrap_or_default()
    }
}

impl Read for Kept {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let done = usize::try_from(self.from - self.begin).unwrap_or(usize::MAX);
        self.bytes.drain(..done.min(self.bytes.len()));
        self.begin = self.from;
        if self.bytes.len() > self.max {
            let text = format!(
                "a record has more than {} bytes: a quote that begins a field may have no end",
                self.max
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let count = self.input.read(buffer)?;
        self.bytes.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(text: &'static [u8]) -> anyhow::Result<CsvRecords> {
        let mapping = Mapping::new("docs", "id", &["title=d:t".to_owned()]).unwrap();
        CsvRecords::new(Box::new(text), Some(mapping))
    }

    /// The number of each record, with its row or the reason why it is bad.
    fn all(records: anyhow::Result<CsvRecords>) -> Vec<(u64, String)> {
        let mut records = records.unwrap();
        let items = std::iter::from_fn(|| records.next().unwrap());
        let shown = items.map(|Item { number, line }| match line {
            Ok(Line::Row(row)) => {
                let cells = row.cells.iter().map(|(column, value)| format!(" {column}={value:?}"));
                (number, format!("{}{}", row.row, cells.collect::<String>()))
            }
            Ok(Line::End(rows)) => (number, format!("end {rows}")),
            Ok(_) => (number, "?".to_owned()),
            Err(Bad { why, text }) => (number, format!("{why}: {text}")),
        });
        shown.collect()
    }

    fn of(shown: &[(u64, &str)]) -> Vec<(u64, String)> {
        shown.iter().map(|(number, text)| (*number, (*text).to_owned())).collect()
    }

    #[test]
    fn records_have_the_numbers_of_their_first_lines() {
        for end in ["\n", "\r\n"] {
            let text = "id,more,title\n1,x,\"a\nb\"\n\n2,,\n3\n,x,a\n4,x,\"say \"\"a\"\"\"";
            let text = text.replace('\n', end).into_bytes();
            let shown = all(mapped(text.leak()));
            let first = format!("1 d:t={:?}", Bytes::from(format!("a{end}b")));
            let expected = of(&[
                (2, &first),
                (5, "2 d:t=b\"\""),
                (6, "it has 1 fields, and the header has 3: 3"),
                (7, "its row key is empty or too long: ,x,a"),
                (8, "4 d:t=b\"say \\\"a\\\"\""),
            ]);
            assert_eq!(shown, expected, "{end:?}");
        }
        let shown = all(mapped(b"id,title\n1,\xff\n"));
        assert_eq!(shown, of(&[(2, "field 2 is not UTF-8: 1,\u{fffd}")]));
    }

    #[test]
    fn neighbouring_records_of_a_row_make_one_row() {
        let lines = "t,a,,c:1,,x,\nt,a,,c:2,,,AP8=\nt,a,,c:3,,y,AP8=\nt,a,,c:4,,z,\nu,a,,c:1,,x,\n";
        let text = format!("{}\n{lines},end,,rows,,3,\n", form::HEADER.join(","));
        let shown = all(CsvRecords::new(Box::new(&*text.into_bytes().leak()), None));
        let expected = of(&[
            (3, "a c:1=b\"x\" c:2=b\"\\0\\xff\""),
            (4, "it has both value and value_b64: leave one of them empty: t,a,,c:3,,y,AP8="),
            (5, "a c:4=b\"z\""),
            (6, "a c:1=b\"x\""),
            (7, "end 3"),
        ]);
        assert_eq!(shown, expected);
    }

    #[test]
    fn headers_are_checked() {
        let why = |text: &'static [u8]| mapped(text).err().unwrap().to_string();
        assert!(why(b"").contains("empty"));
        assert!(why(b"id,name\n").contains("no field \"title\""));
        assert!(why(b"id,title,title\n").contains("more than one field \"title\""));
        let other = CsvRecords::new(Box::new(&b"id,title\n"[..]), None);
        assert!(other.err().unwrap().to_string().contains("not that of an export"));
    }

    #[test]
    fn a_record_without_an_end_is_bounded() {
        let mut text = b"id,title\n1,a\n2,\"".to_vec();
        text.resize(10 * BUFFER_BYTES, b'x');
        let mut records = mapped(text.leak()).unwrap();
        records.reader.get_mut().max = BUFFER_BYTES;
        assert!(records.next().unwrap().is_some());
        let error = records.next().err().unwrap().to_string();
        assert!(error.contains("a quote that begins a field"), "{error}");
    }
}
