//! How `percolator-bench fig10` measures.

/// Everything is to be back after this many seconds.
const GRACE_S: f64 = 5.0;

/// How it is measured.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) customers: u64,
    pub(super) workers: usize,
    /// The length of each part of a round; the table server is away for a quarter of it.
    pub(super) seconds: f64,
    pub(super) rounds: usize,
    pub(super) seed: u64,
    pub(super) quick: bool,
}

impl Settings {
    /// How many workers are killed: a third.
    pub(super) fn killed(&self) -> usize {
        (self.workers / 3).max(1)
    }

    pub(super) fn table_away_s(&self) -> f64 {
        self.seconds / 4.0
    }

    /// A shorter run has shorter times.
    pub(super) fn grace_s(&self) -> f64 {
        GRACE_S.min(self.seconds / 2.0)
    }

    /// Rates are taken over so long.
    pub(super) fn window_s(&self) -> f64 {
        GRACE_S.min(self.seconds / 4.0)
    }

    /// Whether throughput is back is looked at over so long.
    pub(super) fn probe_s(&self) -> f64 {
        2.0_f64.min(self.seconds / 8.0)
    }

    /// About how long all of it takes, without loading.
    pub(super) fn all_s(&self) -> f64 {
        self.rounds as f64 * (4.0 * self.seconds + self.table_away_s()) + self.seconds
    }
}
