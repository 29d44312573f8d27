//! Calls the watcher of a client after each event, and stops calling it once three calls have
//! panicked or taken longer than a second.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::Runtime;
use crate::watch::{Event, Watch};

/// A call that takes longer counts as blocked. The operating system may suspend a thread for a
/// while, which is no fault of the watcher, so the bound is far above such pauses.
const CALL_MAX: Duration = Duration::from_secs(1);
/// After this many calls that panicked or blocked, the watcher is not called again.
const FAILURES_MAX: u32 = 3;
/// The watcher samples one access of this many.
const SAMPLE_EVERY: u64 = 64;

/// A client's watcher, with its failures and the number of accesses so far.
#[derive(Debug)]
pub(crate) struct Watcher {
    watch: Arc<dyn Watch>,
    /// How many calls have panicked or blocked.
    failures: AtomicU32,
    /// How many rows were read and written since the client was opened.
    accesses: AtomicU64,
}

impl Watcher {
    pub(crate) fn new(watch: Arc<dyn Watch>) -> Self {
        Watcher { watch, failures: AtomicU32::new(0), accesses: AtomicU64::new(0) }
    }

    /// Whether the watcher is still called.
    pub(crate) fn is_on(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < FAILURES_MAX
    }

    /// Calls the watcher. Returns whether the call returned in time.
    pub(crate) fn call(&self, runtime: &dyn Runtime, event: &Event<'_>) -> bool {
        let begun = runtime.now();
        let called = catch_unwind(AssertUnwindSafe(|| self.watch.on_event(event)));
        let took = runtime.now().saturating_sub(begun);
        if called.is_ok() && took <= CALL_MAX {
            return true;
        }
        // Exactly one call gets this number, however many calls fail at the same time.
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES_MAX {
            let (watcher, panicked) = (&self.watch, called.is_err());
            tracing::warn!(
                target: "percolator::watch", event = "watcher_off", ?watcher, panicked, ?took,
                "the watcher has panicked, or blocked for more than {CALL_MAX:?}, {FAILURES_MAX} \
                 times, and is no longer called: correct the watcher, and open the database again"
            );
        }
        false
    }

    /// Counts accesses to rows. Returns which of these `rows` are sampled.
    pub(crate) fn sampled(&self, rows: usize) -> impl Iterator<Item = usize> + use<> {
        let before = self.accesses.fetch_add(rows as u64, Ordering::Relaxed);
        let first = (SAMPLE_EVERY - 1 - before % SAMPLE_EVERY) as usize;
        (first..rows).step_by(SAMPLE_EVERY as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Silent;

    impl Watch for Silent {
        fn on_event(&self, _: &Event<'_>) {}
    }

    #[test]
    fn one_access_of_64_is_sampled_however_they_come() {
        let watcher = Watcher::new(Arc::new(Silent));
        let (mut accesses, mut sampled) = (0, Vec::new());
        for rows in (0..200).chain([1; 200]) {
            sampled.extend(watcher.sampled(rows).map(|row| accesses + row));
            accesses += rows;
        }
        let expected: Vec<usize> = (63..accesses).step_by(64).collect();
        assert_eq!(sampled, expected);
    }
}
