//! Decides whether all observers' work is done, and counts the work that is left.
//!
//! Idle means that no observed column has a notification, and that no timestamp was issued
//! during the check. An empty scan alone is not enough: a writer may make a cell dirty behind
//! it. But every transaction that makes or handles a change takes a timestamp. So if the
//! oracle stands at the same timestamp before and after an empty scan, there was no such
//! transaction.
//!
//! Cells that wait only for paused observers do not count: no worker will handle them. If a
//! column has both paused and other observers, their acknowledgements show which of them a
//! cell waits for.

use std::collections::BTreeMap;
use std::time::Duration;

use bigtable::{PageLimit, RowRange, Selection, TimeRange, Timestamp};

use crate::mutants::{self, off};
use crate::observe::pause::is_handled;
use crate::observe::set_aside::{SetAside, set_aside};
use crate::records::column::Cell;
use crate::records::layout::NOTIFY;
use crate::records::schema::{Observed, Schema};
use crate::shared::Shared;
use crate::{Column, Error, Result};

/// The first and the longest pause between two checks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// The result of waiting for idleness.
///
/// See [`Client::wait_idle`](crate::Client::wait_idle).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleReport {
    /// Whether nothing was dirty. `false` after a time-out.
    pub idle: bool,
    /// Notifications that were set aside because their observers kept failing.
    pub set_aside: Vec<SetAside>,
    /// Observers in the schema that no worker of this client runs, and that changes may wait
    /// for. Empty if this client runs no observers at all. Either another process runs them,
    /// or they should be [retired](crate::Client::retire_observer).
    pub missing: Vec<Observed>,
    /// [Paused](crate::Client::pause_observer) observers whose columns are notified. Changes that
    /// wait for them alone do not count as dirty.
    pub paused: Vec<Observed>,
}

/// The notifications that wait on one column.
///
/// See [`Client::backlog`](crate::Client::backlog).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backlog {
    /// The table.
    pub table: String,
    /// The column.
    pub column: Column,
    /// The observers that the schema names for the column.
    pub observers: Vec<String>,
    /// The paused ones among these observers.
    pub paused: Vec<String>,
    /// How many cells are notified.
    pub cells: usize,
    /// The lowest timestamp of their notifications.
    pub oldest: Timestamp,
    /// Whether all of them were counted; else there may be more, and an older one.
    pub whole: bool,
}

/// Waits until nothing is dirty and no timestamp was issued during the check, or until
/// `timeout`. Issues no timestamps itself. Does not wait for transactions that are still
/// running.
pub(crate) async fn wait_idle(shared: &Shared, timeout: Option<Duration>) -> Result<IdleReport> {
    let since = shared.runtime().now();
    let mut pause = PAUSES.0;
    let _awaited = shared.awaited();
    loop {
        if is_idle(shared).await? {
            return idle_report(shared, true).await;
        }
        let waited = shared.runtime().now().saturating_sub(since);
        if timeout.is_some_and(|timeout| waited >= timeout) {
            return idle_report(shared, false).await;
        }
        shared.runtime().sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn idle_report(shared: &Shared, idle: bool) -> Result<IdleReport> {
    let set_aside = set_aside(shared).await?;
    // Another client may have registered or retired observers.
    let schema = shared.learn_schema().await?;
    let mut paused = Vec::new();
    for observed in schema.entries.keys().filter(|observed| schema.is_paused(observed)) {
        let Observed { table, column, .. } = observed;
        if has_notification(shared, table, column, TimeRange::ALL).await? {
            paused.push(observed.clone());
        }
    }
    Ok(IdleReport { idle, set_aside, missing: missing_observers(shared), paused })
}

/// The observers in the schema that no worker of this client runs. Empty if it runs none at
/// all.
pub(crate) fn missing_observers(shared: &Shared) -> Vec<Observed> {
    let running = shared.hints().running();
    let missing = |observed: &&Observed| !running.is_empty() && !running.contains(*observed);
    shared.known_schema().entries.keys().filter(missing).cloned().collect()
}

/// Whether nothing is dirty at this moment.
async fn is_idle(shared: &Shared) -> Result<bool> {
    let before = shared.oracle().peek().await?;
    // No worker will handle notifications that a retired observer left: only columns in the
    // schema count.
    let mut fresh = Selection::default();
    if !off(mutants::IDLE_OVER_PENDING) {
        fresh = fresh.above(before);
    }
    let mut selections: BTreeMap<String, Selection> = BTreeMap::new();
    let schema = Schema::read(shared.system()).await?;
    let mut columns: Vec<_> = schema.entries.keys().cloned().collect();
    let waits_for_paused = |column: &Observed| {
        schema.of(&column.table, &column.column).any(|entry| schema.is_paused(entry))
    };
    let partly = columns.extract_if(.., |column| waits_for_paused(&*column)).collect::<Vec<_>>();
    columns.dedup_by(|a, b| (&a.table, &a.column) == (&b.table, &b.column));
    for Observed { table, column, .. } in columns {
        // Read at `before`, so that the scan waits for a pending one-step commit: its
        // timestamp is taken, but its notifications are not written yet.
        let select = selections.entry(table).or_insert_with(|| fresh.clone());
        *select = std::mem::take(select).column(NOTIFY, column.to_bytes(), TimeRange::ALL, 1);
    }
    for (name, select) in selections {
        let table = shared.table(&name).await?;
        let mut left = Some(RowRange::all());
        while let Some(range) = left {
            let limit = PageLimit { rows_max: 1, ..PageLimit::default() };
            let page = match table.notify_store().scan(&range, &select, limit).await {
                // `before` is too old already, so many timestamps were issued.
                Err(bigtable::Error::TooOld { .. }) => return Ok(false),
                page => page?,
            };
            shared.take_turn(page.rows.len()).await;
            if !page.rows.is_empty() {
                return Ok(false);
            }
            left = page.resume;
        }
    }
    for of in partly.chunk_by(|a, b| (&a.table, &a.column) == (&b.table, &b.column)) {
        let runs = of.iter().filter(|entry| !schema.is_paused(entry)).cloned();
        if waits_for(shared, &of[0], &runs.collect::<Vec<_>>(), before).await? {
            return Ok(false);
        }
    }
    Ok(shared.oracle().peek().await? == before)
}

/// Whether a notified cell of the column waits, as of `s`, for one of these observers. All of
/// them are strong, because all weak ones of a column are paused together.
async fn waits_for(
    shared: &Shared,
    Observed { table, column, .. }: &Observed,
    observers: &[Observed],
    s: Timestamp,
) -> Result<bool> {
    if observers.is_empty() {
        return Ok(false);
    }
    let starting = shared.readers().starting();
    if shared.oracle().peek().await? != s {
        return Ok(true);
    }
    let _open = starting.moved_to(s);
    let table = shared.table(table).await?;
    let select = Selection::default().column(NOTIFY, column.to_bytes(), TimeRange::ALL, 1);
    let select = select.above(s);
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.notify_store().scan(&range, &select, PageLimit::default()).await;
        let page = match page {
            Err(bigtable::Error::TooOld { .. }) => return Ok(true),
            page => page?,
        };
        shared.take_turn(page.rows.len()).await;
        for row in &page.rows {
            let cell = Cell::new(&table, &table.notified_row(&row.key)?, column);
            match is_handled(shared, &cell, observers, s).await {
                Ok(true) => {}
                // A writer is at work, or so many timestamps were issued that `s` is too old.
                Ok(false) | Err(Error::Locked { .. } | Error::TooOld { .. }) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        left = page.resume;
    }
    Ok(false)
}

/// Whether a column has a notification of these timestamps in any row.
pub(crate) async fn has_notification(
    shared: &Shared,
    table: &str,
    column: &Column,
    times: TimeRange,
) -> Result<bool> {
    let table = shared.table(table).await?;
    let select = Selection::default().column(NOTIFY, column.to_bytes(), times, 1);
    let limit = PageLimit { rows_max: 1, ..PageLimit::default() };
    let mut left = Some(RowRange::all());
    while let Some(range) = left {
        let page = table.notify_store().scan(&range, &select, limit).await?;
        shared.take_turn(page.rows.len()).await;
        if !page.rows.is_empty() {
            return Ok(true);
        }
        left = page.resume;
    }
    Ok(false)
}

/// Counts the waiting notifications, by column. It counts at most `cells_max` in each table,
/// and the rest of the last page.
pub(crate) async fn backlog(shared: &Shared, cells_max: usize) -> Result<Vec<Backlog>> {
    let schema = Schema::read(shared.system()).await?;
    let select = Selection::default().family(NOTIFY, TimeRange::ALL, u32::MAX);
    let mut backlog: BTreeMap<(String, Column), Backlog> = BTreeMap::new();
    for name in shared.table_names().await? {
        let table = shared.table(&name).await?;
        let (mut left, mut counted) = (Some(RowRange::all()), 0);
        while let Some(range) = left.take_if(|_| counted < cells_max) {
            let page = table.notify_store().scan(&range, &select, PageLimit::default()).await?;
            shared.take_turn(page.rows.len()).await;
            for row in &page.rows {
                let columns = row.cells.chunk_by(|a, b| a.qualifier == b.qualifier);
                for versions in columns {
                    let column = Column::from_stored(versions[0].qualifier.clone());
                    let observers = || schema.of(&name, &column);
                    let paused = || observers().filter(|observed| schema.is_paused(observed));
                    let fresh = || Backlog {
                        table: name.clone(),
                        column: column.clone(),
                        observers: observers().map(|observed| observed.observer.clone()).collect(),
                        paused: paused().map(|observed| observed.observer.clone()).collect(),
                        cells: 0,
                        oldest: Timestamp::MAX,
                        whole: true,
                    };
                    let key = (name.clone(), column.clone());
                    let entry = backlog.entry(key).or_insert_with(fresh);
                    entry.cells += 1;
                    counted += 1;
                    let oldest = versions.iter().map(|cell| cell.timestamp).min();
                    entry.oldest = entry.oldest.min(oldest.unwrap_or(Timestamp::MAX));
                }
            }
            left = page.resume;
        }
        if left.is_some() {
            backlog.values_mut().filter(|of| of.table == name).for_each(|of| of.whole = false);
        }
    }
    Ok(backlog.into_values().collect())
}

/// How many hints wait for this process's workers: a cheap measure of how far behind they are.
pub(crate) fn hints_waiting(shared: &Shared) -> usize {
    shared.hints().len()
}
