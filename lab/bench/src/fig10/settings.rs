//! Defines the settings of `percolator-bench fig10`.

/// Seconds after which throughput should be back.
const GRACE_S: f64 = 5.0;

/// The settings of a run.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) customers: u64,
    pub(super) workers: usize,
    /// Length of each part of a round. The table server is away for a quarter of it.
    pub(super) seconds: f64,
    pub(super) rounds: usize,
    pub(super) seed: u64,
    pub(super) quick: bool,
}

impl Settings {
    /// Number of workers that are killed: a third.
    pub(super) fn killed(&self) -> usize {
        (self.workers / 3).max(1)
    }

    pub(super) fn table_away_s(&self) -> f64 {
        self.seconds / 4.0
    }

    /// The time until throughput should be back; less in a shorter run.
    pub(super) fn grace_s(&self) -> f64 {
        GRACE_S.min(self.seconds / 2.0)
    }

    /// Length of the windows for rates.
    pub(super) fn window_s(&self) -> f64 {
        GRACE_S.min(self.seconds / 4.0)
    }

    /// Length of the windows in which throughput must be back.
    pub(super) fn probe_s(&self) -> f64 {
        2.0_f64.min(self.seconds / 8.0)
    }

    /// Approximate length of the run, without loading.
    pub(super) fn all_s(&self) -> f64 {
        self.rounds as f64 * (4.0 * self.seconds + self.table_away_s()) + self.seconds
    }
}
