//! Reads a row at a timestamp (paper Figure 6, `Get`).
//!
//! Invariants:
//! * Lock and write columns come from one atomic row read, or a commit could slip in between
//!   (H27).
//! * A value is returned only if the same read found no lock at or below `s` (H28).
//! * After a lock was resolved, the row is read again at the same `s`.
//!
//! ADR-2 says what this design costs, and what would change it.

use bigtable::{Cell, Glance, Glanced, RowKey, Selection, TimeRange, Timestamp};
use bytes::Bytes;
use futures::future::try_join_all;

use crate::mutants::{self, off};
use crate::records::layout::{DATA, LOCK, WRITE};
use crate::records::lock::Kind;
use crate::records::write::Write;
use crate::resolve::{FoundLock, Resolved, resolve_since};
use crate::runtime::Backoff;
use crate::shared::Shared;
use crate::txn::held::check_held;
use crate::txn::lock_waits::Waiting;
use crate::watch::Access;
use crate::{Column, Error, Result, Table};

use std::time::Duration;

/// The newest committed version of a cell at a timestamp; `value` is `None` if it is a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) column: Column,
    pub(crate) commit_ts: Timestamp,
    pub(crate) value: Option<Bytes>,
    /// Whether the version is a deletion. A value may also be `None` because the caller did
    /// not want it.
    pub(crate) deleted: bool,
    /// When the transaction that wrote it began. Its long value lies in `data` at this timestamp.
    pub(crate) start_ts: Timestamp,
}

/// The value of a cell that a read has shown to be the newest at the reader's `s`.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    /// The value was in the write record.
    Here(Bytes),
    /// The value lies in `data`, at the timestamp at which its writer began. A read of it needs no
    /// second look at locks and writes: the value of a committed write does not change.
    Apart(Timestamp),
}

/// How a reader treats a lock whose owner lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Waits for it, up to the client's `read_wait_max`.
    Wait,
    /// Fails at once with [`Error::Locked`].
    GiveUp,
}

/// Selects locks and the newest write of these columns at `s`, or of all columns if none is
/// given.
pub(crate) fn selection(columns: &[Column], s: Timestamp) -> Selection {
    let upto = TimeRange::up_to(s);
    let mut select = Selection::default().above(s);
    if columns.is_empty() {
        return select.family(LOCK, upto, u32::MAX).family(WRITE, upto, 1);
    }
    select.columns.reserve_exact(2 * columns.len());
    for column in columns {
        select = select.column(LOCK, column.to_bytes(), upto, u32::MAX).column(
            WRITE,
            column.to_bytes(),
            upto,
            1,
        );
    }
    select
}

/// Reads the selected columns of a row at `s`, deletions included. Absent cells are left out.
pub(crate) async fn read_row(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    select: &Selection,
    s: Timestamp,
    patience: Patience,
) -> Result<Vec<Version>> {
    let found = read_unlocked(shared, table, row, select, s, patience).await?;
    versions(shared, table, &found, s, |_| true).await
}

/// The value of one cell at `s`.
pub(crate) async fn read_cell(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    column: &Column,
    s: Timestamp,
) -> Result<Option<Bytes>> {
    shared.take_turn(0).await;
    // Futures of rare cases are boxed. This future is a part of every observer's future, which
    // is allocated for each run.
    match glance(shared, table, row, column, s)? {
        // A short or absent value, the usual case, needs no list of versions.
        Glanced::Newest(timestamp, value) if Write::lies_apart(&value) => {
            let cell = Cell { family: WRITE, qualifier: column.to_bytes(), timestamp, value };
            Box::pin(value_of(shared, table, row, cell, s)).await
        }
        Glanced::Newest(_, value) => short_value(shared, value, s),
        Glanced::Absent => {
            check_held(shared, s)?;
            Ok(None)
        }
        Glanced::Nothing => Box::pin(read_cell_waiting(shared, table, row, column, s)).await,
    }
}

/// Works like [`read_cell`], if the store has to be waited for.
async fn read_cell_waiting(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    column: &Column,
    s: Timestamp,
) -> Result<Option<Bytes>> {
    let select = selection(std::slice::from_ref(column), s);
    let mut found = read_unlocked(shared, table, row, &select, s, Patience::Wait).await?;
    shared.sample(Access::Read, 1, |_| (table.name(), row));
    debug_assert!(found.cells.len() <= 1, "the newest of one column, and no lock");
    match found.cells.pop() {
        Some(cell) if Write::lies_apart(&cell.value) => value_of(shared, table, row, cell, s).await,
        Some(cell) => short_value(shared, cell.value, s),
        None => {
            check_held(shared, s)?;
            Ok(None)
        }
    }
}

/// The value inside a write record.
fn short_value(shared: &Shared, record: Bytes, s: Timestamp) -> Result<Option<Bytes>> {
    check_held(shared, s)?;
    Ok(Write::of(record)?.short_value)
}

/// The long value of a write record.
async fn value_of(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    write: Cell,
    s: Timestamp,
) -> Result<Option<Bytes>> {
    let found = bigtable::Row::new(row.clone(), vec![write]);
    let mut versions = versions(shared, table, &found, s, |_| true).await?;
    Ok(versions.pop().and_then(|version| version.value))
}

/// The newest write record of a cell at `s`, if the store can return it without waiting and
/// the cell has no lock.
pub(crate) fn glance(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    column: &Column,
    s: Timestamp,
) -> Result<Glanced> {
    let at = Glance { row, qualifier: column.as_bytes(), family: &WRITE, guard: &LOCK, s };
    let glanced = table.store().glance(at).map_err(too_old)?;
    if !matches!(glanced, Glanced::Nothing) {
        shared.counters().reads.bump();
        shared.sample(Access::Read, 1, |_| (table.name(), row));
    }
    Ok(glanced)
}

/// Works like [`read_row`] for each of several rows, with one request for all.
pub(crate) async fn read_rows(
    shared: &Shared,
    table: &Table,
    rows: &[RowKey],
    select: &Selection,
    s: Timestamp,
    patience: Patience,
) -> Result<Vec<Vec<Version>>> {
    shared.take_turn(rows.len()).await;
    shared.counters().reads.bump();
    let found = table.store().read_rows(rows, select).await.map_err(too_old)?;
    shared.sample(Access::Read, rows.len(), |at| (table.name(), &rows[at]));
    let versions = rows.iter().zip(found).map(async |(row, found)| {
        if is_locked(&found) {
            read_row(shared, table, row, select, s, patience).await
        } else {
            versions(shared, table, &found, s, |_| true).await
        }
    });
    try_join_all(versions).await
}

/// Whether a row that was read has a lock.
pub(crate) fn is_locked(row: &bigtable::Row) -> bool {
    row.cells.iter().any(|cell| cell.family == LOCK)
}

/// Works like [`read_row`] for a cell and its acknowledgements. The caller needs the cell's
/// commit timestamp and the acknowledgements' values, so only the latter are looked up in
/// `data`.
pub(crate) async fn read_acknowledged(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    columns: &[Column],
    s: Timestamp,
    patience: Patience,
) -> Result<Vec<Version>> {
    let select = selection(columns, s);
    let found = read_unlocked(shared, table, row, &select, s, patience).await?;
    shared.sample(Access::Read, 1, |_| (table.name(), row));
    versions(shared, table, &found, s, Column::is_ack).await
}

/// Reads a row again and again until it has no lock.
async fn read_unlocked(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    select: &Selection,
    s: Timestamp,
    patience: Patience,
) -> Result<bigtable::Row> {
    let mut wait: Option<LockWait<'_>> = None;
    loop {
        shared.take_turn(0).await;
        shared.counters().reads.bump();
        let found = table.store().read_row(row, select).await.map_err(too_old)?;
        let Some(cell) = found.cells.iter().find(|cell| cell.family == LOCK) else {
            return Ok(found);
        };
        let met = FoundLock::decode(table, row, cell)?;
        wait.get_or_insert_with(|| LockWait::new(shared, patience, s)).settle(&met).await?;
    }
}

/// The versions in a row that was read without finding a lock. A long value is fetched from
/// `data` if `wanted` accepts its column; it does not change once committed. Call this for
/// empty rows too: it also checks that garbage collection has not overtaken the read.
pub(crate) async fn versions(
    shared: &Shared,
    table: &Table,
    row: &bigtable::Row,
    s: Timestamp,
    wanted: impl Fn(&Column) -> bool,
) -> Result<Vec<Version>> {
    let mut versions = Vec::with_capacity(row.cells.len());
    let mut long = Vec::new();
    for cell in &row.cells {
        let write = Write::decode(&cell.value)?;
        let column = Column::from_stored(cell.qualifier.clone());
        if write.kind == Kind::Put && write.short_value.is_none() && wanted(&column) {
            long.push((versions.len(), write.start_ts));
        }
        versions.push(Version {
            column,
            commit_ts: cell.timestamp,
            value: write.short_value,
            deleted: write.kind == Kind::Delete,
            start_ts: write.start_ts,
        });
    }
    if long.is_empty() {
        check_held(shared, s)?;
        return Ok(versions);
    }
    let columns: Vec<(&Column, Timestamp)> =
        long.iter().map(|(index, start_ts)| (&versions[*index].column, *start_ts)).collect();
    let values = long_values(shared, table, &row.key, &columns, s).await?;
    for ((index, _), value) in long.iter().zip(values) {
        versions[*index].value = Some(value);
    }
    Ok(versions)
}

/// Reads long values from `data`, each at the timestamp at which its writer began.
pub(crate) async fn long_values(
    shared: &Shared,
    table: &Table,
    row: &RowKey,
    columns: &[(&Column, Timestamp)],
    s: Timestamp,
) -> Result<Vec<Bytes>> {
    let mut select = Selection::default();
    if !off(mutants::LONG_VALUE_BELOW_FLOOR) {
        select = select.above(s);
    }
    for (column, start_ts) in columns {
        select = select.column(DATA, column.to_bytes(), TimeRange::at(*start_ts), 1);
    }
    shared.counters().reads.bump();
    let data = table.store().read_row(row, &select).await.map_err(too_old)?;
    check_held(shared, s)?;
    let value = |(column, _): &(&Column, Timestamp)| {
        let missing = || Error::Corrupt { record: "data", bytes: column.to_bytes() };
        Ok(data.newest(&DATA, column.as_bytes()).ok_or_else(missing)?.value.clone())
    };
    columns.iter().map(value).collect()
}

/// Handles the locks that a read finds, until they are gone or the reader's patience ends.
pub(crate) struct LockWait<'a> {
    shared: &'a Shared,
    patience: Patience,
    backoff: Backoff,
    since: Option<Duration>,
    /// The lock that is waited for, where others can see it.
    waiting: Option<(Timestamp, Waiting<'a>)>,
    /// The timestamp that the waiter reads at.
    at: Timestamp,
}

impl<'a> LockWait<'a> {
    pub(crate) fn new(shared: &'a Shared, patience: Patience, at: Timestamp) -> Self {
        let backoff = Backoff::new(Duration::from_micros(200), Duration::from_millis(100));
        LockWait { shared, patience, backoff, since: None, waiting: None, at }
    }

    /// Resolves a lock, or waits a moment for its owner.
    pub(crate) async fn settle(&mut self, met: &FoundLock) -> Result<()> {
        if resolve_since(self.shared, met, self.since).await? == Resolved::Gone {
            self.waiting = None;
            return Ok(());
        }
        let runtime = self.shared.runtime();
        let since = *self.since.get_or_insert_with(|| runtime.now());
        let waited = runtime.now().saturating_sub(since);
        if self.patience == Patience::GiveUp || waited > self.shared.options().read_wait_max {
            return Err(Error::Locked {
                cell: Box::new(met.cell.location()),
                lock_ts: met.start_ts,
                owner: met.lock.owner,
            });
        }
        if self.waiting.as_ref().is_none_or(|(lock_ts, _)| *lock_ts != met.start_ts) {
            let waiting =
                self.shared.lock_waits().begin(met.cell.location(), met.start_ts, self.at, since);
            self.waiting = Some((met.start_ts, waiting));
        }
        runtime.sleep(self.backoff.step(&**runtime)).await;
        Ok(())
    }
}

/// Turns the store's `TooOld` into the reader's.
pub(crate) fn too_old(error: bigtable::Error) -> Error {
    match error {
        bigtable::Error::TooOld { asked, floor } => Error::TooOld { asked, floor },
        error => Error::Store(error),
    }
}
