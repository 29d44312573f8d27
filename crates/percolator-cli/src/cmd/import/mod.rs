//! Implements `import`: writes the rows of a file into a store.
//!
//! ```text
//! row      a line, and the checks of a row
//! input    the lines of the file, each up to a bound
//! mapping  how the fields of other programs become rows and columns
//! json     lines of JSON
//! csv      records of CSV
//! source   both of them
//! rows     the transactions that write the rows
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
mod rows;
mod source;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use percolator::RowKey;
use serde_json::json;

use crate::cmd::import::csv::CsvRecords;
use crate::cmd::import::input::Input;
use crate::cmd::import::json::JsonLines;
use crate::cmd::import::mapping::Mapping;
use crate::cmd::import::row::{Item, Line};
use crate::cmd::import::rows::Importing;
use crate::cmd::import::source::{Source, unknown};
use crate::cmd::transfer::Format;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::grouped;
use crate::private;
use crate::progress::Progress;
use crate::store::StoreArgs;

/// Write the rows of a file into a store.
///
/// Without --table, --key and --map the file is one that `percolator export` wrote. With them each
/// object of JSON lines, or each record of CSV, becomes a row. Null, and a field of JSON that is
/// missing, make no cell. A number is its text.
///
/// An existing row gets the cells of the file, and keeps its other cells. The observers of the
/// exported tables are registered first. They run for each imported cell, once a program that has
/// them works on the store, unless --observers skip is given. If the import of a file is
/// interrupted, run it again: it continues where it stopped.
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
    /// The field with the key of the row. In JSON, a.b is field b of the object in field a. In a
    /// name, \. is a dot and \\ a backslash; quote them for the shell.
    #[arg(long, value_name = "FIELD", requires = "table")]
    key: Option<String>,
    /// A field, and the column that it is written to.
    #[arg(long, value_name = "FIELD=COLUMN", requires = "table")]
    map: Vec<String>,
    /// Append lines that cannot be imported to this file, with the reason, and continue. The exit
    /// status is then 1.
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
    /// Whether observers run for the imported cells. An observer that the store does not know yet
    /// runs in any case, when a program registers it.
    #[arg(long, value_enum, default_value = "run", value_name = "WHAT")]
    observers: Observers,
    #[command(flatten)]
    store: StoreArgs,
}

/// Whether observers run for imported cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Observers {
    /// They run for each cell, as after any other write.
    Run,
    /// They skip the imported cells, and run for later changes of these cells. Derived data must
    /// be in the file too.
    Skip,
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
            let file = private::writing().append(true).open(path);
            file.with_context(|| format!("opening {}", path.display()))
        });
        let store = self.store.synced_at_end();
        let db = store.open().await?;
        let skips = self.observers == Observers::Skip;
        let progress = Progress::new(out.quiet, None);
        let mut importing = Importing::new(&db, key, errors.transpose()?, skips, progress).await?;
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
        let options = (self.format(), self.observers, &self.table, &self.key, &self.map);
        if !matches!(options, (Format::Jsonl, Observers::Run, None, ..)) {
            hasher.update(format!("{options:?}").as_bytes());
        }
        Ok(hasher.finalize().to_hex().to_string())
    }
}
