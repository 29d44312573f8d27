//! Implements `import`: writes the rows of an exported file into a store.
//!
//! The rows are written by transactions of bounded size. Each transaction also stores how many
//! lines of the file are imported so far, under a hash of the file. So an interrupted import goes
//! on after these lines, and loses none. Standard input cannot be hashed beforehand, so its
//! import starts from the first line again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bigtable::{VALUE_BYTES_MAX, check_table_name};
use clap::Args;
use percolator::observe::{Observed, Strength};
use percolator::transaction::{ROW_KEY_BYTES_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_CELLS_MAX};
use percolator::{Attempt, Bytes, Column, Percolator, RowKey, Table};
use serde_json::{Value, json};

use crate::cmd::export::VERSION;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys::brief;
use crate::output::grouped;
use crate::progress::Progress;
use crate::store::StoreArgs;

/// The table of the positions of imports that are not complete.
pub(super) const POSITIONS: &str = "percolator-imports";
const POSITION: Column = Column::literal("import:lines");
/// No position has more bytes, with its key and its column.
const POSITION_BYTES_MAX: usize = 128;

/// The most cells and bytes that one transaction writes, unless a single line has more.
const CELLS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

/// Write the rows of a file from `percolator export` into a store.
///
/// An existing row gets the cells of the file, and keeps its other cells. The observers of the
/// exported tables are registered first. They run for each imported cell, once a program that has
/// them works on the store. If the import of a file is interrupted, run it again: it continues
/// where it stopped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator import all.jsonl --data NEW
  gunzip < docs.gz | percolator import - --errors bad.jsonl --config percolator.toml")]
pub(crate) struct Import {
    /// The file, or - for standard input. An import of standard input begins at its first line each
    /// time.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Append lines that cannot be imported to this file, with the reason, and continue.
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

/// The outcome of an import.
#[derive(Debug, Default)]
struct Counts {
    lines: u64,
    resumed_after: u64,
    rows: u64,
    cells: u64,
    bad_lines: u64,
}

/// The kinds of lines.
enum Line {
    Begin(Vec<Observed>),
    /// The first line of an export of this version, whose lines this release does not know.
    Unknown(Value),
    Row(Row),
    End(u64),
}

struct Row {
    table: String,
    row: RowKey,
    cells: Vec<(Column, Bytes)>,
}

impl Row {
    /// Returns how many bytes of a transaction the row takes at most. Each cell has the key.
    fn bytes(&self) -> usize {
        let key = self.row.as_bytes().len();
        let cell = |(column, value): &(Column, Bytes)| key + column.as_bytes().len() + value.len();
        self.cells.iter().map(cell).sum::<usize>() + key
    }

    /// Checks that one transaction can write the row and the position.
    fn check(&self) -> Result<(), String> {
        if check_table_name(&self.table).is_err() || self.table.starts_with("percolator.") {
            return Err(format!("{:?} is not a table name", self.table));
        }
        if !(1..=ROW_KEY_BYTES_MAX).contains(&self.row.as_bytes().len()) {
            return Err("its row key is empty or too long".to_owned());
        }
        if self.cells.iter().any(|(_, value)| value.len() > VALUE_BYTES_MAX) {
            return Err(format!("it has a value of more than {VALUE_BYTES_MAX} bytes"));
        }
        let (cells_max, bytes_max) =
            (TRANSACTION_CELLS_MAX - 1, TRANSACTION_BYTES_MAX - POSITION_BYTES_MAX);
        if self.cells.len() > cells_max || self.bytes() > bytes_max {
            return Err(format!("it has more than {cells_max} cells or {bytes_max} bytes"));
        }
        Ok(())
    }
}

impl Import {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let reading = |error: io::Error| {
            let what = format!("{}: the file cannot be read: {error}", self.file.display());
            Failure::usage(what, "name a file that `percolator export` wrote, or -")
        };
        let is_stdin = self.file == Path::new("-");
        let mut lines: Box<dyn BufRead + Send> = if is_stdin {
            Box::new(BufReader::new(io::stdin()))
        } else {
            Box::new(BufReader::new(File::open(&self.file).map_err(reading)?))
        };
        // An unknown version is found before the store is opened, so it changes nothing.
        let mut first = Vec::new();
        lines.read_until(b'\n', &mut first).map_err(reading)?;
        if let Ok(Line::Unknown(version)) = parse(&first) {
            return Err(unknown(1, &version));
        }
        let key =
            if is_stdin { None } else { Some(RowKey::from(digest(&self.file).map_err(reading)?)) };
        let errors = self.errors.as_ref().map(|path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.with_context(|| format!("opening {}", path.display()))
        });
        let store = self.store.synced_at_end();
        let db = store.open().await?;
        let mut importing = Importing {
            positions: db.table(POSITIONS).await?,
            db: &db,
            key,
            errors: errors.transpose()?,
            tables: BTreeMap::new(),
            batch: Vec::new(),
            counts: Counts::default(),
            progress: Progress::new(out.quiet, None),
        };
        let whole = importing.all(first.as_slice().chain(lines)).await?;
        db.sync().await?;
        let counts = importing.counts;
        if out.json {
            out.json(&json!({
                "lines": counts.lines,
                "resumed_after": counts.resumed_after,
                "rows": counts.rows,
                "cells": counts.cells,
                "bad_lines": counts.bad_lines,
            }))?;
        } else {
            out.line(&format!(
                "imported {} rows with {} cells; {} lines were bad",
                grouped(counts.rows),
                grouped(counts.cells),
                grouped(counts.bad_lines)
            ))?;
        }
        if !whole {
            let what = "the file ends before the export's last line, so rows may be missing";
            return Err(Failure::error(Exit::Violated, what, "export the data again"));
        }
        Ok(if counts.bad_lines == 0 { Exit::Done } else { Exit::No })
    }
}

/// Returns a hash of the file's content, under which the position of its import is stored.
fn digest(file: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut File::open(file)?, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

struct Importing<'a> {
    db: &'a Percolator,
    positions: Table,
    /// The row of the position. `None` if the import cannot go on after an interruption.
    key: Option<RowKey>,
    errors: Option<File>,
    tables: BTreeMap<String, Table>,
    batch: Vec<Row>,
    counts: Counts,
    progress: Progress,
}

impl Importing<'_> {
    /// Imports all lines. Returns `false` if the file begins like an export and has no last
    /// line of one.
    async fn all(&mut self, lines: impl BufRead + Send) -> anyhow::Result<bool> {
        let done = self.position().await?;
        self.counts.resumed_after = done;
        let (mut is_export, mut has_end) = (false, false);
        let (mut cells, mut bytes) = (0, 0);
        for line in lines.split(b'\n') {
            let line = line.context("reading the file's lines")?;
            let number = self.counts.lines + 1;
            match parse(&line) {
                Ok(Line::Begin(observers)) => {
                    is_export = true;
                    self.db.declare(&observers).await?;
                }
                Ok(Line::Unknown(version)) => return Err(unknown(number, &version)),
                Ok(Line::End(rows)) => {
                    has_end = true;
                    tracing::debug!(rows, "the export is whole");
                }
                Err(why) => self.bad(number, &line, &why)?,
                _ if number <= done => {}
                Ok(Line::Row(row)) => {
                    cells += row.cells.len();
                    bytes += row.bytes();
                    let is_full = cells > CELLS_MAX || bytes > BYTES_MAX;
                    if is_full && !self.batch.is_empty() {
                        self.write(false).await?;
                        (cells, bytes) = (row.cells.len(), row.bytes());
                    }
                    self.batch.push(row);
                }
            }
            self.counts.lines = number;
        }
        self.write(true).await?;
        Ok(has_end || !is_export)
    }

    async fn position(&self) -> anyhow::Result<u64> {
        let Some(key) = &self.key else { return Ok(0) };
        let stored = self.db.snapshot().await?.get(&self.positions, key.clone(), &POSITION).await?;
        let number = stored.and_then(|value| str::from_utf8(&value).ok()?.parse().ok());
        Ok(number.unwrap_or(0))
    }

    /// Writes the batch, and the number of lines that are in the store with it.
    async fn write(&mut self, last: bool) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        for row in &batch {
            if !self.tables.contains_key(&row.table) {
                let table = self.db.table(&row.table).await;
                let table = table.with_context(|| format!("opening table {}", row.table))?;
                self.tables.insert(row.table.clone(), table);
            }
        }
        let (tables, positions, key) = (&self.tables, &self.positions, &self.key);
        let position = self.counts.lines.to_string();
        self.db
            .transact(async |mut tx: Attempt| {
                for Row { table, row, cells } in &batch {
                    for (column, value) in cells {
                        tx.set(&tables[table], row.clone(), column, value.clone())?;
                    }
                }
                match key {
                    Some(key) if last => tx.delete(positions, key.clone(), &POSITION),
                    Some(key) => tx.set(positions, key.clone(), &POSITION, position.clone()),
                    None => Ok(()),
                }
            })
            .await
            .with_context(|| format!("writing the rows up to line {position}"))?;
        self.counts.rows += batch.len() as u64;
        self.counts.cells += batch.iter().map(|row| row.cells.len() as u64).sum::<u64>();
        let rows = self.counts.rows;
        self.progress.say(rows, &format!("{} rows are imported", grouped(rows)));
        Ok(())
    }

    fn bad(&mut self, number: u64, line: &[u8], why: &str) -> anyhow::Result<()> {
        self.counts.bad_lines += 1;
        if number <= self.counts.resumed_after {
            // The interrupted import has reported the line.
            return Ok(());
        }
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\r');
        let Some(errors) = &mut self.errors else {
            return Err(Failure::usage(
                format!("line {number} cannot be imported: {why}: {}", brief(text)),
                "correct the line, or leave such lines out with --errors FILE",
            ));
        };
        let report = json!({ "line": number, "why": why, "text": text });
        writeln!(errors, "{report}").context("writing to the file of --errors")
    }
}

fn unknown(line: u64, version: &Value) -> anyhow::Error {
    Failure::usage(
        format!(
            "line {line}: the export has version {version}, and this release reads version \
             {VERSION}"
        ),
        "import it with the release that wrote it",
    )
}

fn parse(line: &[u8]) -> Result<Line, String> {
    let line = str::from_utf8(line).map_err(|_| "it is not UTF-8")?;
    let value: Value =
        serde_json::from_str(line).map_err(|error| format!("it is not JSON: {error}"))?;
    if let Some(version) = value.get("percolator_export") {
        if version.as_u64() != Some(VERSION) {
            return Ok(Line::Unknown(version.clone()));
        }
        let observers = value.get("observers").and_then(Value::as_array);
        let observers = observers.into_iter().flatten().map(observed).collect::<Result<_, _>>()?;
        return Ok(Line::Begin(observers));
    }
    if let Some(end) = value.get("end") {
        return Ok(Line::End(end["rows"].as_u64().unwrap_or(0)));
    }
    let row = RowKey::from(bytes(&value["row"], "row")?);
    let cells = value["cells"].as_array().ok_or("it has no cells")?;
    let cells =
        cells.iter().map(|cell| Ok((column(&cell["column"])?, bytes(&cell["value"], "value")?)));
    let cells = cells.collect::<Result<_, String>>()?;
    let row = Row { table: text(&value["table"], "table")?, row, cells };
    row.check()?;
    Ok(Line::Row(row))
}

fn text(value: &Value, what: &str) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("its {what} is not text"))
}

fn bytes(value: &Value, what: &str) -> Result<Bytes, String> {
    if let Some(text) = value.as_str() {
        return Ok(Bytes::from(text.to_owned()));
    }
    let coded = value.get("b64").and_then(Value::as_str);
    let coded = coded.ok_or_else(|| format!("its {what} is neither text nor {{\"b64\": ..}}"))?;
    STANDARD.decode(coded).map(Bytes::from).map_err(|error| format!("its {what}: {error}"))
}

fn column(value: &Value) -> Result<Column, String> {
    Column::new(bytes(value, "column")?).map_err(|error| error.to_string())
}

fn observed(value: &Value) -> Result<Observed, String> {
    Ok(Observed {
        table: text(&value["table"], "observer's table")?,
        column: column(&value["column"])?,
        observer: text(&value["observer"], "observer")?,
        strength: match value["strength"].as_str() {
            Some("strong") => Strength::Strong,
            Some("weak") => Strength::Weak,
            _ => return Err("its observer's strength is neither strong nor weak".to_owned()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_or_refused_with_a_reason() {
        let row = r#"{"table":"t","row":{"b64":"AP8="},"cells":[{"column":"c:q","value":""}]}"#;
        let Ok(Line::Row(row)) = parse(row.as_bytes()) else { panic!("a row") };
        assert_eq!((row.row.as_bytes(), row.cells.len()), (&[0, 255][..], 1));
        assert!(row.cells[0].1.is_empty());
        for (line, why) in [
            ("", "not JSON"),
            ("{}", "its row"),
            (r#"{"table":"t","row":"","cells":[]}"#, "empty"),
            (r#"{"table":"t","row":"a"}"#, "no cells"),
            (r#"{"row":"a","cells":[]}"#, "its table"),
            (r#"{"table":"t","row":{"b64":"!"},"cells":[]}"#, "its row"),
            (r#"{"table":"t","row":"a","cells":[{"column":"c","value":7}]}"#, "its value"),
            (r#"{"table":"percolator.x","row":"a","cells":[]}"#, "not a table name"),
            (r#"{"table":"a b","row":"a","cells":[]}"#, "not a table name"),
        ] {
            let found = parse(line.as_bytes()).err().unwrap_or_default();
            assert!(found.contains(why), "{line}: {found}");
        }
        assert_eq!(parse(b"{\xff}").err().unwrap(), "it is not UTF-8");
    }

    #[test]
    fn a_row_that_no_transaction_writes_is_refused() {
        let why = |row: usize, cells: usize, value: usize| {
            let cell = (Column::literal("c:q"), Bytes::from(vec![0; value]));
            let (row, cells) = (RowKey::from(vec![b'r'; row]), vec![cell; cells]);
            Row { table: "t".to_owned(), row, cells }.check().err().unwrap_or_default()
        };
        assert_eq!(why(ROW_KEY_BYTES_MAX, 3, VALUE_BYTES_MAX), "");
        assert_eq!(why(1, TRANSACTION_CELLS_MAX - 1, 0), "");
        assert!(why(ROW_KEY_BYTES_MAX + 1, 1, 1).contains("too long"));
        assert!(why(1, 1, VALUE_BYTES_MAX + 1).contains("a value of"));
        assert!(why(1, TRANSACTION_CELLS_MAX, 0).contains("cells"));
        assert!(why(1, TRANSACTION_BYTES_MAX / VALUE_BYTES_MAX, VALUE_BYTES_MAX).contains("bytes"));
    }
}
