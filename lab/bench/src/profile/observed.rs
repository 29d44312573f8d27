//! Runs one of two arms for a given number of operations: a write of an observed cell, and a strong
//! observer's run.
//!
//! ```text
//! observed_set   a transaction writes 100 bytes into an observed column; there is no worker
//! run            the observer reads the changed cell, and writes 100 bytes into another column of
//!                the row; one worker, without passes, one change at a time
//! ```
//!
//! The arm `run` counts runs alone. Both processes that are compared write the same number of
//! observed cells, twice the operations of the first one. They write `operations` cells of them
//! into the column whose observer runs, and the others into a column whose observer nobody runs.

use std::path::Path;

use percolator::observe::{Observed, Strength};
use percolator::{Change, Column, Observer, Percolator, Registration, Table, Transaction};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::fig7::{on_one_thread, until_committed, without_passes};
use crate::micro::bed;

pub(super) const ALONE: [&str; 2] = ["observed_set", "run"];
/// The arm that counts runs alone.
pub(super) const RUN: &str = "run";

const TABLE: &str = "cells";
/// The column whose observer runs, if the arm has a worker.
const TEXT: Column = Column::literal("doc:text");
/// The column whose observer no worker runs.
const UNREAD: Column = Column::literal("doc:unread");
/// The column that the observer writes.
const COPY: Column = Column::literal("doc:copy");
const VALUE_BYTES: usize = 100;
/// Writes of each cell before anything counts.
const WRITTEN_BEFORE: u64 = 5;

/// Copies the changed cell.
struct Copy(Table);

impl Observer for Copy {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        match tx.get(&self.0, &change.row, &TEXT).await? {
            Some(text) => tx.set(&self.0, &change.row, &COPY, text),
            None => tx.delete(&self.0, &change.row, &COPY),
        }
    }
}

/// The cells, and what was last written into the column with the observer.
struct Cells {
    db: Percolator,
    table: Table,
    texts: Vec<Option<[u8; VALUE_BYTES]>>,
    next: usize,
    random: SmallRng,
}

impl Cells {
    async fn open(dir: &Path, rows: usize, seed: u64) -> anyhow::Result<Self> {
        let db = bed::open(dir).await?;
        let observed = |column: Column, observer: &str| Observed {
            table: TABLE.to_owned(),
            column,
            observer: observer.to_owned(),
            strength: Strength::Strong,
        };
        db.declare(&[observed(TEXT, "copy"), observed(UNREAD, "nobody")]).await?;
        let table = db.table(TABLE).await?;
        let random = SmallRng::seed_from_u64(seed);
        Ok(Cells { db, table, texts: vec![None; rows], next: 0, random })
    }

    /// Writes the next row's cell.
    async fn set(&mut self, column: &Column) -> percolator::Result<()> {
        let row = self.next % self.texts.len();
        self.next += 1;
        let mut value = [0; VALUE_BYTES];
        self.random.fill_bytes(&mut value);
        if *column == TEXT {
            self.texts[row] = Some(value);
        }
        let (table, key) = (&self.table, key(row));
        self.db.transact(async |mut tx| tx.set(table, key.as_str(), column, value.to_vec())).await
    }

    /// Counts the rows that do not hold what was last written, in the columns given.
    async fn wrong(&self, columns: &[Column]) -> percolator::Result<u64> {
        let (tx, mut wrong) = (self.db.begin().await?, 0);
        for (row, text) in self.texts.iter().enumerate() {
            for column in columns {
                let found = tx.get(&self.table, key(row).as_str(), column).await?;
                wrong += u64::from(found.as_deref() != text.as_ref().map(|text| &text[..]));
            }
        }
        Ok(wrong)
    }
}

fn key(row: usize) -> String {
    format!("row-{row:012}")
}

/// Loads rows and does operations, and reads every row at the end. Returns the number of wrong
/// cells. `cells` is the number of rows; for the arm `run` it is the number of writes in both
/// processes.
pub(super) async fn alone(
    name: &str,
    dir: &Path,
    cells: usize,
    operations: u64,
    seed: u64,
) -> anyhow::Result<u64> {
    let (dir, runs) = (dir.to_path_buf(), name == RUN);
    anyhow::ensure!(
        ALONE.contains(&name) && cells > 0,
        "there is no arm {name} of {cells} cells; choose from {}, with one cell or more",
        ALONE.join(", ")
    );
    on_one_thread(async move || {
        if runs {
            run(&dir, cells as u64, operations, seed).await
        } else {
            set(&dir, cells, operations, seed).await
        }
    })
    .await
}

async fn set(dir: &Path, rows: usize, operations: u64, seed: u64) -> anyhow::Result<u64> {
    let mut cells = Cells::open(dir, rows, seed).await?;
    for _ in 0..WRITTEN_BEFORE * rows as u64 + operations {
        cells.set(&TEXT).await?;
    }
    let notified: usize = cells.db.backlog().await?.iter().map(|column| column.cells).sum();
    Ok(cells.wrong(&[TEXT]).await? + notified.abs_diff(rows) as u64)
}

async fn run(dir: &Path, writes: u64, operations: u64, seed: u64) -> anyhow::Result<u64> {
    // As many runs of each row come before the shorter of the two processes ends as before.
    let rows = (writes / (2 * WRITTEN_BEFORE)).max(1) as usize;
    let mut cells = Cells::open(dir, rows, seed).await?;
    let copy = Registration::strong("copy", TABLE, &TEXT, Copy(cells.table.clone()));
    let workers = cells.db.observe(vec![copy], without_passes()).await?;
    let (text, unread) = (TEXT, UNREAD);
    for column in [&text, &unread] {
        for _ in 0..WRITTEN_BEFORE * rows as u64 {
            change(&mut cells, column).await?;
        }
    }
    for n in 0..writes {
        change(&mut cells, if n < operations { &text } else { &unread }).await?;
    }
    workers.stop().await;
    cells.wrong(&[TEXT, COPY]).await.map_err(Into::into)
}

/// Writes a cell, and waits for the run of its observer if it has a worker.
async fn change(cells: &mut Cells, column: &Column) -> anyhow::Result<()> {
    let before = cells.db.stats().committed;
    cells.set(column).await?;
    until_committed(&cells.db, before + if *column == TEXT { 2 } else { 1 }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_write_what_they_say() {
        for (name, cells) in [("observed_set", 10), ("run", 60)] {
            for operations in [30, 60] {
                let dir = tempfile::tempdir().unwrap();
                let wrong = alone(name, &dir.path().join("data"), cells, operations, 1).await;
                assert_eq!(wrong.unwrap(), 0, "{name}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(alone("page", dir.path(), 10, 10, 1).await.is_err());
        assert!(alone("run", dir.path(), 0, 10, 1).await.is_err());
    }
}
