//! Provides snapshots: read-only views of the data at one timestamp, which is the latest or
//! lies in the past.

use bigtable::{RowKey, Timestamp};
use bytes::Bytes;

use crate::oracle::Stamp;
use crate::shared::Shared;
use crate::txn::open_readers::{Hold, Open};
use crate::{Column, Result, Scan, Table, Transaction};
use std::sync::Arc;

/// A read-only view of the data at one timestamp.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::Column;
/// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
/// let mut tx = client.begin().await?;
/// tx.set(&accounts, "Bob", &bal, "$10")?;
/// let then = tx.commit().await?;
/// client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$3")).await?;
/// let past = client.snapshot_at(then).await?;
/// assert_eq!(past.get(&accounts, "Bob", &bal).await?.as_deref(), Some(&b"$10"[..]));
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub struct Snapshot {
    tx: Transaction,
    /// Keeps this client registered as a reader, if the snapshot is held.
    _hold: Option<Hold>,
}

/// A snapshot can be passed to every function that reads through a `&Transaction`. Nothing can
/// be written through it, because that takes a `&mut Transaction`.
impl AsRef<Transaction> for Snapshot {
    fn as_ref(&self) -> &Transaction {
        &self.tx
    }
}

impl Snapshot {
    pub(crate) fn new(shared: Arc<Shared>, timestamp: Timestamp, open: Open) -> Self {
        let tx = Transaction::new(shared, Stamp { timestamp, schema_version: 0 }, open);
        Snapshot { tx, _hold: None }
    }

    pub(crate) fn held_by(self, hold: Hold) -> Self {
        Snapshot { _hold: Some(hold), ..self }
    }

    /// The timestamp of the view.
    pub fn timestamp(&self) -> Timestamp {
        self.tx.start_ts()
    }

    /// Reads a cell.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        column: &Column,
    ) -> Result<Option<Bytes>> {
        self.tx.get(table, row, column).await
    }

    /// Reads several columns of one row at once.
    ///
    /// # Errors
    /// As [`Transaction::get_row`].
    pub async fn get_row<const N: usize>(
        &self,
        table: &Table,
        row: impl Into<RowKey>,
        columns: [&Column; N],
    ) -> Result<[Option<Bytes>; N]> {
        self.tx.get_row(table, row, columns).await
    }

    /// Reads several columns of several rows at once.
    ///
    /// # Errors
    /// As [`Transaction::get_many`].
    pub async fn get_many<'c>(
        &self,
        table: &Table,
        rows: &[RowKey],
        columns: impl IntoIterator<Item = &'c Column>,
    ) -> Result<Vec<Vec<Option<Bytes>>>> {
        self.tx.get_many(table, rows, columns).await
    }

    /// Scans a table's rows.
    pub fn scan(&self, table: &Table) -> Scan<'_> {
        self.tx.scan(table)
    }
}
