//! Registers observers in the store's schema, so that no change is missed.
//!
//! The order of the steps ensures this (H59):
//!
//! 1. The new schema is stored.
//! 2. The oracle's version is raised, so that every later timestamp carries it.
//! 3. A sweep takes a timestamp after step 2, reads every row, and notifies each cell whose
//!    newest commit is not acknowledged.
//!
//! A writer with the old schema got its commit timestamp before step 2. So the sweep finds
//! either its lock or its write.

use std::collections::BTreeMap;
use std::time::Duration;

use bigtable::{
    ConditionalMutation, Mutation, PageLimit, RowRange, Selection, TimeRange, Timestamp,
};

use crate::observe::leave::notify;
use crate::records::column::COLUMN_BYTES_MAX;
use crate::records::layout::{FAILED, NOTIFY};
use crate::records::schema::{Observed, Schema};
use crate::runtime::Backoff;
use crate::shared::Shared;
use crate::txn::get::{Patience, Version, is_locked, read_acknowledged, versions};
use crate::txn::held::check_held;
use crate::{Column, Error, InvalidKind, Result, Table};

/// How often a registration is tried when other clients change the schema at the same time.
const TRIES_MAX: u32 = 100;

/// Adds observers to the store's schema without running them here. From now on, changes of
/// their columns leave notifications for the processes that
/// [`observe`](crate::Client::observe).
pub(crate) async fn declare(shared: &Shared, observers: &[Observed]) -> Result<()> {
    for observed in observers {
        check(observed)?;
        shared.table(&observed.table).await?;
    }
    register(shared, observers).await
}

/// Adds observers to the schema, if they are missing, and sweeps for changes made before. A
/// sweep that a crash interrupted is done again at the next registration.
pub(crate) async fn register(shared: &Shared, wanted: &[Observed]) -> Result<()> {
    change_schema(shared, |old| {
        if wanted.iter().all(|e| old.entries.contains_key(e)) {
            Ok(None)
        } else {
            old.with(wanted).map(Some)
        }
    })
    .await?;
    let schema = Schema::read(shared.system()).await?;
    let unswept: Vec<&Observed> =
        wanted.iter().filter(|entry| is_unswept(&schema, entry)).collect();
    for entry in &unswept {
        sweep(shared, entry).await?;
    }
    change_schema(shared, |old| {
        let mut entries = old.entries.clone();
        for entry in &unswept {
            entries.entry((*entry).clone()).and_modify(|state| state.swept = true);
        }
        let changed = entries != old.entries;
        Ok(changed.then_some(Schema { version: old.version + 1, entries }))
    })
    .await
}

fn is_unswept(schema: &Schema, entry: &Observed) -> bool {
    schema.entries.get(entry).is_some_and(|state| !state.swept)
}

/// Removes the observers with this name from the schema, and deletes the notifications of
/// columns that have no other observer. Returns how many registrations had that name.
pub(crate) async fn retire_observer(shared: &Shared, observer: &str) -> Result<usize> {
    // Taken before the schema changes: notifications of a later registration lie above this
    // bound.
    let bound = shared.oracle().peek().await?;
    let mut retired = Vec::new();
    change_schema(shared, |old| {
        let (gone, entries): (BTreeMap<_, _>, BTreeMap<_, _>) =
            old.entries.clone().into_iter().partition(|(entry, _)| entry.observer == observer);
        if gone.is_empty() {
            return Ok(None);
        }
        retired = gone.into_keys().collect();
        Ok(Some(Schema { version: old.version + 1, entries }))
    })
    .await?;
    let schema = shared.known_schema();
    for Observed { table, column, .. } in &retired {
        if schema.of(table, column).next().is_none() {
            drop_notifications(shared, table, column, bound).await?;
        }
    }
    Ok(retired.len())
}

/// Deletes the notifications, up to `bound`, of a column that no observer is registered for.
async fn drop_notifications(
    shared: &Shared,
    table: &str,
    column: &Column,
    bound: Timestamp,
) -> Result<()> {
    let table = shared.table(table).await?;
    let (q, upto) = (|| column.to_bytes(), TimeRange::up_to(bound));
    let select = Selection::default().column(NOTIFY, q(), upto, 1).column(FAILED, q(), upto, 1);
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.notify_store().scan(&range, &select, PageLimit::default()).await?;
        shared.take_turn(page.rows.len()).await;
        let drop = |row: &bigtable::Row| ConditionalMutation {
            otherwise: vec![
                Mutation::delete(NOTIFY, q(), upto),
                Mutation::delete(FAILED, q(), upto),
            ],
            ..ConditionalMutation::new(&row.key)
        };
        leave(shared, &table, page.rows.iter().map(drop).collect()).await?;
        left = page.resume;
    }
    Ok(())
}

/// Replaces the schema by the one that `change` returns, and tries again if another client was
/// faster. If `change` returns `None`, the schema stays.
pub(super) async fn change_schema(
    shared: &Shared,
    mut change: impl FnMut(&Schema) -> Result<Option<Schema>>,
) -> Result<()> {
    let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(100));
    for _ in 0..TRIES_MAX {
        let old = Schema::read(shared.system()).await?;
        let Some(new) = change(&old)? else {
            // A crash may have come between storing and raising. So raise again: it is
            // idempotent.
            return publish(shared, old.version).await;
        };
        match new.replace(shared.system(), &old).await {
            Ok(true) => return publish(shared, new.version).await,
            // Another client was faster, or this client's own reply was lost: read the schema
            // again.
            Ok(false) | Err(Error::Store(bigtable::Error::Unknown { .. })) => {}
            Err(error) => return Err(error),
        }
        shared.runtime().sleep(backoff.step(&**shared.runtime())).await;
    }
    Err(contended())
}

/// Makes every later timestamp carry the version, and reads the schema into this client.
async fn publish(shared: &Shared, version: u64) -> Result<()> {
    shared.oracle().raise_schema_version(version).await?;
    shared.schema(version).await?;
    Ok(())
}

/// Notifies each cell of the column whose newest committed change is not acknowledged.
async fn sweep(shared: &Shared, entry: &Observed) -> Result<()> {
    let table = shared.table(&entry.table).await?;
    let ack = entry.column.ack_of(&entry.observer);
    let starting = shared.readers().starting();
    let s = shared.oracle().timestamp().await?.timestamp;
    let _open = starting.moved_to(s);
    let columns = [entry.column.clone(), ack.clone()];
    let select = crate::txn::get::selection(&columns, s);
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.store().scan(&range, &select, PageLimit::default()).await;
        let page = page.map_err(crate::txn::get::too_old)?;
        shared.take_turn(page.rows.len()).await;
        check_held(shared, s)?;
        let mut dirty = Vec::new();
        for found in &page.rows {
            let versions = if is_locked(found) {
                let (row, patience) = (&found.key, Patience::Wait);
                read_acknowledged(shared, &table, row, &columns, s, patience).await?
            } else {
                versions(shared, &table, found, s, Column::is_ack).await?
            };
            let of = |column: &Column| versions.iter().find(|v| v.column == *column);
            let acked = of(&ack).and_then(acknowledged);
            let changed = of(&entry.column).map(|v| v.commit_ts);
            if changed.is_some_and(|c| acked.is_none_or(|acked| c > acked)) {
                let column = std::slice::from_ref(&entry.column);
                dirty.push(notify(&table, &found.key, column, s));
            }
        }
        leave(shared, &table, dirty).await?;
        left = page.resume;
    }
    Ok(())
}

/// Sends requests that write or delete notifications.
async fn leave(_shared: &Shared, table: &Table, requests: Vec<ConditionalMutation>) -> Result<()> {
    for result in table.notify_store().check_and_mutate_rows(requests).await {
        result?;
    }
    Ok(())
}

/// The timestamp up to which an acknowledgement has acknowledged changes. That is the start
/// timestamp of a run, or its own commit timestamp if it was written together with a change that
/// skips observers (`skip_all.rs`).
pub(crate) fn acknowledged(version: &Version) -> Option<Timestamp> {
    let value = version.value.as_deref()?;
    if value.is_empty() {
        return Some(version.commit_ts);
    }
    Timestamp::new(u64::from_be_bytes(value.try_into().ok()?))
}

fn contended() -> Error {
    Error::Oracle("the observer schema is being changed by too many clients: try again".to_owned())
}

/// Checks that an observer's name can be part of an acknowledgement column.
pub(super) fn check(entry: &Observed) -> Result<()> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if entry.observer.is_empty() || !entry.observer.bytes().all(plain) {
        return Err(Error::invalid(
            InvalidKind::Observer,
            format!(
                "observer name {:?} is malformed: use the form [-_.a-zA-Z0-9]+",
                entry.observer
            ),
        ));
    }
    let ack = entry.column.ack_of(&entry.observer);
    if ack.as_bytes().len() > COLUMN_BYTES_MAX {
        return Err(Error::invalid(
            InvalidKind::Observer,
            format!(
                "the names of observer and column have {} bytes together, at most {} are allowed",
                entry.observer.len() + entry.column.as_bytes().len(),
                COLUMN_BYTES_MAX + entry.observer.len() + entry.column.as_bytes().len()
                    - ack.as_bytes().len()
            ),
        ));
    }
    Ok(())
}
