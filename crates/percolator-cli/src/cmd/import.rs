//! Implements `import`: writes the rows of an exported file into a store.
//!
//! The rows are written by transactions of bounded size. Each transaction also stores how many
//! lines are imported with it, under a hash of the file. So an interrupted import goes on
//! after these lines, and loses none. Standard input cannot be hashed beforehand, so its
//! import starts from the first line again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use percolator::observe::{Observed, Strength};
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

/// The most cells and bytes that one transaction writes, unless a single line has more.
const CELLS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

/// Write the rows of a file from `percolator export` into a store.
///
/// An existing row gets the cells of the file, and keeps its other cells. The observers of the
/// exported tables are registered first. They run for each imported cell, once a program that
/// has them works on the store. If the import of a file is interrupted, run it again: it goes
/// on where it stopped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator import all.jsonl --data NEW
  gunzip < docs.gz | percolator import - --errors bad.jsonl --config percolator.toml")]
pub(crate) struct Import {
    /// The file, or - for standard input, which is read from its beginning each time.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Append lines that cannot be imported to this file, with the reason, and go on.
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
    Row(Row),
    End { rows: u64 },
}

struct Row {
    table: String,
    row: RowKey,
    cells: Vec<(Column, Bytes)>,
}

impl Row {
    fn bytes(&self) -> usize {
        let cell = |(column, value): &(Column, Bytes)| column.as_bytes().len() + value.len();
        self.cells.iter().map(cell).sum::<usize>() + self.row.as_bytes().len()
    }
}

impl Import {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let reading = |error: io::Error| {
            let what = format!("{}: it cannot be read: {error}", self.file.display());
            Failure::usage(what, "name a file that `percolator export` wrote, or -")
        };
        let is_stdin = self.file == Path::new("-");
        let lines: Box<dyn BufRead + Send> = if is_stdin {
            Box::new(BufReader::new(io::stdin()))
        } else {
            Box::new(BufReader::new(File::open(&self.file).map_err(reading)?))
        };
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
        let whole = importing.all(lines).await?;
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
    async fn all(&mut self, lines: Box<dyn BufRead + Send>) -> anyhow::Result<bool> {
        let done = self.position().await?;
        self.counts.resumed_after = done;
        let (mut is_export, mut has_end) = (false, false);
        let (mut cells, mut bytes) = (0, 0);
        for line in lines.lines() {
            let line = line.context("reading the lines")?;
            self.counts.lines += 1;
            let number = self.counts.lines;
            let parsed = parse(&line);
            match parsed {
                Ok(Line::Begin(observers)) => {
                    is_export = true;
                    self.db.declare(&observers).await?;
                }
                Ok(Line::End { rows }) => {
                    has_end = true;
                    tracing::debug!(rows, "the export is whole");
                }
                _ if number <= done => {}
                Ok(Line::Row(row)) => {
                    cells += row.cells.len();
                    bytes += row.bytes();
                    self.batch.push(row);
                }
                Err(why) => self.bad(number, &line, &why)?,
            }
            if cells >= CELLS_MAX || bytes >= BYTES_MAX {
                self.write(false).await?;
                (cells, bytes) = (0, 0);
            }
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
                let table = self.db.table(&row.table).await?;
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
            .await?;
        self.counts.rows += batch.len() as u64;
        self.counts.cells += batch.iter().map(|row| row.cells.len() as u64).sum::<u64>();
        let rows = self.counts.rows;
        self.progress.say(rows, &format!("{} rows are imported", grouped(rows)));
        Ok(())
    }

    fn bad(&mut self, number: u64, line: &str, why: &str) -> anyhow::Result<()> {
        self.counts.bad_lines += 1;
        let Some(errors) = &mut self.errors else {
            return Err(Failure::usage(
                format!("line {number} cannot be imported: {why}: {}", brief(line)),
                "mend the line, or give --errors FILE to leave such lines out",
            ));
        };
        let report = json!({ "line": number, "why": why, "text": line });
        writeln!(errors, "{report}").context("writing to the file of errors")
    }
}

fn parse(line: &str) -> Result<Line, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("no JSON: {error}"))?;
    if let Some(version) = value.get("percolator_export") {
        if version.as_u64() != Some(VERSION) {
            return Err(format!("an export of version {version}; this release reads {VERSION}"));
        }
        let observers = value.get("observers").and_then(Value::as_array);
        let observers = observers.into_iter().flatten().map(observed).collect::<Result<_, _>>()?;
        return Ok(Line::Begin(observers));
    }
    if let Some(end) = value.get("end") {
        return Ok(Line::End { rows: end["rows"].as_u64().unwrap_or(0) });
    }
    let row = RowKey::from(bytes(&value["row"], "row")?);
    row.check().map_err(|_| "its row key is empty or too long".to_owned())?;
    let cells = value["cells"].as_array().ok_or("it has no cells")?;
    let cells =
        cells.iter().map(|cell| Ok((column(&cell["column"])?, bytes(&cell["value"], "value")?)));
    Ok(Line::Row(Row {
        table: text(&value["table"], "table")?,
        row,
        cells: cells.collect::<Result<_, String>>()?,
    }))
}

fn text(value: &Value, what: &str) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("its {what} is no text"))
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
        let Ok(Line::Row(row)) = parse(row) else { panic!("a row") };
        assert_eq!((row.row.as_bytes(), row.cells.len()), (&[0, 255][..], 1));
        assert!(row.cells[0].1.is_empty());
        for (line, why) in [
            ("", "no JSON"),
            ("{}", "its row"),
            (r#"{"table":"t","row":"","cells":[]}"#, "empty"),
            (r#"{"table":"t","row":"a"}"#, "no cells"),
            (r#"{"row":"a","cells":[]}"#, "its table"),
            (r#"{"table":"t","row":{"b64":"!"},"cells":[]}"#, "its row"),
            (r#"{"table":"t","row":"a","cells":[{"column":"c","value":7}]}"#, "its value"),
            (r#"{"percolator_export":2}"#, "version 2"),
        ] {
            let found = parse(line).err().unwrap_or_default();
            assert!(found.contains(why), "{line}: {found}");
        }
    }
}
