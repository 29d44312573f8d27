//! The options of workers.

use std::time::Duration;

/// The options of a process's workers.
///
/// ```
/// # use percolator_core::face as percolator;
/// let options = percolator::WorkerOptions { threads: 8, ..Default::default() };
/// assert!(options.scan_period < options.idle_max);
/// ```
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// How many cells are handled at the same time. Default: 4 cells.
    ///
    /// In an embedded database with `Durability::Sync`, each commit waits for the disk. There this
    /// is the number of observers that run at the same time. Meanwhile the commits of up to 16
    /// times as many cells wait together. An observer that runs again after a conflict does not
    /// wait for its turn. Neither does one whose change a scan has found while many hints wait.
    pub threads: usize,
    /// How many cells of one column are handled at the same time. With fewer than `threads`,
    /// slow observers of one column leave threads to all others. See also
    /// [`Registration::runs_max`](crate::Registration::runs_max). Default: no bound.
    pub runs_max: usize,
    /// How often the workers together scan for notifications while hints keep them busy. The first
    /// pause after a scan that finds nothing is twice as long. Default: 500 ms.
    pub scan_period: Duration,
    /// The longest pause between two scans when there is nothing to do. The workers of a
    /// process share the scans. Default: 2 s.
    pub idle_max: Duration,
    /// How often the workers ask the oracle whether it has issued a timestamp. If it has, idle
    /// workers scan at once, so that a change by another process waits for about this time instead
    /// of `idle_max`. The question is one small request. Use it where several processes share a
    /// store, with a longer `idle_max`. Default: `None`.
    pub peek_every: Option<Duration>,
    /// How long a worker's advisory lock on a row lasts without renewal. A worker renews the
    /// lock while its observers run. If the worker hangs, other workers take over the row
    /// after this time. Default: 30 s.
    pub row_lock_lifetime: Duration,
    /// For how long a worker renews that lock. An observer that runs for longer than this plus
    /// the lock's lifetime is started a second time, beside its first run. Where the store is
    /// behind a network, another process may also start it within its first 50 ms. A strong
    /// observer
    /// **may run twice, and commits once**. Any effect outside of its transaction, such as a call
    /// of another service, must be safe to repeat. Default: 600 s.
    pub run_max: Duration,
    /// How long a failed observer waits before its second attempt. Each further failure
    /// doubles the wait. Default: 100 ms.
    pub failure_delay: Duration,
    /// The longest wait after a failure. Default: 60 s.
    pub failure_delay_max: Duration,
    /// After how many failures a change is set aside. Each process counts for itself, and forgets
    /// its counts when it ends. Conflicts, and failures of store and oracle, do not count.
    /// Default: 6 failures.
    pub failures_max: u32,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        WorkerOptions {
            threads: 4,
            runs_max: usize::MAX,
            scan_period: Duration::from_millis(500),
            idle_max: Duration::from_secs(2),
            peek_every: None,
            row_lock_lifetime: Duration::from_secs(30),
            run_max: Duration::from_secs(600),
            failure_delay: Duration::from_millis(100),
            failure_delay_max: Duration::from_secs(60),
            failures_max: 6,
        }
    }
}
