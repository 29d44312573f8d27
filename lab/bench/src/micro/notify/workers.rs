//! Workers that wait for changes.

use percolator::{Percolator, Registration, WorkerOptions, Workers};

/// How many workers, and callers of transactions that are compared with them.
pub(super) const WORKERS: usize = 4;

/// Callers of transactions that get into each other's way.
pub(super) const CALLERS: usize = 16;

/// Starts workers that are told by hints, and waits until they have nothing to do.
pub(super) async fn idle_workers(
    db: &Percolator,
    observers: Vec<Registration>,
) -> anyhow::Result<Workers> {
    let options = WorkerOptions { threads: WORKERS, ..WorkerOptions::default() };
    let workers = db.observe(observers, options).await?;
    db.wait_idle(None).await?;
    Ok(workers)
}
