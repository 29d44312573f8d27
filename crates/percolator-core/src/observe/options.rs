//! How workers behave.

use std::time::Duration;

/// How the workers of a process behave.
///
/// ```
/// # use percolator_core::face as percolator;
/// let options = percolator::WorkerOptions { threads: 8, ..Default::default() };
/// assert!(options.scan_period < options.idle_max);
/// ```
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// How many cells are handled at once. Default: 4 cells.
    pub threads: usize,
    /// How many cells of one column are handled at once; no fewer than `threads` by default. With
    /// less, the observers of one column leave threads to all others, however slow they are. See
    /// also [`Registration::runs_max`](crate::Registration::runs_max). Default: no bound.
    pub runs_max: usize,
    /// How often the workers together scan for notifications although hints keep them busy, and the
    /// first pause when they find nothing. Default: 500 ms.
    pub scan_period: Duration,
    /// The longest pause between two scans when there is nothing to do: the workers of a process
    /// share them. Default: 2 s.
    pub idle_max: Duration,
    /// How long a worker's advisory lock on a row lasts without being renewed. A worker renews the
    /// lock while its observers run. If the worker hangs, others go on with the row after this
    /// time. Default: 30 s.
    pub row_lock_lifetime: Duration,
    /// For how long a worker renews that lock. An observer that runs for longer than this and the
    /// lock's lifetime together runs a second time, beside itself. It **may run twice, and commits
    /// once**: whatever it does outside of its transaction, such as a call of another service, must
    /// bear being done twice. Default: 600 s.
    pub run_max: Duration,
    /// How long a failed observer waits before its second attempt; doubled each time. Default: 100
    /// ms.
    pub failure_delay: Duration,
    /// The longest such wait. Default: 60 s.
    pub failure_delay_max: Duration,
    /// After how many failures a notification is set aside. Default: 6 failures.
    pub failures_max: u32,
    /// Whether a scanner that meets another worker at a row jumps to a random place, as it should;
    /// otherwise it goes on to the next row. There to be compared with: scanners then clump (paper
    /// section 2.4). Default: `true`.
    #[doc(hidden)]
    pub jump: bool,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        WorkerOptions {
            threads: 4,
            runs_max: usize::MAX,
            scan_period: Duration::from_millis(500),
            idle_max: Duration::from_secs(2),
            row_lock_lifetime: Duration::from_secs(30),
            run_max: Duration::from_secs(600),
            failure_delay: Duration::from_millis(100),
            failure_delay_max: Duration::from_secs(60),
            failures_max: 6,
            jump: true,
        }
    }
}
