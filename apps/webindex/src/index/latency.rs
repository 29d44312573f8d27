//! Measures how long a loaded page takes to be observed and to be searchable, within this
//! process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hdrhistogram::Histogram;

/// The most pages that are followed at a time. Pages beyond that are not measured.
const FOLLOWED_MAX: usize = 100_000;
/// The longest time that is recorded exactly, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// Follows pages from their load to the search index.
#[derive(Debug)]
pub(crate) struct Latency {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    loaded: HashMap<String, Loaded>,
    to_observer: Histogram<u64>,
    to_searchable: Histogram<u64>,
}

#[derive(Debug)]
struct Loaded {
    at: Instant,
    observed: bool,
}

/// Times from a page's load to a later event, in milliseconds.
///
/// ```
/// let quantiles = webindex::Quantiles::default();
/// assert_eq!(quantiles.count, 0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Quantiles {
    /// How many pages were measured.
    pub count: u64,
    /// The median.
    pub p50_ms: f64,
    /// 95 % of the pages take at most this long.
    pub p95_ms: f64,
    /// 99 % of the pages take at most this long.
    pub p99_ms: f64,
}

impl Latency {
    pub(crate) fn new() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are in order");
        let (to_observer, to_searchable) = (histogram(), histogram());
        Latency { state: Mutex::new(State { loaded: HashMap::new(), to_observer, to_searchable }) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the loader is about to commit a page.
    pub(crate) fn loading(&self, url: &str) {
        let mut state = self.state();
        if state.loaded.len() < FOLLOWED_MAX {
            let loaded = Loaded { at: Instant::now(), observed: false };
            state.loaded.insert(url.to_owned(), loaded);
        }
    }

    /// Notes that the page's first observer has started.
    pub(crate) fn observed(&self, url: &str) {
        let mut state = self.state();
        let Some(loaded) = state.loaded.get_mut(url).filter(|loaded| !loaded.observed) else {
            return;
        };
        loaded.observed = true;
        let us = micros(loaded.at);
        state.to_observer.saturating_record(us);
    }

    /// Notes that the search index has the page's new state.
    pub(crate) fn searchable(&self, url: &str) {
        let mut state = self.state();
        // An export from before the page was parsed does not count.
        if state.loaded.get(url).is_some_and(|loaded| loaded.observed)
            && let Some(loaded) = state.loaded.remove(url)
        {
            state.to_searchable.saturating_record(micros(loaded.at));
        }
    }

    /// Returns the times from load to the first observer's start, and to the search index.
    pub(crate) fn quantiles(&self) -> (Quantiles, Quantiles) {
        let state = self.state();
        (quantiles(&state.to_observer), quantiles(&state.to_searchable))
    }
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(LONGEST_US).clamp(1, LONGEST_US)
}

fn quantiles(histogram: &Histogram<u64>) -> Quantiles {
    let at = |q| histogram.value_at_quantile(q) as f64 / 1000.0;
    Quantiles { count: histogram.len(), p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99) }
}
