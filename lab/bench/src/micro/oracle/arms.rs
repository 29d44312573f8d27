//! Runs one turn of each arm.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use hdrhistogram::Histogram;
use percolator::cluster::{Oracle, Stamp};
use percolator_rpc::oracle::RemoteOracle;

use super::Arm;
use super::echo::{Batches, MESSAGE_BYTES, echo};
use crate::callers::{AsyncCaller, call};
use crate::turns::{Block, Others, Start, Watch, histogram, nanos};

/// Interval at which callers arrive at half load.
const TICK: Duration = Duration::from_micros(100);

/// The results of a turn.
pub(super) struct Done {
    pub(super) block: Block,
    /// Each caller's timestamps, in the order in which the caller got them.
    pub(super) timestamps: Vec<Vec<u64>>,
    /// The lateness of callers that arrive at a rate, in nanoseconds.
    pub(super) late: Histogram<u64>,
}

impl Done {
    fn new(block: Block) -> Self {
        Done { block, timestamps: Vec::new(), late: histogram() }
    }
}

/// Runs one turn; `rate` is for the arm at half load.
pub(super) async fn turn(
    arm: Arm,
    oracle: &Arc<RemoteOracle>,
    callers: usize,
    length: Duration,
    rate: f64,
    others: Others<'_>,
) -> anyhow::Result<Done> {
    match arm {
        Arm::Echo => tokio::task::block_in_place(|| round_trips(length, others)),
        Arm::Unbatched => closed(oracle, 1, length, others).await,
        Arm::Batched => closed(oracle, callers, length, others).await,
        Arm::HalfLoad => half_load(oracle, rate, length, others).await,
        Arm::HalfLoadEcho => half_load_echo(rate, length, others).await,
    }
}

fn round_trips(length: Duration, others: Others<'_>) -> anyhow::Result<Done> {
    let mut stream = echo()?;
    let mut message = [7; MESSAGE_BYTES];
    let mut watch = Watch::beside(others);
    while watch.goes_on(length) {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        watch.lap(1);
    }
    Ok(Done::new(watch.stop()))
}

/// A caller that asks again as soon as it has an answer.
struct Asker {
    oracle: Arc<RemoteOracle>,
    got: Vec<u64>,
}

impl AsyncCaller for Asker {
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        self.got.push(self.oracle.timestamp().await?.timestamp.as_u64());
        Ok(true)
    }
}

async fn closed(
    oracle: &Arc<RemoteOracle>,
    callers: usize,
    length: Duration,
    others: Others<'_>,
) -> anyhow::Result<Done> {
    let asker = |_| Asker { oracle: oracle.clone(), got: Vec::new() };
    let called = call(others, (0..callers).map(asker), length).await?;
    let timestamps = called.callers.into_iter().map(|asker| asker.got).collect();
    Ok(Done { timestamps, ..Done::new(called.block) })
}

/// Lets callers arrive at a rate, whether or not earlier ones were served. A latency counts
/// from the moment at which the caller should arrive. It includes the caller's lateness for
/// want of a processor, which is also reported separately. `ask` runs all callers that arrive
/// at one moment.
async fn open<T, F>(
    ask: impl Fn(u64) -> F + Send + 'static,
    rate: f64,
    length: Duration,
    others: Others<'_>,
) -> anyhow::Result<(Done, Vec<T>)>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>> + Send + 'static,
{
    let start = Start::beside(others);
    let started = start.at;
    let runtime = tokio::runtime::Handle::current();
    let clock = std::thread::spawn(move || {
        let (mut tasks, mut due, mut come) = (Vec::new(), Duration::ZERO, 0);
        while due < length {
            due += TICK;
            std::thread::sleep(due.saturating_sub(started.elapsed()));
            let all = (rate * due.as_secs_f64()) as u64;
            let count = all.saturating_sub(come);
            come = all;
            let asked = ask(count);
            tasks.push(runtime.spawn(async move {
                let late = started.elapsed().saturating_sub(due);
                let got = asked.await?;
                let took = started.elapsed().saturating_sub(due);
                Ok::<_, anyhow::Error>((count, nanos(late), nanos(took), got))
            }));
        }
        tasks
    });
    let tasks = tokio::task::spawn_blocking(|| clock.join()).await?;
    let tasks = tasks.map_err(|_| anyhow::anyhow!("the thread that keeps time ended"))?;
    let results = try_join_all(tasks).await?;
    let mut done = Done::new(Block::new(0, start.spent()));
    let mut all = Vec::with_capacity(results.len());
    for result in results {
        let (count, late, took, got) = result?;
        done.late.saturating_record_n(late, count);
        done.block.latencies.saturating_record_n(took, count);
        done.block.operations += count;
        all.push(got);
    }
    Ok((done, all))
}

/// Runs half load against the oracle.
async fn half_load(
    oracle: &Arc<RemoteOracle>,
    rate: f64,
    length: Duration,
    others: Others<'_>,
) -> anyhow::Result<Done> {
    let oracle = oracle.clone();
    let ask = move |count| {
        let oracle = oracle.clone();
        async move { Ok(try_join_all((0..count).map(|_| oracle.timestamp())).await?) }
    };
    let (mut done, all) = open(ask, rate, length, others).await?;
    let numbers = |stamps: Vec<Stamp>| stamps.iter().map(|s| s.timestamp.as_u64()).collect();
    done.timestamps = all.into_iter().map(numbers).collect();
    Ok(done)
}

/// Runs the same load against a peer that sends each message back.
async fn half_load_echo(rate: f64, length: Duration, others: Others<'_>) -> anyhow::Result<Done> {
    let batches = Arc::new(Batches::start()?);
    let ask = move |count| {
        let batches = batches.clone();
        async move { try_join_all((0..count).map(|_| batches.ask())).await.map(|_| ()) }
    };
    Ok(open(ask, rate, length, others).await?.0)
}
