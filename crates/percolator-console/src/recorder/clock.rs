//! Estimates the age of timestamps from samples of the newest timestamp at known moments.
//!
//! The oracle's timestamps count up and contain no time. So the recorder samples each timestamp
//! that was just issued, at most one in fifty milliseconds. The age of any other timestamp is the
//! age of the first sample at or above it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use percolator::Timestamp;
use percolator::store::sync::locked;

/// The least time between two samples.
const GAP: Duration = Duration::from_millis(50);
/// How many samples are kept: at least ten minutes under load.
const SAMPLES_MAX: usize = 12_000;

/// Samples of the newest timestamp.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// The next sample is taken this many milliseconds after `began`.
    next_ms: AtomicU64,
    samples: Mutex<VecDeque<(Duration, Timestamp)>>,
}

/// How old a timestamp is.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(crate) struct Age {
    /// Seconds.
    pub(crate) seconds: f64,
    /// Whether `seconds` is only a lower bound, because the timestamp was issued before the first
    /// sample.
    pub(crate) at_least: bool,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { began: Instant::now(), next_ms: AtomicU64::new(0), samples: Mutex::default() }
    }
}

impl Clock {
    /// Takes a sample: this timestamp is the newest known one. Costs next to nothing soon after
    /// the last sample.
    pub(crate) fn note(&self, newest: Timestamp) {
        self.note_at(self.began.elapsed(), newest);
    }

    fn note_at(&self, now: Duration, newest: Timestamp) {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        if now_ms < self.next_ms.load(Ordering::Relaxed) {
            return;
        }
        self.next_ms.store(now_ms + GAP.as_millis() as u64, Ordering::Relaxed);
        let mut samples = locked(&self.samples);
        if samples.back().is_some_and(|(_, known)| *known >= newest) {
            return;
        }
        if samples.len() >= SAMPLES_MAX {
            // Every second sample of the older half is dropped: the past becomes coarser, not
            // shorter.
            let half = samples.len() / 2;
            let mut index = 0;
            samples.retain(|_| {
                index += 1;
                index == 1 || index > half || index % 2 == 0
            });
        }
        samples.push_back((now, newest));
    }

    /// Returns how long ago a timestamp was issued; `None` before the first sample.
    pub(crate) fn age(&self, ts: Timestamp) -> Option<Age> {
        self.age_at(self.began.elapsed(), ts)
    }

    fn age_at(&self, now: Duration, ts: Timestamp) -> Option<Age> {
        let samples = locked(&self.samples);
        let after = samples.partition_point(|(_, newest)| *newest < ts);
        let (taken, at_least) = match samples.get(after) {
            Some((taken, newest)) => (*taken, after == 0 && *newest > ts),
            // The timestamp was issued after the last sample, and counts as at most one gap old.
            None => (samples.back()?.0.max(now.saturating_sub(GAP)), false),
        };
        Some(Age { seconds: now.saturating_sub(taken).as_secs_f64(), at_least })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ts(n: u64) -> Timestamp {
        Timestamp::new(n).unwrap()
    }

    #[test]
    fn an_age_is_that_of_the_first_sample_not_below() {
        let clock = Clock::default();
        assert_eq!(clock.age_at(Duration::ZERO, ts(1)), None);
        for second in 1..=10 {
            clock.note_at(Duration::from_secs(second), ts(second * 100));
        }
        let now = Duration::from_secs(20);
        let age = |n| clock.age_at(now, ts(n)).unwrap();
        assert_eq!(age(250), Age { seconds: 17.0, at_least: false });
        assert_eq!(age(300), Age { seconds: 17.0, at_least: false });
        assert_eq!(age(50), Age { seconds: 19.0, at_least: true });
        assert!(age(5_000).seconds < 0.1);
    }

    #[test]
    fn samples_are_bounded_and_the_oldest_stays_in_reach() {
        let clock = Clock::default();
        for n in 0..3 * SAMPLES_MAX as u64 {
            clock.note_at(Duration::from_millis(n * 100), ts(n + 1));
        }
        assert!(locked(&clock.samples).len() <= SAMPLES_MAX);
        let now = Duration::from_millis(300 * SAMPLES_MAX as u64);
        let old = clock.age_at(now, ts(100)).unwrap();
        // Dropped samples make old ages coarser: they stay within 5 % of the age.
        assert!((old.seconds / (now.as_secs_f64() - 10.0) - 1.0).abs() < 0.05, "{old:?}");
        assert!(!old.at_least);
    }

    #[test]
    fn samples_within_the_gap_are_left_out() {
        let clock = Clock::default();
        for ms in 0..100 {
            clock.note_at(Duration::from_millis(ms), ts(ms + 1));
        }
        assert_eq!(locked(&clock.samples).len(), 2);
    }
}
