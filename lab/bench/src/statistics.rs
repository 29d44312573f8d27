//! Computes medians with their intervals.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const RESAMPLES: usize = 2000;

/// A median with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Estimate {
    pub(crate) fn alone(value: f64) -> Self {
        Estimate { median: value, low: value, high: value }
    }

    /// The median of the sample with its bootstrap interval; `None` for an empty sample.
    pub(crate) fn of(sample: &[f64], seed: u64) -> Option<Self> {
        let median = median(sample)?;
        let mut random = SmallRng::seed_from_u64(seed);
        let mut drawn = Vec::with_capacity(sample.len());
        let mut medians = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            drawn.clear();
            drawn.extend(sample.iter().map(|_| sample[random.random_range(0..sample.len())]));
            medians.extend(self::median(&drawn));
        }
        medians.sort_by(f64::total_cmp);
        let at = |share: f64| medians[((medians.len() - 1) as f64 * share).round() as usize];
        Some(Estimate { median, low: at(0.025), high: at(0.975) })
    }
}

/// The middle of the sample, or the mean of the two in the middle.
fn median(sample: &[f64]) -> Option<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Lateness of requests that is always allowed, in seconds.
const LATE_S: f64 = 0.001;

/// True if requests were sent too late for their delays to be valid. Both are given in seconds,
/// at the median and at the 99th percentile. Too late means by more than a millisecond and more
/// than a tenth of the same percentile of the delays. Delays count from the time a request was
/// due, so lateness makes them longer.
pub(crate) fn is_late(late: [f64; 2], delays: [f64; 2]) -> bool {
    late.into_iter().zip(delays).any(|(late, delay)| late > (delay / 10.0).max(LATE_S))
}

/// The value below which this share of the sorted values lies; `None` for no values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[1.0], 0.95), Some(1.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0], 1.0), Some(3.0));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn the_interval_holds_the_median() {
        let sample: Vec<f64> = (0..10).map(|i| 0.8 + f64::from(i) / 100.0).collect();
        let estimate = Estimate::of(&sample, 1).unwrap();
        assert!(estimate.low < estimate.median && estimate.median < estimate.high);
        assert!(estimate.low >= 0.8 && estimate.high <= 0.89);
        assert_eq!(Estimate::of(&sample, 1), Some(estimate));
        assert_eq!(Estimate::of(&[], 1), None);
    }

    #[test]
    fn lateness_is_held_against_the_same_percentile() {
        assert!(!is_late([0.0001, 0.0009], [0.0002, 0.0003]), "below a millisecond");
        assert!(!is_late([0.0001, 0.003], [0.0002, 0.031]));
        assert!(is_late([0.0001, 0.003], [0.0002, 0.029]));
        assert!(is_late([0.002, 0.002], [0.001, 1.0]));
    }
}
