//! Callers of transactions that may get into each other's way.

use std::time::{Duration, Instant};

use crate::server::Server;
use crate::turns::{Block, Start, histogram, nanos};

/// What a caller did in a turn.
#[derive(Debug, Default)]
struct Called {
    /// How long each operation took, in nanoseconds.
    latencies: Vec<u64>,
    /// How often it was tried.
    attempts: u64,
}

/// Lets so many callers do something over and over for this long; `call` does it once, returns
/// whether it was done, and counts how often it has tried. All attempts of a call count towards its
/// time; the processor time is that of the server, too.
pub(crate) async fn call<C>(
    server: Option<&Server>,
    callers: usize,
    length: Duration,
    call: impl Fn(usize) -> C,
) -> anyhow::Result<(Block, u64)>
where
    C: AsyncCaller,
{
    let start = Start::now(server);
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
pub(crate) trait AsyncCaller: Send + 'static {
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
pub(crate) fn committed<T>(result: percolator::Result<T>) -> anyhow::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.is_retryable() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A number in a cell; 0 where nothing is.
pub(crate) fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_be_bytes)
}
