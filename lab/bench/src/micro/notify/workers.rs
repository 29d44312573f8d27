//! Starts workers that wait for changes.

use percolator::{Percolator, Registration, WorkerOptions, Workers};

/// Number of workers, and of the callers whose transactions are compared with them.
pub(super) const WORKERS: usize = 4;

/// Number of callers whose transactions conflict.
pub(super) const CALLERS: usize = 16;

/// Starts workers that get hints, and waits until they are idle.
pub(super) async fn idle_workers(
    db: &Percolator,
    observers: Vec<Registration>,
) -> anyhow::Result<Workers> {
    let options = WorkerOptions { threads: WORKERS, ..WorkerOptions::default() };
    let workers = db.observe(observers, options).await?;
    db.wait_idle(None).await?;
    Ok(workers)
}
