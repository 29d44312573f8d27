//! Keeps rates and quantiles of the last fifteen minutes, one point for each second.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use percolator::store::sync::locked;
use serde::Serialize;

use crate::recorder::{Counts, Recorder, read, wall_ms};

/// The most points that are kept.
const POINTS_MAX: usize = 900;

/// Rates and quantiles of the second before `wall_ms`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Point {
    /// Milliseconds since 1970.
    pub(crate) wall_ms: u64,
    pub(crate) commits_s: f64,
    pub(crate) aborts_s: f64,
    pub(crate) runs_s: f64,
    pub(crate) run_failures_s: f64,
    pub(crate) commit_p50_ms: Option<f64>,
    pub(crate) commit_p99_ms: Option<f64>,
    /// From a change's commit until its observer has committed.
    pub(crate) delay_p50_ms: Option<f64>,
    pub(crate) delay_p95_ms: Option<f64>,
    /// Changes that wait for workers of this process.
    pub(crate) waiting: u64,
}

/// The counters of the recorder at one moment.
#[derive(Debug, Default)]
struct Seen {
    commits: u64,
    aborts: u64,
    runs: u64,
    run_failures: u64,
    total: Counts,
    delay: Counts,
}

impl Seen {
    fn of(recorder: &Recorder) -> Self {
        let counters = &recorder.counters;
        Seen {
            commits: counters.committed(),
            aborts: read(&counters.aborted) + read(&counters.unknown),
            runs: read(&counters.runs),
            run_failures: read(&counters.run_failures),
            total: recorder.total.counts(),
            delay: recorder.delay.counts(),
        }
    }
}

/// The points, and the counters at the last of them.
#[derive(Debug, Default)]
pub(crate) struct Series {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last: Option<(Instant, Seen)>,
    points: VecDeque<Point>,
}

impl Series {
    /// Adds a point for the time since the last one.
    pub(crate) fn tick(&self, recorder: &Recorder, waiting: usize) {
        self.tick_at(Instant::now(), recorder, waiting);
    }

    fn tick_at(&self, now: Instant, recorder: &Recorder, waiting: usize) {
        let seen = Seen::of(recorder);
        let mut inner = locked(&self.inner);
        if let Some((then, last)) = &inner.last {
            let seconds = now.saturating_duration_since(*then).as_secs_f64().max(0.001);
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            let (total, delay) = (seen.total.since(&last.total), seen.delay.since(&last.delay));
            let point = Point {
                wall_ms: wall_ms(),
                commits_s: rate(seen.commits, last.commits),
                aborts_s: rate(seen.aborts, last.aborts),
                runs_s: rate(seen.runs, last.runs),
                run_failures_s: rate(seen.run_failures, last.run_failures),
                commit_p50_ms: total.quantile_ms(0.5),
                commit_p99_ms: total.quantile_ms(0.99),
                delay_p50_ms: delay.quantile_ms(0.5),
                delay_p95_ms: delay.quantile_ms(0.95),
                waiting: waiting as u64,
            };
            if inner.points.len() >= POINTS_MAX {
                inner.points.pop_front();
            }
            inner.points.push_back(point);
        }
        inner.last = Some((now, seen));
    }

    /// Returns the points of the last `window`, the oldest first.
    pub(crate) fn window(&self, window: Duration) -> Vec<Point> {
        let seconds = usize::try_from(window.as_secs()).unwrap_or(usize::MAX).max(1);
        let inner = locked(&self.inner);
        let skip = inner.points.len().saturating_sub(seconds);
        inner.points.iter().skip(skip).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_point_is_what_happened_since_the_last_one() {
        let (recorder, series) = (Recorder::new(), Series::default());
        let begin = Instant::now();
        recorder.counters.one_step.store(100, Ordering::Relaxed);
        series.tick_at(begin, &recorder, 0);
        assert!(series.window(Duration::from_secs(60)).is_empty());
        recorder.counters.one_step.store(150, Ordering::Relaxed);
        recorder.total.record(Duration::from_millis(4));
        series.tick_at(begin + Duration::from_secs(2), &recorder, 7);
        let points = series.window(Duration::from_secs(60));
        assert_eq!(points.len(), 1);
        assert!((points[0].commits_s - 25.0).abs() < 1e-9);
        assert_eq!((points[0].waiting, points[0].delay_p50_ms), (7, None));
        assert!(points[0].commit_p99_ms.is_some_and(|ms| (4.0..4.3).contains(&ms)));
    }

    #[test]
    fn points_are_bounded() {
        let (recorder, series) = (Recorder::new(), Series::default());
        let begin = Instant::now();
        for second in 0..POINTS_MAX as u64 + 10 {
            series.tick_at(begin + Duration::from_secs(second), &recorder, 0);
        }
        assert_eq!(series.window(Duration::MAX).len(), POINTS_MAX);
        assert_eq!(series.window(Duration::from_secs(60)).len(), 60);
    }
}
