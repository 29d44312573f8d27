//! Counts durations in a histogram that many threads write without a lock.
//!
//! Buckets are log-linear: each power of two of microseconds has sixteen buckets of equal width.
//! So a quantile is at most 6 % too high. The shortest bucket ends at one microsecond, and the
//! last one holds everything above twelve days.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of buckets in a power of two, as a number of bits.
const PARTS_BITS: u32 = 4;
const PARTS: u64 = 1 << PARTS_BITS;
/// The number of buckets: sixteen below 16 microseconds, then sixteen for each power of two up to
/// 2^40.
const BUCKETS: usize = (PARTS as usize) * 37;

/// Counts of durations.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

/// The counts of a histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    buckets: Vec<u64>,
    sum_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum_us: AtomicU64::new(0),
        }
    }
}

fn bucket_of(us: u64) -> usize {
    if us < PARTS {
        return usize::try_from(us).unwrap_or(0);
    }
    let power = us.ilog2() - PARTS_BITS;
    let part = (us >> power) - PARTS;
    let index = u64::from(power + 1) * PARTS + part;
    usize::try_from(index).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// Returns the first number of microseconds above a bucket.
fn end_of(bucket: usize) -> u64 {
    let (power, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    if power == 0 { part + 1 } else { (PARTS + part + 1) << (power - 1) }
}

impl Histogram {
    pub(crate) fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            buckets: self.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

impl Default for Counts {
    fn default() -> Self {
        Counts { buckets: vec![0; BUCKETS], sum_us: 0 }
    }
}

impl Counts {
    /// Returns the number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all durations, in seconds.
    pub(crate) fn sum_s(&self) -> f64 {
        self.sum_us as f64 / 1e6
    }

    /// Returns the counts since an earlier moment.
    pub(crate) fn since(&self, earlier: &Counts) -> Counts {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Counts {
            buckets: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum_us: self.sum_us.saturating_sub(earlier.sum_us),
        }
    }

    /// Returns the duration below which the share `q` of all durations lies, in milliseconds.
    /// Returns `None` if there are none.
    pub(crate) fn quantile_ms(&self, q: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = ((count as f64 * q).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return Some(end_of(bucket) as f64 / 1e3);
            }
        }
        None
    }

    /// Returns the cumulative counts up to each of these bounds, which are in seconds. This is
    /// the form of Prometheus without the last bucket. A duration in the same bucket as a bound
    /// counts as below the bound.
    pub(crate) fn cumulative(&self, bounds_s: &[f64]) -> Vec<u64> {
        let mut sums = vec![0; bounds_s.len()];
        for (bucket, n) in self.buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
            let start_s = if bucket == 0 { 0.0 } else { end_of(bucket - 1) as f64 / 1e6 };
            for (sum, _) in sums.iter_mut().zip(bounds_s).filter(|(_, bound)| start_s < **bound) {
                *sum += n;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_meet_and_are_narrow() {
        for us in (0..100_000).chain([1 << 30, (1 << 39) + 12345]) {
            let bucket = bucket_of(us);
            assert!(us < end_of(bucket), "{us} lies in bucket {bucket}");
            assert!(bucket == 0 || us >= end_of(bucket - 1), "{us} lies in bucket {bucket}");
            assert!(end_of(bucket) as f64 <= us as f64 * 1.07 + 1.0, "{us}: {}", end_of(bucket));
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let histogram = Histogram::default();
        assert_eq!(histogram.counts().quantile_ms(0.5), None);
        for ms in 1..=1000 {
            histogram.record(Duration::from_millis(ms));
        }
        let counts = histogram.counts();
        for (q, ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = counts.quantile_ms(q).unwrap();
            assert!((ms..=ms * 1.07).contains(&found), "{q}: {found}");
        }
        assert_eq!(counts.count(), 1000);
        assert!((counts.sum_s() - 500.5).abs() < 1e-6);
    }

    #[test]
    fn counts_of_a_window_leave_out_what_came_before() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_secs(1));
        let before = histogram.counts();
        histogram.record(Duration::from_millis(2));
        let window = histogram.counts().since(&before);
        assert_eq!(window.count(), 1);
        assert!(window.quantile_ms(0.99).unwrap() < 3.0);
    }

    #[test]
    fn cumulative_counts_rise_to_all_below_the_last_bound() {
        let histogram = Histogram::default();
        for ms in [1, 5, 50, 500] {
            histogram.record(Duration::from_millis(ms));
        }
        assert_eq!(histogram.counts().cumulative(&[0.000_5, 0.01, 0.1, 10.0]), [0, 2, 3, 4]);
    }
}
