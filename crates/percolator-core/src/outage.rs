//! Follows an outage of the store or the oracle, so that the log has its begin, reminders and its
//! end.
//!
//! An unreachable store fails every request of a process. Logging each failure would fill the
//! log, so at most one line in [`REMIND_EVERY`] is logged. The line at the end has the number of
//! all failures.

use std::time::Duration;

/// The shortest time between two lines about failures.
const REMIND_EVERY: Duration = Duration::from_secs(5);

/// The failures since the last success. Times are those of the runtime's clock.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// The time of the first failure, if the last attempt failed.
    since: Option<Duration>,
    /// How many attempts have failed since then.
    failed: u64,
    /// How many of these failures were not logged since the last line.
    unlogged: u64,
    /// The time from which the next line may be logged.
    not_before: Duration,
}

/// The end of an outage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The time between the first failure and the first success.
    pub(crate) lasted: Duration,
    /// How many attempts have failed meanwhile.
    pub(crate) failed: u64,
}

impl Outage {
    /// Counts a failure at `now`. If the failure is to be logged, returns how many were not logged
    /// before it.
    pub(crate) fn failed(&mut self, now: Duration) -> Option<u64> {
        self.since.get_or_insert(now);
        self.failed += 1;
        if now < self.not_before {
            self.unlogged += 1;
            return None;
        }
        self.not_before = now + REMIND_EVERY;
        Some(std::mem::take(&mut self.unlogged))
    }

    /// Notes a success. Returns the outage that ended, if it is to be logged. A success soon after
    /// failures that were not logged is held back: the next success returns it, with their number.
    pub(crate) fn succeeded(&mut self, now: impl FnOnce() -> Duration) -> Option<Ended> {
        let since = self.since?;
        let now = now();
        let told = self.unlogged < self.failed;
        if !told && now < self.not_before {
            return None;
        }
        let not_before = self.not_before;
        let Outage { failed, .. } =
            std::mem::replace(self, Outage { not_before, ..Outage::default() });
        Some(Ended { lasted: now.saturating_sub(since), failed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_outage_has_a_begin_reminders_and_an_end() {
        let mut outage = Outage::default();
        assert_eq!(outage.succeeded(|| at(0)), None);
        assert_eq!(outage.failed(at(100)), Some(0));
        for ms in [200, 300, 5_000] {
            assert_eq!(outage.failed(at(ms)), None);
        }
        assert_eq!(outage.failed(at(5_100)), Some(3));
        let ended = Ended { lasted: at(6_000), failed: 5 };
        assert_eq!(outage.succeeded(|| at(6_100)), Some(ended));
        assert_eq!(outage.succeeded(|| at(6_200)), None);
    }

    #[test]
    fn failures_between_successes_cost_few_lines_and_are_all_counted() {
        let mut outage = Outage::default();
        assert_eq!(outage.failed(at(0)), Some(0));
        assert_eq!(outage.succeeded(|| at(1)), Some(Ended { lasted: at(1), failed: 1 }));
        let mut lines = 0;
        for ms in (10..4_990).step_by(10) {
            lines += usize::from(outage.failed(at(ms)).is_some());
            lines += usize::from(outage.succeeded(|| at(ms + 1)).is_some());
        }
        assert_eq!(lines, 0);
        // No failure comes any more, and the number is reported all the same.
        let ended = outage.succeeded(|| at(5_000)).expect("the time has come");
        assert_eq!(ended, Ended { lasted: at(4_990), failed: 498 });
    }
}
