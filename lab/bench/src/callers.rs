//! Runs callers that repeat an operation at the same time.

use std::time::{Duration, Instant};

use crate::turns::{Block, Others, Start, nanos};

/// A caller, which owns the state that it works with.
pub(crate) trait AsyncCaller: Send + 'static {
    /// Attempts the operation once; true if it succeeded. The time of an operation includes its
    /// failed attempts.
    fn attempt(&mut self) -> impl Future<Output = anyhow::Result<bool>> + Send;

    /// True if the caller can attempt another operation.
    fn is_ready(&self) -> bool {
        true
    }

    /// True if others should run before the next attempt. That time belongs to no operation.
    fn gives_way(&self) -> bool {
        false
    }
}

/// The work of all callers in a turn.
#[derive(Debug)]
pub(crate) struct Called<C> {
    pub(crate) block: Block,
    pub(crate) attempts: u64,
    /// The callers, in their original order.
    pub(crate) callers: Vec<C>,
}

impl<C> Called<C> {
    pub(crate) fn conflicts(&self) -> f64 {
        1.0 - self.block.operations as f64 / self.attempts.max(1) as f64
    }
}

/// Runs the callers for this long, each in a task of its own.
pub(crate) async fn call<C: AsyncCaller>(
    others: Others<'_>,
    callers: impl IntoIterator<Item = C>,
    length: Duration,
) -> anyhow::Result<Called<C>> {
    let start = Start::beside(others);
    let since = start.at;
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

/// Repeats the operation. Returns the caller, the nanoseconds of each operation, and the number
/// of attempts.
async fn repeat<C: AsyncCaller>(
    mut caller: C,
    since: Instant,
    length: Duration,
) -> anyhow::Result<(C, Vec<u64>, u64)> {
    let (mut latencies, mut attempts) = (Vec::new(), 0);
    let mut last = since.elapsed();
    while last < length && caller.is_ready() {
        if caller.gives_way() {
            tokio::task::yield_now().await;
            last = since.elapsed();
        }
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

/// Returns true if a commit succeeded, `false` after a conflict.
pub(crate) fn committed<T>(result: percolator::Result<T>) -> anyhow::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.is_retryable() => Ok(false),
        Err(error) => Err(error.into()),
    }
}
