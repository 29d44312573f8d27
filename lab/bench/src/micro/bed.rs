//! Provides what the arms share, here and in `fig8`: stores, keys, and values that can be
//! checked.

use std::path::Path;
use std::sync::Arc;

use bigtable::{Family, Layout, LocalityGroup, Mutation, Store, TableSchema, Timestamp};
use bigtable_fjall::FjallStore;
use percolator::{
    Bytes, Client, Column, Durability, OpenOptions, Percolator, RowKey, Table, Value,
};

pub(crate) const KEY_BYTES: usize = 24;
pub(crate) const VALUE_BYTES: usize = 100;
/// Mutations of one request, and cells of one transaction, in bulk writes.
pub(crate) const AT_ONCE: usize = 1000;
/// The column of cells with transactions.
pub(crate) const COLUMN: Column = Column::literal("v");
/// The family and the qualifier of raw cells.
pub(crate) const NEWEST: Family = Family::from_static("newest");
pub(crate) const QUALIFIER: &[u8] = b"v";

pub(crate) fn key(row: usize) -> RowKey {
    RowKey::from(format!("{row:0KEY_BYTES$}"))
}

/// The value of a cell after this many writes, or by the write with this number.
pub(super) fn value(cell: usize, written: u64) -> Bytes {
    let mut value = vec![7; VALUE_BYTES];
    value[..8].copy_from_slice(&(cell as u64).to_be_bytes());
    value[8..16].copy_from_slice(&written.to_be_bytes());
    value.into()
}

/// True if a value belongs to this cell and this write.
pub(crate) fn is_value(value: &[u8], cell: usize, written: u64) -> bool {
    value.len() == VALUE_BYTES
        && value[..8] == (cell as u64).to_be_bytes()
        && value[8..16] == written.to_be_bytes()
}

/// The number in a cell; 0 for a missing cell.
pub(super) fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// A number in the form in which a cell stores it.
pub(super) fn cell(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Opens a new buffered database in a new directory. No garbage is collected during the few
/// seconds of a run.
pub(crate) async fn open(dir: &Path) -> anyhow::Result<Percolator> {
    open_with(dir, Durability::Buffered).await
}

/// Opens a new database in a new directory, with this durability.
pub(super) async fn open_with(dir: &Path, durability: Durability) -> anyhow::Result<Percolator> {
    let options = OpenOptions { durability, gc: None, ..OpenOptions::default() };
    Ok(Percolator::open_with(dir, options).await?)
}

/// Opens only the store beneath, with this much memory for blocks, or the default.
pub(super) fn store(dir: &Path, cache_bytes: Option<u64>) -> anyhow::Result<Arc<FjallStore>> {
    let all = bigtable_fjall::Options::default();
    let options = bigtable_fjall::Options {
        durability: Durability::Buffered,
        cache_bytes: cache_bytes.unwrap_or(all.cache_bytes),
        ..all
    };
    Ok(Arc::new(FjallStore::open(dir, options)?))
}

/// Opens a table of the store beneath, in the layout of write records.
pub(super) async fn raw(store: &dyn Store) -> anyhow::Result<Arc<dyn bigtable::Table>> {
    let groups = vec![LocalityGroup::on_disk("newest", Layout::NewestFirst)];
    Ok(store.open_table("raw", &TableSchema { groups }).await?)
}

pub(super) fn set(row: &RowKey, version: u64, value: Bytes) -> bigtable::ConditionalMutation {
    let version = Timestamp::new(version).unwrap_or(Timestamp::MAX);
    let otherwise = vec![Mutation::set(NEWEST, QUALIFIER, version, value)];
    bigtable::ConditionalMutation { otherwise, ..bigtable::ConditionalMutation::new(row) }
}

/// Writes cells of a column, [`AT_ONCE`] in a transaction.
pub(super) async fn write<V: Into<Value>>(
    client: &Client,
    table: &Table,
    column: &Column,
    cells: impl IntoIterator<Item = (RowKey, V)>,
) -> anyhow::Result<()> {
    let mut cells = cells.into_iter().peekable();
    while cells.peek().is_some() {
        let mut tx = client.begin().await?;
        for (row, value) in cells.by_ref().take(AT_ONCE) {
            tx.set(table, row, column, value)?;
        }
        tx.commit().await?;
    }
    Ok(())
}

pub(crate) fn all<T>(results: Vec<bigtable::Result<T>>) -> anyhow::Result<()> {
    for result in results {
        result?;
    }
    Ok(())
}
