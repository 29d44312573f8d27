//! Callers that do something over and over at the same time.

use std::time::{Duration, Instant};

use crate::turns::{Block, Others, Start, nanos};

/// One caller, which owns what it works with.
pub(crate) trait AsyncCaller: Send + 'static {
    /// One attempt; whether it came through. All attempts up to that count towards its time.
    fn attempt(&mut self) -> impl Future<Output = anyhow::Result<bool>> + Send;

    /// Whether there is anything left to attempt.
    fn is_ready(&self) -> bool {
        true
    }
}

/// What callers did in a turn.
#[derive(Debug)]
pub(crate) struct Called<C> {
    pub(crate) block: Block,
    /// How often they tried.
    pub(crate) attempts: u64,
    /// In the order in which they were given.
    pub(crate) callers: Vec<C>,
}

impl<C> Called<C> {
    /// Which part of the attempts did not come through.
    pub(crate) fn conflicts(&self) -> f64 {
        1.0 - self.block.operations as f64 / self.attempts.max(1) as f64
    }
}

/// Lets callers attempt something over and over for this long, each in a task of its own.
pub(crate) async fn call<C: AsyncCaller>(
    others: Others<'_>,
    callers: impl IntoIterator<Item = C>,
    length: Duration,
) -> anyhow::Result<Called<C>> {
    let start = Start::beside(others);
    let since = start.at();
    let tasks = callers.into_iter().map(|caller| tokio::spawn(repeat(caller, since, length)));
    let done = futures::future::try_join_all(tasks.collect::<Vec<_>>()).await?;
    let block = Block::new(0, start.spent());
    let mut called = Called { block, attempts: 0, callers: Vec::with_capacity(done.len()) };
    for one in done {
        let (caller, latencies, attempts) = one?;
        called.attempts += attempts;
        called.block.operations += latencies.len() as u64;
        for nanos in latencies {
            called.block.latencies.saturating_record(nanos);
        }
        called.callers.push(caller);
    }
    Ok(called)
}

/// The caller, how long each operation took in nanoseconds, and how often it was attempted.
async fn repeat<C: AsyncCaller>(
    mut caller: C,
    since: Instant,
    length: Duration,
) -> anyhow::Result<(C, Vec<u64>, u64)> {
    let (mut latencies, mut attempts) = (Vec::new(), 0);
    let mut last = since.elapsed();
    while last < length && caller.is_ready() {
        attempts += 1;
        if caller.attempt().await? {
            let now = since.elapsed();
            latencies.push(nanos(now - last));
            last = now;
        } else if since.elapsed() >= length {
            break;
        }
    }
    Ok((caller, latencies, attempts))
}

/// Whether a commit went through; `false` after a conflict.
pub(crate) fn committed<T>(result: percolator::Result<T>) -> anyhow::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.is_retryable() => Ok(false),
        Err(error) => Err(error.into()),
    }
}
