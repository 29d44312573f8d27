//! Computes throughput over time from the logs of all workers.

use std::time::Duration;

use tpce::{Entry, TransactionType};

/// The times of completed transactions, in seconds since the beginning, sorted.
#[derive(Debug, Clone, Default)]
pub(super) struct Series(Vec<f64>);

impl Series {
    /// The series of all workers together: for all types of transactions, and for
    /// Trade-Results.
    pub(super) fn of(logs: &[Vec<Entry>], begin: Duration) -> [Series; 2] {
        let done = |only: Option<TransactionType>| {
            let entries = logs.iter().flatten().filter(|entry| {
                entry.done && entry.at >= begin && only.is_none_or(|kind| entry.kind == kind)
            });
            let mut times: Vec<f64> = entries.map(|e| (e.at - begin).as_secs_f64()).collect();
            times.sort_unstable_by(f64::total_cmp);
            Series(times)
        };
        [done(None), done(Some(TransactionType::TradeResult))]
    }

    pub(super) fn count(&self, from: f64, to: f64) -> usize {
        let before = |at: f64| self.0.partition_point(|time| *time < at);
        before(to).saturating_sub(before(from))
    }

    /// Transactions a second between two times.
    pub(super) fn rate(&self, from: f64, to: f64) -> f64 {
        self.count(from, to) as f64 / (to - from)
    }

    /// The rates of consecutive windows of this length, as many as fit.
    pub(super) fn rates(&self, from: f64, to: f64, window: f64) -> Vec<f64> {
        let whole = ((to - from) / window + 1e-9) as usize;
        let at = |n: usize| from + n as f64 * window;
        (0..whole).map(|n| self.rate(at(n), at(n + 1))).collect()
    }

    /// The time after `from` until the rate stays at least `wanted`: over the next window, and
    /// from there to the end. `None` if it never does.
    pub(super) fn until(&self, wanted: f64, from: f64, to: f64, window: f64) -> Option<f64> {
        let step = window / 8.0;
        let steps = ((to - from - window) / step + 1e-9) as usize;
        (0..=steps).map(|n| n as f64 * step).find(|after| {
            let at = from + after;
            self.rate(at, at + window) >= wanted && self.rate(at, to) >= wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten a second, except four from 10 s to 20 s and none from 20 s to 21 s.
    fn series() -> Series {
        let ten = |n: u64| (0..10).map(move |i| n as f64 + f64::from(i) / 10.0);
        let four = |n: u64| (0..4).map(move |i| n as f64 + f64::from(i) / 4.0);
        Series(
            (0..10)
                .flat_map(ten)
                .chain((10..20).flat_map(four))
                .chain((21..40).flat_map(ten))
                .collect(),
        )
    }

    #[test]
    fn rates_are_those_between_two_times() {
        let series = series();
        assert_eq!(series.rate(0.0, 10.0), 10.0);
        assert_eq!(series.rates(8.0, 13.0, 2.0), [10.0, 4.0]);
        assert_eq!(series.count(20.0, 21.0), 0);
    }

    #[test]
    fn it_is_back_when_it_stays_back() {
        let series = series();
        assert_eq!(series.until(9.7, 20.0, 40.0, 2.0), Some(1.0));
        assert_eq!(series.until(9.7, 0.0, 10.0, 2.0), Some(0.0));
        assert_eq!(series.until(9.7, 10.0, 20.0, 2.0), None);
        // The rate is high for a window, but low over the rest.
        assert_eq!(series.until(9.7, 5.0, 20.0, 2.0), None);
    }

    #[test]
    fn only_what_was_done_counts() {
        let line = |line: &str| line.parse::<Entry>().unwrap();
        let logs = vec![
            vec![
                line("500000000 done trade_status 0 0"),
                line("1500000000 begun trade_result 7 0"),
            ],
            vec![line("2500000000 done trade_result 7 0"), line("1750000000 done trade_order 8 0")],
        ];
        let [all, results] = Series::of(&logs, Duration::from_secs(1));
        assert_eq!(all.0, [0.75, 1.5]);
        assert_eq!(results.0, [1.5]);
    }
}
