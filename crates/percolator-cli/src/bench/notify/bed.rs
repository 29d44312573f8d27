//! What the experiments share: stores, workers, callers.

use std::path::Path;
use std::time::{Duration, Instant};

use percolator::{Durability, OpenOptions, Percolator, Registration, WorkerOptions, Workers};

use crate::bench::turns::{Block, Start, histogram, nanos};

/// Callers of transactions that get into each other's way.
pub(super) const CALLERS: usize = 16;

/// A new store in a directory that is not there yet. Nothing is collected during the few seconds of a
/// run.
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

/// What a caller did in a turn.
#[derive(Debug, Default)]
pub(super) struct Called {
    /// How long each operation took, in nanoseconds.
    pub(super) latencies: Vec<u64>,
    /// How often it was tried.
    pub(super) attempts: u64,
}

/// Lets so many callers do something over and over for this long; `call` does it once, returns whether it
/// was done, and counts how often it has tried. All attempts of a call count towards its time.
pub(super) async fn call<C>(
    callers: usize,
    length: Duration,
    call: impl Fn(usize) -> C,
) -> anyhow::Result<(Block, u64)>
where
    C: AsyncCaller,
{
    let start = Start::now(None);
    let since = start.at();
    let tasks = (0..callers).map(|number| tokio::spawn(repeat(call(number), since, length)));
    let done = futures::future::try_join_all(tasks).await?;
    let mut block = Block { operations: 0, spent: start.spent(), latencies: histogram() };
    let mut attempts = 0;
    for called in done {
        let called = called?;
        attempts += called.attempts;
        block.operations += called.latencies.len() as u64;
        called.latencies.into_iter().for_each(|nanos| block.latencies.saturating_record(nanos));
    }
    Ok((block, attempts))
}

/// One caller, which owns what it works with.
pub(super) trait AsyncCaller: Send + 'static {
    /// One attempt; whether it committed.
    fn attempt(&mut self) -> impl Future<Output = anyhow::Result<bool>> + Send;
}

async fn repeat(
    mut caller: impl AsyncCaller,
    since: Instant,
    length: Duration,
) -> anyhow::Result<Called> {
    let mut called = Called::default();
    let mut last = since.elapsed();
    while last < length {
        called.attempts += 1;
        if caller.attempt().await? {
            let now = since.elapsed();
            called.latencies.push(nanos(now - last));
            last = now;
        } else if since.elapsed() >= length {
            break;
        }
    }
    Ok(called)
}

/// Whether a commit went through; `false` after a conflict.
pub(super) fn committed<T>(result: percolator::Result<T>) -> anyhow::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.is_retryable() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A number in a cell; 0 where nothing is.
pub(super) fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes)
}
