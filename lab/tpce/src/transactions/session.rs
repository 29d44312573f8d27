//! Implements one attempt of a transaction, with typed and counted reads and writes.

use percolator::{Bytes, Column, Error, Result, RowKey, RowRange, ScannedRow, Table, Transaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{D, Key, Parts, Stored, decode, encode};
use crate::request::Reads;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) tx: Transaction,
    table: Table,
    pub(crate) reads: Reads,
}

impl Session {
    pub(crate) fn new(tx: Transaction, table: &Table) -> Self {
        Session { tx, table: table.clone(), reads: Reads::default() }
    }

    /// Reads a cell that may be missing.
    pub(crate) async fn get<T: DeserializeOwned>(
        &mut self,
        row: RowKey,
        column: &Column,
    ) -> Result<Option<T>> {
        self.reads.gets += 1;
        let value = self.tx.get(&self.table, row, column).await?;
        value.map(|value| decode(&value)).transpose()
    }

    pub(crate) async fn need<T: DeserializeOwned>(
        &mut self,
        row: RowKey,
        column: &Column,
    ) -> Result<T> {
        let found = self.get(row.clone(), column).await?;
        found.ok_or_else(|| missing(&row, column))
    }

    /// Reads the packed cell of a row that must exist.
    pub(crate) async fn record<T: DeserializeOwned>(&mut self, row: RowKey) -> Result<T> {
        self.need(row, &D).await
    }

    async fn values(&mut self, rows: &[RowKey], column: &Column) -> Result<Vec<Option<Bytes>>> {
        self.reads.gets += rows.len() as u64;
        let found = self.tx.get_many(&self.table, rows, std::slice::from_ref(column)).await?;
        Ok(found.into_iter().map(|mut values| values.pop().flatten()).collect())
    }

    /// Reads a cell of each of several rows. The cells may be missing.
    pub(crate) async fn many<T: DeserializeOwned>(
        &mut self,
        rows: impl IntoIterator<Item = RowKey>,
        column: &Column,
    ) -> Result<Vec<Option<T>>> {
        let found = self.values(&Vec::from_iter(rows), column).await?;
        found.iter().map(|value| value.as_ref().map(|value| decode(value)).transpose()).collect()
    }

    /// Reads the packed cells of rows of several tables, which must exist. This takes one
    /// request instead of one for each table.
    pub(crate) async fn packed(
        &mut self,
        rows: impl IntoIterator<Item = RowKey>,
    ) -> Result<Vec<Bytes>> {
        let rows = Vec::from_iter(rows);
        let found = self.values(&rows, &D).await?.into_iter().zip(&rows);
        found.map(|(value, row)| value.ok_or_else(|| missing(row, &D))).collect()
    }

    /// Reads a cell of each of several rows. The cells must exist.
    pub(crate) async fn need_many<T: DeserializeOwned>(
        &mut self,
        rows: impl IntoIterator<Item = RowKey>,
        column: &Column,
    ) -> Result<Vec<T>> {
        let rows = Vec::from_iter(rows);
        let found = self.values(&rows, column).await?.into_iter().zip(&rows);
        found.map(|(value, row)| decode(&value.ok_or_else(|| missing(row, column))?)).collect()
    }

    /// Reads two cells of each of several rows. The cells must exist.
    pub(crate) async fn pairs<A: DeserializeOwned, B: DeserializeOwned>(
        &mut self,
        rows: impl IntoIterator<Item = RowKey>,
        columns: &[Column; 2],
    ) -> Result<Vec<(A, B)>> {
        let rows = Vec::from_iter(rows);
        self.reads.gets += 2 * rows.len() as u64;
        let found = self.tx.get_many(&self.table, &rows, columns).await?;
        let pair = |(values, row): (Vec<Option<Bytes>>, &RowKey)| match values.as_slice() {
            [Some(a), Some(b)] => Ok((decode(a)?, decode(b)?)),
            [None, _] => Err(missing(row, &columns[0])),
            _ => Err(missing(row, &columns[1])),
        };
        found.into_iter().zip(&rows).map(pair).collect()
    }

    pub(crate) async fn pair<A: DeserializeOwned, B: DeserializeOwned>(
        &mut self,
        row: RowKey,
        columns: &[Column; 2],
    ) -> Result<(A, B)> {
        let mut pairs = self.pairs([row.clone()], columns).await?;
        pairs.pop().ok_or_else(|| missing(&row, &columns[0]))
    }

    pub(crate) async fn rows(
        &mut self,
        prefix: RowKey,
        columns: &[Column],
        limit: usize,
    ) -> Result<Vec<ScannedRow>> {
        self.rows_in(RowRange::prefix(prefix), columns, limit).await
    }

    pub(crate) async fn rows_in(
        &mut self,
        range: RowRange,
        columns: &[Column],
        limit: usize,
    ) -> Result<Vec<ScannedRow>> {
        self.reads.scans += 1;
        let scan = self.tx.scan(&self.table).range(range).columns(columns).limit(limit);
        let rows = scan.collect().await?;
        self.reads.scanned += rows.iter().map(|row| row.cells.len() as u64).sum::<u64>();
        Ok(rows)
    }

    /// Reads the keys of the first rows of a prefix of an index. `rest` takes what it needs from
    /// the parts of a key after the prefix.
    pub(crate) async fn index<T>(
        &mut self,
        prefix: Key,
        limit: usize,
        rest: impl Fn(Parts<'_>) -> Option<T>,
    ) -> Result<Vec<T>> {
        let prefix = prefix.row();
        let rows = self.rows(prefix.clone(), &[D], limit).await?;
        let rest = |row: &ScannedRow| part(Parts::of(&row.row, &prefix).and_then(&rest), &row.row);
        rows.iter().map(rest).collect()
    }

    /// Reads the packed cells of the first rows of a prefix.
    pub(crate) async fn records<T: DeserializeOwned>(
        &mut self,
        prefix: RowKey,
        limit: usize,
    ) -> Result<Vec<T>> {
        self.records_in(RowRange::prefix(prefix), limit).await
    }

    /// Reads the packed cells of the first rows of a range.
    pub(crate) async fn records_in<T: DeserializeOwned>(
        &mut self,
        range: RowRange,
        limit: usize,
    ) -> Result<Vec<T>> {
        let rows = self.rows_in(range, &[D], limit).await?;
        rows.iter().flat_map(|row| &row.cells).map(|(_, value)| decode(value)).collect()
    }

    /// Writes all cells of a record, its index rows included.
    pub(crate) fn insert(&mut self, record: &impl Stored) -> Result<()> {
        for (row, column, value) in record.cells() {
            self.reads.writes += 1;
            self.tx.set(&self.table, row, &column, value)?;
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, record: &impl Stored) -> Result<()> {
        for (row, column, _) in record.cells() {
            self.delete(row, &column)?;
        }
        Ok(())
    }

    pub(crate) fn set(
        &mut self,
        row: RowKey,
        column: &Column,
        value: &impl Serialize,
    ) -> Result<()> {
        self.reads.writes += 1;
        self.tx.set(&self.table, row, column, encode(value))
    }

    pub(crate) fn delete(&mut self, row: RowKey, column: &Column) -> Result<()> {
        self.reads.writes += 1;
        self.tx.delete(&self.table, row, column)
    }
}

/// Decodes packed cells as records of one table.
pub(crate) fn all<T: DeserializeOwned>(cells: &[Bytes]) -> Result<Vec<T>> {
    cells.iter().map(|cell| decode(cell)).collect()
}

fn missing(row: &RowKey, column: &Column) -> Error {
    Error::application(format!(
        "cell {row} {column} is missing: the data was not loaded completely, or is not a TPC-E-like \
         brokerage's"
    ))
}

/// A part of a key, or an error if it is missing.
pub(crate) fn part<T>(part: Option<T>, row: &RowKey) -> Result<T> {
    part.ok_or_else(|| Error::application(format!("the key {row} is not one of its index")))
}

/// Decodes a cell of a row that a scan returned.
pub(crate) fn cell<T: DeserializeOwned>(row: &ScannedRow, column: &Column) -> Result<T> {
    let found = row.cells.iter().find(|(name, _)| name == column);
    let (_, value) = found.ok_or_else(|| missing(&row.row, column))?;
    decode(value)
}
