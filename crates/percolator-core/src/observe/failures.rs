//! Failures of observers, counted in one process. They say when the next attempt may come, and when
//! a cell is set aside.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bigtable::sync::locked;

use crate::Error;
use crate::observe::options::WorkerOptions;
use crate::records::column::Cell;

/// The end of a failure: another attempt, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delay {
    Until(Duration),
    SetAside,
}

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
pub(super) struct Failure {
    pub(super) attempts: u32,
    not_before: Duration,
    pub(super) error: String,
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
    pub(super) fn take(&self, cell: &Cell) -> Vec<(String, Failure)> {
        let mut of = self.lock();
        let first = (cell.clone(), String::new());
        let keys = of.range(first..).map(|(key, _)| key).take_while(|key| key.0 == *cell);
        let keys: Vec<_> = keys.cloned().collect();
        keys.into_iter().filter_map(|key| Some((key.1.clone(), of.remove(&key)?))).collect()
    }
}
