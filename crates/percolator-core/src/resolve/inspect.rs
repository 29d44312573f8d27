//! Shows the stored records: a cell's history as in the paper's Figures 4 and 5, the locks
//! that are held, the size of a table. Nothing here resolves or changes anything, and no
//! timestamp is issued.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigtable::{PageLimit, RowKey, RowRange, Selection, TimeRange, Timestamp};
use bytes::Bytes;

use crate::gc::unfenced::is_late;
use crate::observe::notified::notifications;
use crate::records::column::{Cell, Table};
use crate::records::layout::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE};
use crate::records::lock::{Kind, Lock};
use crate::records::schema::Schema;
use crate::records::write::Write;
use crate::resolve::verdicts::Verdict;
use crate::resolve::{OwnStatus, own_status};
use crate::shared::Shared;
use crate::{Column, LockFate, LockView, Result};

/// The content of a cell at one timestamp, in Percolator's own columns.
///
/// ```
/// # use percolator_core::face as percolator;
/// # percolator_core::doc_test(|client| async move {
/// use percolator::Column;
/// let (accounts, bal) = (client.table("accounts").await?, Column::literal("bal"));
/// let commit_ts = client.transact(async |mut tx| tx.set(&accounts, "Bob", &bal, "$10")).await;
/// let history = client.cell_history(&accounts, "Bob", &bal).await?;
/// assert_eq!(history.len(), 2);
/// assert!(history[0].write.is_some() && history[1].data.is_some());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moment {
    /// The timestamp.
    pub timestamp: Timestamp,
    /// The value of the transaction that began at this timestamp, also if it is stored inside
    /// a lock or a write record.
    pub data: Option<Bytes>,
    /// The lock of the transaction that began at this timestamp.
    pub lock: Option<LockView>,
    /// The write record of a commit at this timestamp.
    pub write: Option<WriteView>,
    /// Whether the transaction that began at this timestamp was rolled back, and has its
    /// primary here.
    pub rolled_back: bool,
    /// Whether there is a notification at this timestamp.
    pub notify: bool,
    /// Acknowledgements that were committed at this timestamp, by observers that the schema
    /// names for the column. Each entry is an observer and the start timestamp of its run. The
    /// observer has handled all changes up to that.
    pub acks: Vec<(String, Timestamp)>,
}

/// A write record.
///
/// See [`Moment`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteView {
    /// The timestamp of the data that the record makes visible.
    pub start_ts: Timestamp,
    /// Whether the record deletes the cell.
    pub delete: bool,
}

/// Everything that Percolator stores for a cell, newest first.
pub(crate) async fn cell_history(
    shared: &Shared,
    table: &Table,
    row: impl Into<RowKey>,
    column: &Column,
) -> Result<Vec<Moment>> {
    history(shared, table, &row.into(), column, None).await
}

/// Works like [`cell_history`]. With `above`, it waits for one-step commits that are pending
/// below that timestamp.
pub(super) async fn history(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    column: &Column,
    above: Option<Timestamp>,
) -> Result<Vec<Moment>> {
    crate::txn::transaction::check_row(row)?;
    let schema = shared.learn_schema().await?;
    let of_column = schema.of(table.name(), column).map(|entry| entry.observer.as_str());
    let acks: Vec<(Column, &str)> = of_column.map(|name| (column.ack_of(name), name)).collect();
    let mut select = Selection { above, ..Selection::default() };
    for family in [DATA, LOCK, WRITE, ROLLBACK, NOTIFY] {
        select = select.column(family, column.to_bytes(), TimeRange::ALL, u32::MAX);
    }
    for (ack, _) in &acks {
        select = select.column(WRITE, ack.to_bytes(), TimeRange::ALL, u32::MAX);
    }
    let found = table.store().read_row(row, &select).await?;
    let mut moments = BTreeMap::<Timestamp, Moment>::new();
    let mut inline = Vec::new();
    for cell in &found.cells {
        let timestamp = cell.timestamp;
        let fresh = || Moment { timestamp, ..Moment::default() };
        let moment = moments.entry(timestamp).or_insert_with(fresh);
        let acknowledges = acks.iter().find(|(ack, _)| *ack.as_bytes() == cell.qualifier);
        if let Some((_, observer)) = acknowledges {
            let write = Write::decode(&cell.value)?;
            // The acknowledgement is the start timestamp of the run that wrote it. An empty one
            // stands for its commit timestamp.
            let is_empty = write.short_value.is_some_and(|value| value.is_empty());
            let upto = if is_empty { timestamp } else { write.start_ts };
            moment.acks.push(((*observer).to_owned(), upto));
        } else if cell.family == DATA {
            moment.data = Some(cell.value.clone());
        } else if cell.family == LOCK {
            let lock = view(table, row, cell)?;
            moment.data = moment.data.take().or(lock.short_value.clone());
            moment.lock = Some(lock);
        } else if cell.family == WRITE {
            let write = Write::decode(&cell.value)?;
            let (start_ts, delete) = (write.start_ts, write.kind == Kind::Delete);
            moment.write = Some(WriteView { start_ts, delete });
            inline.extend(write.short_value.map(|value| (start_ts, value)));
        } else if cell.family == ROLLBACK {
            moment.rolled_back = true;
        } else {
            moment.notify = true;
        }
    }
    if table.notifies_apart() {
        for timestamp in notifications(&Cell::new(table, row, column)).await? {
            let fresh = || Moment { timestamp, ..Moment::default() };
            moments.entry(timestamp).or_insert_with(fresh).notify = true;
        }
    }
    for (timestamp, value) in inline {
        let fresh = || Moment { timestamp, ..Moment::default() };
        moments.entry(timestamp).or_insert_with(fresh).data = Some(value);
    }
    Ok(moments.into_values().rev().collect())
}

/// For each observer of a column, the commit timestamp of the first run that has acknowledged
/// the cell since a timestamp.
pub(crate) async fn first_acknowledged(
    table: &Table,
    row: &RowKey,
    column: &Column,
    schema: &Schema,
    since: Timestamp,
) -> Result<Vec<Timestamp>> {
    let mut select = Selection::default();
    for entry in schema.of(table.name(), column) {
        let ack = column.ack_of(&entry.observer).to_bytes();
        select = select.column(WRITE, ack, TimeRange::above(since), u32::MAX);
    }
    let mut first = BTreeMap::new();
    // The newest version comes first, so the one that stays is the oldest.
    for cell in table.store().read_row(row, &select).await?.cells {
        // The acknowledgement is the start timestamp of the transaction that wrote it.
        if Write::decode(&cell.value)?.start_ts > since {
            first.insert(cell.qualifier, cell.timestamp);
        }
    }
    Ok(first.into_values().collect())
}

/// The oldest locks of all tables, at most `limit`, the oldest first.
pub(crate) async fn held_locks(shared: &Shared, limit: usize) -> Result<Vec<LockView>> {
    let select = Selection::default().family(LOCK, TimeRange::ALL, u32::MAX);
    // Locks of one timestamp stay in the order in which they are found.
    let mut oldest = BTreeMap::new();
    let mut found = 0u64;
    for name in shared.table_names().await? {
        let table = shared.table(&name).await?;
        let mut left = Some(RowRange::all());
        while let Some(range) = left {
            let page = table.store().scan(&range, &select, PageLimit::default()).await?;
            shared.take_turn(page.rows.len()).await;
            for row in &page.rows {
                for cell in &row.cells {
                    let key = (cell.timestamp, found);
                    let newest = oldest.last_key_value().map(|(newest, _)| *newest);
                    if oldest.len() >= limit && newest.is_none_or(|newest| key >= newest) {
                        continue;
                    }
                    found += 1;
                    oldest.insert(key, view(&table, &row.key, cell)?);
                    if oldest.len() > limit {
                        oldest.pop_last();
                    }
                }
            }
            left = page.resume;
        }
    }
    Ok(oldest.into_values().collect())
}

/// The size of a table.
///
/// See [`Client::table_size`](crate::Client::table_size).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableSize {
    /// Rows with a cell that is not deleted.
    pub rows: u64,
    /// The bytes of their keys, and of the names and newest values of their cells.
    pub bytes: u64,
    /// Whether the whole table was counted.
    pub whole: bool,
}

/// Counts the rows of a table, at most `rows_max`.
pub(crate) async fn table_size(
    shared: &Shared,
    table: &Table,
    rows_max: usize,
) -> Result<TableSize> {
    let select = Selection::default().family(WRITE, TimeRange::ALL, 1);
    let select = select.family(DATA, TimeRange::ALL, 1);
    let mut size = TableSize::default();
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.store().scan(&range, &select, PageLimit::default()).await?;
        shared.take_turn(page.rows.len()).await;
        for row in &page.rows {
            let bytes = bytes_of(row)?;
            if bytes == 0 {
                continue;
            }
            if size.rows >= rows_max as u64 {
                return Ok(size);
            }
            size.rows += 1;
            size.bytes += bytes;
        }
        left = page.resume;
    }
    Ok(TableSize { whole: true, ..size })
}

/// The bytes of a row's key and of its cells that are not deleted; zero if it has no such
/// cell.
fn bytes_of(row: &bigtable::Row) -> Result<u64> {
    let mut bytes = 0;
    for cell in row.cells.iter().filter(|cell| cell.family == WRITE) {
        let write = Write::decode(&cell.value)?;
        if write.kind == Kind::Delete || Column::from_stored(cell.qualifier.clone()).is_ack() {
            continue;
        }
        let long = || row.newest(&DATA, &cell.qualifier).map_or(0, |data| data.value.len());
        bytes += cell.qualifier.len() + write.short_value.map_or_else(long, |value| value.len());
    }
    Ok(if bytes == 0 { 0 } else { (row.key.as_bytes().len() + bytes) as u64 })
}

/// Predicts how a lock will be resolved, from its primary's row and the lock service.
pub(crate) async fn lock_fate(shared: &Shared, lock: &LockView) -> Result<LockFate> {
    if is_late(shared, lock.start_ts).await? {
        return Ok(LockFate::RollBack);
    }
    let name = lock.primary.as_ref().unwrap_or(&lock.cell);
    let table = shared.table(&name.table).await?;
    let primary = Cell { table, row: name.row.clone(), column: name.column.clone() };
    Ok(match own_status(shared, &primary, lock.start_ts).await? {
        OwnStatus::Decided(Verdict::Committed(commit_ts)) => LockFate::RollForward(commit_ts),
        OwnStatus::Decided(Verdict::RolledBack) => LockFate::RollBack,
        _ if shared.locks().is_alive(lock.owner).await? => LockFate::OwnerAlive,
        _ => LockFate::OwnerDead,
    })
}

pub(crate) fn view(table: &Table, row: &RowKey, cell: &bigtable::Cell) -> Result<LockView> {
    let lock = Lock::decode(&cell.value)?;
    let column = Column::from_stored(cell.qualifier.clone());
    Ok(LockView {
        cell: Cell::new(table, row, &column).location(),
        start_ts: cell.timestamp,
        primary: lock.primary.map(Arc::unwrap_or_clone),
        delete: lock.intent.kind == Kind::Delete,
        owner: lock.owner,
        wall_ms: lock.wall_ms,
        short_value: lock.intent.short_value,
    })
}
