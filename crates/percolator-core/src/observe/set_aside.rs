//! Sets aside changes whose observer keeps failing, and brings them back by replay.
//!
//! A change that cannot be handled must neither be lost nor delay other changes (H56). The
//! observer waits longer after each failure. After a bound, the change's notification moves
//! from the family `notify` to the family `failed`. The move is one row mutation, unless there
//! are more versions than one request can delete.
//!
//! Replay moves the notification back, so that the observer tries again. A later write
//! notifies the cell as usual. An operator may also skip the change (`skip.rs`): it then
//! counts as handled, without a run of the observer.
//!
//! Where another process runs a further observer of the column, the notification stays in
//! place, so that the other process finds it (H53). The failing observer then goes on trying,
//! at the longest delay.

use bigtable::{
    ConditionalMutation, Mutation, PageLimit, Probe, RowKey, RowRange, Selection, TimeRange,
    Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::mutants::{self, off};
use crate::observe::context::Context;
use crate::observe::failures::Failure;
use crate::observe::hints::Hint;
use crate::records::branch::{Branch, change};
use crate::records::codec::{Reader, put_bytes16, put_bytes32};
use crate::records::column::Cell;
use crate::records::layout::{FAILED, NOTIFY};
use crate::shared::Shared;
use crate::txn::limits::in_requests;
use crate::watch::Event;
use crate::{Column, Error, Result, Table};

/// A notification that was set aside because its observer kept failing.
///
/// ```
/// # percolator_core::doc_test(|client| async move {
/// assert!(client.set_aside().await?.is_empty());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The table.
    pub table: String,
    /// The row.
    pub row: RowKey,
    /// The observed column.
    pub column: Column,
    /// The observer that failed.
    pub observer: String,
    /// How often the observer has tried.
    pub attempts: u32,
    /// Its last error.
    pub error: String,
    /// The notification's timestamp.
    pub notified: Timestamp,
}

/// Moves the seen versions of a notification to the family `failed`.
pub(super) async fn move_aside(context: &Context, cell: &Cell, seen: &[Timestamp]) -> Result<()> {
    let failures = context.failures.take(cell);
    let Some(newest) = seen.iter().max().filter(|_| !failures.is_empty()) else {
        return Ok(());
    };
    let column = || cell.column.to_bytes();
    let entries = failures.iter().map(|(observer, f)| (f.attempts, &**observer, &*f.error));
    let mut mutations = vec![Mutation::set(FAILED, column(), *newest, encode(entries))];
    let gone = |version: &Timestamp| Mutation::delete(NOTIFY, column(), TimeRange::at(*version));
    mutations.extend(seen.iter().map(gone));
    if off(mutants::SETS_ASIDE_UNSEEN) {
        mutations.push(Mutation::delete(NOTIFY, column(), TimeRange::ALL));
    }
    let key = cell.table.notify_key(&cell.row);
    // The first request holds the record. After a crash before the last request the cell has
    // the record and a notification, and is tried again.
    for request in in_requests(&context.shared.limits(), &key, mutations) {
        cell.table.notify_store().check_and_mutate_row(request).await?;
    }
    context.shared.counters().set_aside.bump();
    for (observer, Failure { attempts, error, .. }) in &failures {
        let (cell, attempts) = (cell.into(), *attempts);
        context.shared.emit(|| Event::SetAside { observer, cell, attempts, error });
    }
    Ok(())
}

/// Returns the notifications that were set aside because their observers kept failing, in all
/// tables.
pub(crate) async fn set_aside(shared: &Shared) -> Result<Vec<SetAside>> {
    let select = Selection::default().family(FAILED, TimeRange::ALL, u32::MAX);
    let mut found = Vec::new();
    for name in shared.table_names().await? {
        let table = shared.table(&name).await?;
        let mut left = Some(RowRange::all());
        while let Some(range) = left {
            let page = table.notify_store().scan(&range, &select, PageLimit::default()).await?;
            shared.take_turn(page.rows.len()).await;
            for row in page.rows {
                let notified = table.notified_row(&row.key)?;
                for cell in &row.cells {
                    found.extend(decode(&name, &notified, cell)?);
                }
            }
            left = page.resume;
        }
    }
    Ok(found)
}

/// Brings back the changes that were set aside for `observer`, or for all observers if it is
/// `None`. Other observers that failed on the same change try it again, too. Returns how many
/// changes came back.
pub(crate) async fn replay(shared: &Shared, observer: Option<&str>) -> Result<usize> {
    let mut replayed = 0;
    for aside in set_aside(shared).await? {
        if observer.is_some_and(|name| name != aside.observer) {
            continue;
        }
        replayed += usize::from(replay_one(shared, &aside).await?);
    }
    Ok(replayed)
}

/// Brings back one change, for all observers that failed on it. Returns `false` if it is not
/// set aside any more.
pub(crate) async fn replay_one(shared: &Shared, aside: &SetAside) -> Result<bool> {
    let table = shared.table(&aside.table).await?;
    let notify = Mutation::set(NOTIFY, aside.column.to_bytes(), aside.notified, Bytes::new());
    let replayed = replace(&table, aside, notify).await?;
    if replayed {
        let cell = Cell::new(&table, &aside.row, &aside.column);
        shared.hint(&Hint::new(cell, None));
    }
    Ok(replayed)
}

/// Replaces the record of a set-aside notification. Returns `false` if the record has gone.
pub(super) async fn replace(table: &Table, aside: &SetAside, by: Mutation) -> Result<bool> {
    let at = TimeRange::at(aside.notified);
    let request = ConditionalMutation {
        // Any column's record at this timestamp counts, because a column's name may be too
        // long for a predicate. The harm is small: a notification that is brought back twice
        // is found stale.
        predicate: vec![Probe::family(FAILED, at)],
        then: vec![Mutation::delete(FAILED, aside.column.to_bytes(), at), by],
        ..ConditionalMutation::new(table.notify_key(&aside.row))
    };
    Ok(change(table.notify_store(), request).await? == Branch::Then)
}

/// Encodes a record: for each observer that failed, its attempts, its name and its last error.
pub(super) fn encode<'a>(failures: impl Iterator<Item = (u32, &'a str, &'a str)>) -> Bytes {
    let mut record = BytesMut::new();
    for (attempts, observer, error) in failures {
        record.put_u32(attempts);
        put_bytes16(&mut record, observer.as_bytes());
        put_bytes32(&mut record, error.as_bytes());
    }
    record.freeze()
}

/// Decodes a record.
pub(super) fn decode(table: &str, row: &RowKey, cell: &bigtable::Cell) -> Result<Vec<SetAside>> {
    let mut reader = Reader::new(&cell.value);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let mut parse = || {
            Some(SetAside {
                attempts: reader.u32()?,
                observer: reader.string16()?,
                error: String::from_utf8_lossy(&reader.bytes32()?).into_owned(),
                table: table.to_owned(),
                row: row.clone(),
                column: Column::from_stored(cell.qualifier.clone()),
                notified: cell.timestamp,
            })
        };
        let corrupt = || Error::Corrupt { record: "failed", bytes: cell.value.clone() };
        entries.push(parse().ok_or_else(corrupt)?);
    }
    Ok(entries)
}
