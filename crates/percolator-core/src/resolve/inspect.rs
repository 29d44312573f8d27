//! Looking at the records beneath: a cell's history as in the paper's Figures 4 and 5, and the
//! locks that are held. Nothing here resolves or changes anything, and no timestamp is issued.

use bigtable::{PageLimit, RowKey, RowRange, Selection, TimeRange, Timestamp};
use bytes::Bytes;

use crate::observe::notified::notifications;
use crate::records::column::{Cell, Table};
use crate::records::layout::{DATA, LOCK, NOTIFY, ROLLBACK, WRITE};
use crate::records::lock::{Kind, Lock};
use crate::records::write::Write;
use crate::resolve::verdicts::Verdict;
use crate::resolve::{OwnStatus, own_status};
use crate::shared::Shared;
use crate::{Column, LockFate, LockView, Result};

/// What a cell holds at one timestamp, in Percolator's own columns.
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
    /// A value of the transaction that began then; one that travels inside its lock or write record
    /// is shown here, too.
    pub data: Option<Bytes>,
    /// A lock of the transaction that began then.
    pub lock: Option<LockView>,
    /// A commit at that time.
    pub write: Option<WriteView>,
    /// The transaction that began then was rolled back, and this is its primary.
    pub rolled_back: bool,
    /// A notification.
    pub notify: bool,
}

/// A write record.
///
/// See [`Moment`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteView {
    /// The timestamp of the data it makes visible.
    pub start_ts: Timestamp,
    /// Whether the cell is deleted from then on.
    pub delete: bool,
}

/// Everything Percolator keeps of a cell, newest first.
pub(crate) async fn cell_history(
    _shared: &Shared,
    table: &Table,
    row: impl Into<RowKey>,
    column: &Column,
) -> Result<Vec<Moment>> {
    let row = row.into();
    crate::txn::transaction::check_row(&row)?;
    let mut select = Selection::default();
    for family in [DATA, LOCK, WRITE, ROLLBACK, NOTIFY] {
        select = select.column(family, column.to_bytes(), TimeRange::ALL, u32::MAX);
    }
    let found = table.store().read_row(&row, &select).await?;
    let mut moments = std::collections::BTreeMap::<Timestamp, Moment>::new();
    let mut inline = Vec::new();
    for cell in &found.cells {
        let timestamp = cell.timestamp;
        let fresh = || Moment { timestamp, ..Moment::default() };
        let moment = moments.entry(timestamp).or_insert_with(fresh);
        if cell.family == DATA {
            moment.data = Some(cell.value.clone());
        } else if cell.family == LOCK {
            let lock = view(table, &row, cell)?;
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
        for timestamp in notifications(&Cell::new(table, &row, column)).await? {
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

/// The locks in all tables, at most `limit`, in order of table and cell.
pub(crate) async fn held_locks(shared: &Shared, limit: usize) -> Result<Vec<LockView>> {
    let select = Selection::default().family(LOCK, TimeRange::ALL, u32::MAX);
    let mut locks = Vec::new();
    for name in shared.table_names().await? {
        let table = shared.table(&name).await?;
        let mut left = Some(RowRange::all());
        while let Some(range) = left {
            let page = table.store().scan(&range, &select, PageLimit::default()).await?;
            shared.take_turn(page.rows.len()).await;
            for row in &page.rows {
                for cell in &row.cells {
                    if locks.len() >= limit {
                        return Ok(locks);
                    }
                    locks.push(view(&table, &row.key, cell)?);
                }
            }
            left = page.resume;
        }
    }
    Ok(locks)
}

/// What will become of a lock, as far as its primary's row and the lock service say.
pub(crate) async fn lock_fate(shared: &Shared, lock: &LockView) -> Result<LockFate> {
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
        primary: lock.primary,
        delete: lock.kind == Kind::Delete,
        owner: lock.owner,
        wall_ms: lock.wall_ms,
        short_value: lock.short_value,
    })
}
