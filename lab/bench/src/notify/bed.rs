//! What the experiments share: stores and workers.

use std::path::Path;

use percolator::{Durability, OpenOptions, Percolator, Registration, WorkerOptions, Workers};

/// Callers of transactions that get into each other's way.
pub(super) const CALLERS: usize = 16;

/// A new store in a directory that is not there yet. Nothing is collected during the few seconds of
/// a run.
pub(super) async fn open(dir: &Path) -> anyhow::Result<Percolator> {
    let options =
        OpenOptions { durability: Durability::Buffered, gc: None, ..OpenOptions::default() };
    Ok(Percolator::open_with(dir, options).await?)
}

/// Starts workers that are told by hints, and waits until they have nothing to do.
pub(super) async fn idle_workers(
    db: &Percolator,
    observers: Vec<Registration>,
) -> anyhow::Result<Workers> {
    let options = WorkerOptions { threads: super::WORKERS, ..WorkerOptions::default() };
    let workers = db.observe(observers, options).await?;
    db.wait_idle(None).await?;
    Ok(workers)
}
