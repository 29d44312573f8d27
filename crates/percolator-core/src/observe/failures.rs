//! Counts the failures of observers, for one process.
//!
//! The count decides when the next attempt may come, and when a cell is set aside. It is lost
//! when the process ends: then the observer gets all its attempts again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bigtable::sync::locked;

use crate::observe::options::WorkerOptions;
use crate::records::column::Cell;
use crate::{AbortReason, Column, Error, RowKey};

/// A change on which an observer of this client fails, and which it will try again.
///
/// See [`Client::failing`](crate::Client::failing).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// The table.
    pub table: String,
    /// The row.
    pub row: RowKey,
    /// The observed column.
    pub column: Column,
    /// The observer.
    pub observer: String,
    /// How often the observer has failed.
    pub attempts: u32,
    /// Its last error.
    pub error: String,
    /// How long until the next attempt. Zero if it is due.
    pub next_attempt: Duration,
}

/// The consequence of a failure: another attempt after a delay, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delay {
    Until(Duration),
    SetAside,
}

/// How many failing cells a process remembers. Beyond that, the cell that is first in order is
/// dropped, and its count begins anew.
const FAILURES_MAX: usize = 100_000;

/// How much of an error's text is kept.
const ERROR_CHARS_MAX: usize = 4096;

/// The failures of a client's observers: one list for each call of `observe`.
#[derive(Debug, Default)]
pub(crate) struct FailureLists(Mutex<Vec<Weak<Failures>>>);

impl FailureLists {
    /// Adds a list, which lives until the caller drops it.
    pub(super) fn begin(&self) -> Arc<Failures> {
        let failures = Arc::<Failures>::default();
        let mut lists = locked(&self.0);
        lists.retain(|list| list.strong_count() > 0);
        lists.push(Arc::downgrade(&failures));
        failures
    }

    /// How many changes observers fail on.
    pub(crate) fn len(&self) -> usize {
        locked(&self.0).iter().filter_map(Weak::upgrade).map(|list| list.lock().len()).sum()
    }

    /// The changes on which observers fail, at most `limit`, ordered by table and cell within
    /// each list.
    pub(crate) fn failing(&self, now: Duration, limit: usize) -> Vec<Failing> {
        let lists: Vec<_> = locked(&self.0).iter().filter_map(Weak::upgrade).collect();
        let mut failing = Vec::new();
        for list in lists {
            let of = list.lock();
            let some = of.iter().take(limit - failing.len());
            failing.extend(some.map(|((cell, observer), failure)| Failing {
                table: cell.table.name().to_owned(),
                row: cell.row.clone(),
                column: cell.column.clone(),
                observer: observer.clone(),
                attempts: failure.attempts,
                error: failure.error.clone(),
                next_attempt: failure.not_before.saturating_sub(now),
            }));
        }
        failing
    }
}

/// The failures of the observers of one call of `observe`.
#[derive(Debug, Default)]
pub(super) struct Failures {
    of: Mutex<BTreeMap<(Cell, String), Failure>>,
}

#[derive(Debug)]
pub(super) struct Failure {
    pub(super) attempts: u32,
    not_before: Duration,
    pub(super) error: String,
}

impl Failures {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(Cell, String), Failure>> {
        locked(&self.of)
    }

    /// How long the observer must still wait before it may try the cell again. `None` if it
    /// may try now.
    pub(super) fn delay(
        &self,
        cell: &Cell,
        observer: &str,
        now: impl FnOnce() -> Duration,
    ) -> Option<Duration> {
        let of = self.lock();
        if of.is_empty() {
            return None;
        }
        let failure = of.get(&(cell.clone(), observer.to_owned()))?;
        failure.not_before.checked_sub(now()).filter(|delay| !delay.is_zero())
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

    /// How often an observer has failed on a cell.
    pub(super) fn attempts(&self, cell: &Cell, observer: &str) -> u32 {
        let of = self.lock();
        of.get(&(cell.clone(), observer.to_owned())).map_or(0, |failure| failure.attempts)
    }

    pub(super) fn forget(&self, cell: &Cell, observer: &str) {
        let mut of = self.lock();
        if !of.is_empty() {
            of.remove(&(cell.clone(), observer.to_owned()));
        }
    }

    /// Removes and returns the failures of a cell's observers, for the record of setting it
    /// aside.
    pub(super) fn take(&self, cell: &Cell) -> Vec<(String, Failure)> {
        let mut of = self.lock();
        if of.is_empty() {
            return Vec::new();
        }
        let first = (cell.clone(), String::new());
        let keys = of.range(first..).map(|(key, _)| key).take_while(|key| key.0 == *cell);
        let keys: Vec<_> = keys.cloned().collect();
        keys.into_iter().filter_map(|key| Some((key.1.clone(), of.remove(&key)?))).collect()
    }
}

/// Whether the store, the oracle or the system that the observer feeds has failed. Such an
/// error says nothing about the observer and must not be counted: an outage would set aside
/// every dirty cell.
pub(super) fn is_of_the_services(error: &Error) -> bool {
    match error {
        Error::Oracle(_)
        | Error::Refused(_)
        | Error::Unavailable(_)
        | Error::Overloaded { .. }
        | Error::Closed
        | Error::Aborted { reason: AbortReason::Oracle(_), .. } => true,
        Error::Store(error) | Error::Aborted { reason: AbortReason::Store(error), .. } => {
            !matches!(error, bigtable::Error::InvalidRequest(_))
        }
        _ => false,
    }
}
