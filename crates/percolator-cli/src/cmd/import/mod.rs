//! Implements `import`: writes the rows of a file into a store.
//!
//! ```text
//! row      a line, and the checks of a row
//! input    the lines of the file, each up to a bound
//! mapping  how the fields of other programs become rows and columns
//! json     lines of JSON
//! csv      records of CSV
//! ```
//!
//! The rows are written by transactions of bounded size. Each transaction also stores how many
//! lines of the file are imported so far, under a hash of the file and of the options. So an
//! interrupted import goes on after these lines, and loses none. A changed file has another hash,
//! and is imported from its first line. Standard input cannot be hashed beforehand, so its import
//! starts from the first line again.

mod csv;
mod input;
mod json;
mod mapping;
mod row;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use percolator::{Attempt, Column, Percolator, RowKey, Table};
use serde_json::json;

use crate::cmd::export::{Format, VERSION};
use crate::cmd::import::csv::CsvRecords;
use crate::cmd::import::input::Input;
use crate::cmd::import::json::JsonLines;
use crate::cmd::import::mapping::Mapping;
use crate::cmd::import::row::{Bad, Item, Line, Row};
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

/// Write the rows of a file into a store.
///
/// Without --table, --key and --map the file is one that `percolator export` wrote. With them each
/// object of JSON lines, or each record of CSV, becomes a row. Null, and a field of JSON that is
/// missing, make no cell. A number is its text.
///
/// An existing row gets the cells of the file, and keeps its other cells. The observers of the
/// exported tables are registered first. They run for each imported cell, once a program that has
/// them works on the store. If the import of a file is interrupted, run it again: it continues
/// where it stopped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator import all.jsonl --data NEW
  percolator import books.csv --table docs --key isbn --map title=doc:title --data D
  percolator import - --table docs --key id --map by.name=doc:author --data D < books.jsonl
  gunzip < docs.gz | percolator import - --errors bad.jsonl --config percolator.toml")]
pub(crate) struct Import {
    /// The file, or - for standard input. An import of standard input begins at its first line each
    /// time.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The format of the file; by default csv if the file's name ends in .csv, and else jsonl.
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// The table of the rows, if the file is not an export.
    #[arg(long, value_name = "NAME", requires_all = ["key", "map"])]
    table: Option<String>,
    /// The field with the key of the row. In JSON, a.b is field b of the object in field a, and \\.
    /// is a dot.
    #[arg(long, value_name = "FIELD", requires = "table")]
    key: Option<String>,
    /// A field, and the column that it is written to.
    #[arg(long, value_name = "FIELD=COLUMN", requires = "table")]
    map: Vec<String>,
    /// Append lines that cannot be imported to this file, with the reason, and continue. The exit
    /// status is then 1.
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

impl Import {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let mut source = self.source()?;
        // An unknown version is found before the store is opened, so it changes nothing.
        let first = source.next()?;
        if let Some(Item { number, line: Ok(Line::Unknown(version)) }) = &first {
            return Err(unknown(*number, version));
        }
        let key = if self.is_stdin() { None } else { Some(RowKey::from(self.digest()?)) };
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
        let missing = importing.all(first, source).await?;
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
        if let Some(what) = missing {
            return Err(Failure::error(Exit::Violated, what, "export the data again"));
        }
        Ok(if counts.bad_lines == 0 { Exit::Done } else { Exit::No })
    }

    fn is_stdin(&self) -> bool {
        self.file == Path::new("-")
    }

    fn format(&self) -> Format {
        let is_csv = self.file.extension().is_some_and(|it| it.eq_ignore_ascii_case("csv"));
        self.format.unwrap_or(if is_csv { Format::Csv } else { Format::Jsonl })
    }

    /// Opens the file.
    fn source(&self) -> anyhow::Result<Source> {
        let mapping = match (&self.table, &self.key) {
            (Some(table), Some(key)) => Some(Mapping::new(table, key, &self.map)?),
            _ => None,
        };
        let input: Input = if self.is_stdin() {
            Box::new(BufReader::new(io::stdin()))
        } else {
            Box::new(BufReader::new(File::open(&self.file).map_err(|error| self.unread(error))?))
        };
        let input = input::without_mark(input).map_err(|error| self.unread(error))?;
        Ok(match self.format() {
            Format::Jsonl => Source::Json(JsonLines::new(input, mapping)),
            Format::Csv => Source::Csv(Box::new(CsvRecords::new(input, mapping)?)),
        })
    }

    fn unread(&self, error: io::Error) -> anyhow::Error {
        let what = format!("{}: the file cannot be read: {error}", self.file.display());
        Failure::usage(what, "name a file, or - for standard input")
    }

    /// Returns a hash of the file's content and of the options that give it a meaning. The
    /// position of the import is stored under this hash.
    fn digest(&self) -> anyhow::Result<String> {
        let mut hasher = blake3::Hasher::new();
        let mut file = File::open(&self.file).map_err(|error| self.unread(error))?;
        io::copy(&mut file, &mut hasher).map_err(|error| self.unread(error))?;
        let options = (self.format(), &self.table, &self.key, &self.map);
        if !matches!(options, (Format::Jsonl, None, ..)) {
            hasher.update(format!("{options:?}").as_bytes());
        }
        Ok(hasher.finalize().to_hex().to_string())
    }
}

/// The file, in its format.
enum Source {
    Json(JsonLines),
    Csv(Box<CsvRecords>),
}

impl Source {
    fn next(&mut self) -> anyhow::Result<Option<Item>> {
        let item = match self {
            Source::Json(lines) => lines.next(),
            Source::Csv(records) => records.next(),
        };
        item.context("reading the file's lines")
    }
}

/// The rows of the export that is being read, to find out whether some are missing.
#[derive(Default)]
struct Whole {
    /// Whether the last line of an export must follow.
    is_open: bool,
    rows: u64,
    missing: Option<String>,
}

impl Whole {
    /// Begins another export.
    fn begin(&mut self) {
        self.check_closed();
        (self.is_open, self.rows) = (true, 0);
    }

    fn end(&mut self, rows: u64) {
        let found = self.rows;
        if std::mem::take(&mut self.is_open) && found < rows {
            self.missing.get_or_insert_with(|| {
                format!("the file has {found} rows, and its export had {rows}")
            });
        }
    }

    fn check_closed(&mut self) {
        if self.is_open {
            let what = "the file ends before the export's last line, so rows may be missing";
            self.missing.get_or_insert_with(|| what.to_owned());
        }
    }
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
    /// Imports all lines. Returns a message if rows of an export are missing.
    async fn all(
        &mut self,
        first: Option<Item>,
        mut source: Source,
    ) -> anyhow::Result<Option<String>> {
        let done = self.position().await?;
        self.counts.resumed_after = done;
        let mut whole = Whole::default();
        if let Source::Csv(records) = &source
            && records.is_export()
        {
            whole.begin();
        }
        let (mut cells, mut bytes) = (0, 0);
        let mut next = first;
        while let Some(Item { number, line }) = next {
            match line {
                Ok(Line::Begin(observers)) => {
                    whole.begin();
                    self.db.declare(&observers).await?;
                }
                Ok(Line::Unknown(version)) => return Err(unknown(number, &version)),
                Ok(Line::End(rows)) => whole.end(rows),
                Ok(Line::Blank) => {}
                Err(bad) => {
                    whole.rows += 1;
                    self.bad(number, &bad)?;
                }
                Ok(Line::Row(row)) => {
                    whole.rows += 1;
                    if number > done {
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
            }
            self.counts.lines = number;
            next = source.next()?;
        }
        self.write(true).await?;
        whole.check_closed();
        Ok(whole.missing)
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

    fn bad(&mut self, number: u64, Bad { why, text }: &Bad) -> anyhow::Result<()> {
        self.counts.bad_lines += 1;
        if number <= self.counts.resumed_after {
            // The interrupted import has reported the line.
            return Ok(());
        }
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

fn unknown(line: u64, version: &str) -> anyhow::Error {
    Failure::usage(
        format!(
            "line {line}: the export has version {version}, and this release reads version \
             {VERSION}"
        ),
        "import it with the release that wrote it",
    )
}
