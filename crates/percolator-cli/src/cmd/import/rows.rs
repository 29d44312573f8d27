//! Writes the rows of a file into a store, in transactions that also write the position.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use anyhow::Context as _;
use percolator::observe::Strength;
use percolator::{Attempt, Column, Percolator, RowKey, Table};
use serde_json::json;

use crate::cmd::import::row::{Bad, Item, Line, ROW_CELLS_MAX, Row};
use crate::cmd::import::source::{Source, unknown};
use crate::cmd::transfer::POSITIONS;
use crate::exit::Failure;
use crate::keys::brief;
use crate::output::grouped;
use crate::progress::Progress;

const POSITION: Column = Column::literal("import:lines");

/// The most cells and bytes that one transaction writes, unless a single line has more.
const CELLS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

/// The outcome of an import.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) lines: u64,
    pub(super) resumed_after: u64,
    pub(super) rows: u64,
    pub(super) cells: u64,
    pub(super) bad_lines: u64,
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

/// An import at work.
pub(super) struct Importing<'a> {
    db: &'a Percolator,
    positions: Table,
    /// The row of the position. `None` if the import cannot go on after an interruption.
    key: Option<RowKey>,
    errors: Option<File>,
    /// Whether observers skip the rows.
    skips: bool,
    /// If observers skip the rows: how many observe each column of each table.
    observed: BTreeMap<String, BTreeMap<Column, usize>>,
    tables: BTreeMap<String, Table>,
    batch: Vec<Row>,
    pub(super) counts: Counts,
    progress: Progress,
}

impl<'a> Importing<'a> {
    pub(super) async fn new(
        db: &'a Percolator,
        key: Option<RowKey>,
        errors: Option<File>,
        skips: bool,
        progress: Progress,
    ) -> anyhow::Result<Self> {
        Ok(Importing {
            positions: db.table(POSITIONS).await?,
            db,
            key,
            errors,
            skips,
            observed: BTreeMap::new(),
            tables: BTreeMap::new(),
            batch: Vec::new(),
            counts: Counts::default(),
            progress,
        })
    }

    /// Imports all lines. Returns a message if rows of an export are missing.
    pub(super) async fn all(
        &mut self,
        first: Option<Item>,
        mut source: Source,
    ) -> anyhow::Result<Option<String>> {
        let done = self.position().await?;
        self.learn_observers().await?;
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
                    self.learn_observers().await?;
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
                    let (row_cells, row_bytes) = self.size(&row);
                    if row_cells > ROW_CELLS_MAX {
                        let why = format!("it has more than {ROW_CELLS_MAX} cells and observers");
                        self.bad(number, &Bad { why, text: row.row.to_string() })?;
                    } else if number > done {
                        (cells, bytes) = (cells + row_cells, bytes + row_bytes);
                        let is_full = cells > CELLS_MAX || bytes > BYTES_MAX;
                        if is_full && !self.batch.is_empty() {
                            self.write(false).await?;
                            (cells, bytes) = (row_cells, row_bytes);
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

    /// Reads the observers of the store, if they skip the rows.
    async fn learn_observers(&mut self) -> anyhow::Result<()> {
        if !self.skips {
            return Ok(());
        }
        self.observed.clear();
        let observers = self.db.observers().await?.into_iter();
        for observed in observers.filter(|observed| observed.strength == Strength::Strong) {
            let of_table = self.observed.entry(observed.table).or_default();
            *of_table.entry(observed.column).or_default() += 1;
        }
        Ok(())
    }

    /// Returns how many cells and bytes a transaction writes for the row. The acknowledgement of
    /// each observer that skips a cell is a cell too.
    fn size(&self, row: &Row) -> (usize, usize) {
        let of_table = self.observed.get(&row.table);
        let observers = |column: &Column| of_table.and_then(|of| of.get(column)).unwrap_or(&0);
        let acks: usize = row.cells.iter().map(|(column, _)| observers(column)).sum();
        (row.cells.len() + acks, row.bytes())
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
        let skips = self.skips;
        let position = self.counts.lines.to_string();
        self.db
            .transact(async |mut tx: Attempt| {
                if skips {
                    tx.skip_observers();
                }
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
