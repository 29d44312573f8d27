//! Observers that keep failing: delayed, then set aside, and brought back by replay (H56).
//!
//! A change that cannot be handled must neither be lost nor hold up others. It waits longer after
//! each failure; after a bound its notification moves from the family `notify` to the family
//! `failed`, in one row mutation unless it has more versions than one request can delete. Replay
//! moves it back; a later write notifies as usual. Where another program runs one more observer of
//! the column, the notification stays where that program finds it, and is tried again at the
//! longest delay (H53).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bigtable::sync::locked;
use bigtable::{
    ConditionalMutation, Mutation, PageLimit, Probe, RowKey, RowRange, Selection, TimeRange,
    Timestamp,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::mutants::{self, off};
use crate::observe::handle::Delay;
use crate::observe::hints::Hint;
use crate::observe::workers::{Context, WorkerOptions};
use crate::records::codec::{Reader, put_bytes16, put_bytes32};
use crate::records::column::Cell;
use crate::records::layout::{FAILED, NOTIFY};
use crate::txn::limits::in_requests;
use crate::{Client, Column, Error, Result};

/// How many failing cells a process keeps in mind; of those beyond, the count begins anew.
const FAILURES_MAX: usize = 100_000;

/// How much of an error is kept.
const ERROR_CHARS_MAX: usize = 4096;

/// The failures of this process's observers.
#[derive(Debug, Default)]
pub(super) struct Failures {
    of: Mutex<BTreeMap<(Cell, String), Failure>>,
}

#[derive(Debug)]
struct Failure {
    attempts: u32,
    not_before: Duration,
    error: String,
}

impl Failures {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(Cell, String), Failure>> {
        locked(&self.of)
    }

    /// How long the observer must still wait before it may try the cell again.
    pub(super) fn delay(&self, cell: &Cell, observer: &str, now: Duration) -> Option<Duration> {
        let of = self.lock();
        if of.is_empty() {
            return None;
        }
        let failure = of.get(&(cell.clone(), observer.to_owned()))?;
        failure.not_before.checked_sub(now).filter(|delay| !delay.is_zero())
    }

    pub(super) fn note(
        &self,
        cell: &Cell,
        observer: &str,
        error: &Error,
        now: Duration,
        options: &WorkerOptions,
    ) -> Delay {
        let mut of = self.lock();
        if of.len() >= FAILURES_MAX {
            of.pop_first();
        }
        let fresh = Failure { attempts: 0, not_before: now, error: String::new() };
        let failure = of.entry((cell.clone(), observer.to_owned())).or_insert(fresh);
        failure.attempts += 1;
        failure.error = error.to_string().chars().take(ERROR_CHARS_MAX).collect();
        let factor = 2u32.saturating_pow(failure.attempts - 1);
        let doubled = options.failure_delay.saturating_mul(factor);
        let delay = doubled.min(options.failure_delay_max);
        failure.not_before = now + delay;
        if failure.attempts >= options.failures_max { Delay::SetAside } else { Delay::Until(delay) }
    }

    pub(super) fn forget(&self, cell: &Cell, observer: &str) {
        let mut of = self.lock();
        if !of.is_empty() {
            of.remove(&(cell.clone(), observer.to_owned()));
        }
    }

    /// Takes what is known of a cell's failures, for the record of setting it aside.
    fn take(&self, cell: &Cell) -> Vec<(String, Failure)> {
        let mut of = self.lock();
        let first = (cell.clone(), String::new());
        let keys = of.range(first..).map(|(key, _)| key).take_while(|key| key.0 == *cell);
        let keys: Vec<_> = keys.cloned().collect();
        keys.into_iter().filter_map(|key| Some((key.1.clone(), of.remove(&key)?))).collect()
    }
}

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
    /// How often it was tried.
    pub attempts: u32,
    /// Its last error.
    pub error: String,
    version: Timestamp,
}

impl Context {
    /// Moves the seen versions of a notification out of the way.
    pub(super) async fn set_aside(&self, cell: &Cell, seen: &[Timestamp]) -> Result<()> {
        let failures = self.failures.take(cell);
        let Some(newest) = seen.iter().max().filter(|_| !failures.is_empty()) else {
            return Ok(());
        };
        let column = || cell.column.to_bytes();
        let mut record = BytesMut::new();
        for (observer, failure) in failures {
            record.put_u32(failure.attempts);
            put_bytes16(&mut record, observer.as_bytes());
            put_bytes32(&mut record, failure.error.as_bytes());
        }
        let mut mutations = vec![Mutation::set(FAILED, column(), *newest, record.freeze())];
        let gone =
            |version: &Timestamp| Mutation::delete(NOTIFY, column(), TimeRange::at(*version));
        mutations.extend(seen.iter().map(gone));
        if off(mutants::SETS_ASIDE_UNSEEN) {
            mutations.push(Mutation::delete(NOTIFY, column(), TimeRange::ALL));
        }
        let key = cell.table.notify_key(&cell.row);
        // The record comes first: a crash before the last part leaves both, and the cell is tried
        // again.
        for request in in_requests(&self.client.limits(), &key, mutations) {
            cell.table.notify_store().check_and_mutate_row(request).await?;
        }
        self.client.counters().set_aside.bump();
        Ok(())
    }
}

impl Client {
    /// The notifications that were set aside because their observers kept failing, in all tables.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn set_aside(&self) -> Result<Vec<SetAside>> {
        let select = Selection::default().family(FAILED, TimeRange::ALL, u32::MAX);
        let mut found = Vec::new();
        for name in self.table_names().await? {
            let table = self.table(&name).await?;
            let mut left = Some(RowRange::all());
            while let Some(range) = left {
                let page = table.notify_store().scan(&range, &select, PageLimit::default()).await?;
                self.take_turn(page.rows.len()).await;
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

    /// Brings set-aside notifications of an observer back, to be tried again, and with them those
    /// of others that failed on the same change; of all observers if none is named. Returns how
    /// many.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn replay(&self, observer: Option<&str>) -> Result<usize> {
        let mut replayed = 0;
        for aside in self.set_aside().await? {
            if observer.is_some_and(|name| name != aside.observer) {
                continue;
            }
            let table = self.table(&aside.table).await?;
            let at = TimeRange::at(aside.version);
            let column = || aside.column.to_bytes();
            let request = ConditionalMutation {
                // What another column left at this time counts, too, because a name may be too long
                // for a predicate: a notification that is brought back twice is found stale.
                predicate: vec![Probe::family(FAILED, at)],
                then: vec![
                    Mutation::delete(FAILED, column(), at),
                    Mutation::set(NOTIFY, column(), aside.version, Bytes::new()),
                ],
                ..ConditionalMutation::new(table.notify_key(&aside.row))
            };
            if table.notify_store().check_and_mutate_row(request).await? {
                let cell = Cell::new(&table, &aside.row, &aside.column);
                self.hints().push(&Hint { cell, at: None });
                replayed += 1;
            }
        }
        Ok(replayed)
    }
}

/// A record holds one entry for each observer that failed.
fn decode(table: &str, row: &RowKey, cell: &bigtable::Cell) -> Result<Vec<SetAside>> {
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
                version: cell.timestamp,
            })
        };
        let corrupt = || Error::Corrupt { record: "failed", bytes: cell.value.clone() };
        entries.push(parse().ok_or_else(corrupt)?);
    }
    Ok(entries)
}
