//! One turn of each arm.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use percolator::Oracle;
use percolator_rpc::oracle::RemoteOracle;

use super::echo::{MESSAGE_BYTES, echo};
use super::{Arm, Settings};
use crate::bench::turns::{Block, Spent, Start, histogram, nanos};

/// How often callers come in, at half load. The operating system sleeps no shorter.
const TICK: Duration = Duration::from_micros(100);

/// What a turn did.
pub(super) struct Done {
    pub(super) block: Block,
    /// What each caller got, in the order in which it got it.
    pub(super) timestamps: Vec<Vec<u64>>,
}

impl Done {
    fn new(spent: Spent) -> Self {
        let block = Block { operations: 0, spent, latencies: histogram() };
        Done { block, timestamps: Vec::new() }
    }
}

/// Runs one turn; `rate` is for the arm at half load.
pub(super) async fn turn(
    arm: Arm,
    oracle: &Arc<RemoteOracle>,
    settings: &Settings,
    rate: f64,
    spent: Start<'_>,
) -> anyhow::Result<Done> {
    let length = settings.turns.block();
    match arm {
        Arm::Echo => tokio::task::block_in_place(|| round_trips(length, &spent)),
        Arm::Unbatched => closed(oracle, 1, length, &spent).await,
        Arm::Batched => closed(oracle, settings.callers, length, &spent).await,
        Arm::HalfLoad => open(oracle, rate, length, &spent).await,
    }
}

fn round_trips(length: Duration, spent: &Start<'_>) -> anyhow::Result<Done> {
    let mut stream = echo()?;
    let (mut latencies, mut operations) = (histogram(), 0);
    let mut message = [7; MESSAGE_BYTES];
    let started = spent.at();
    let mut last = Duration::ZERO;
    while last < length {
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        let now = started.elapsed();
        latencies.saturating_record(nanos(now - last));
        (last, operations) = (now, operations + 1);
    }
    let block = Block { operations, spent: spent.spent(), latencies };
    Ok(Done { block, timestamps: Vec::new() })
}

/// Callers that ask again as soon as they are answered.
async fn closed(
    oracle: &Arc<RemoteOracle>,
    callers: usize,
    length: Duration,
    spent: &Start<'_>,
) -> anyhow::Result<Done> {
    let started = spent.at();
    let tasks = (0..callers).map(|_| {
        let oracle = oracle.clone();
        tokio::spawn(async move {
            let (mut latencies, mut got) = (Vec::new(), Vec::new());
            let mut last = started.elapsed();
            while last < length {
                got.push(oracle.timestamp().await?.timestamp.as_u64());
                let now = started.elapsed();
                latencies.push(nanos(now - last));
                last = now;
            }
            Ok::<_, percolator::Error>((latencies, got))
        })
    });
    let results = try_join_all(tasks.collect::<Vec<_>>()).await?;
    let mut done = Done::new(spent.spent());
    for result in results {
        let (latencies, got) = result?;
        latencies.into_iter().for_each(|nanos| done.block.latencies.saturating_record(nanos));
        done.block.operations += got.len() as u64;
        done.timestamps.push(got);
    }
    Ok(done)
}

/// Callers that come at a rate, whether or not those before them were served. Latency counts from the
/// moment at which a caller was to come.
async fn open(
    oracle: &Arc<RemoteOracle>,
    rate: f64,
    length: Duration,
    spent: &Start<'_>,
) -> anyhow::Result<Done> {
    let (tick, mut ticks) = tokio::sync::mpsc::unbounded_channel();
    let started = spent.at();
    let clock = std::thread::spawn(move || {
        let mut due = Duration::ZERO;
        while due < length {
            due += TICK;
            std::thread::sleep(due.saturating_sub(started.elapsed()));
            if tick.send(due).is_err() {
                break;
            }
        }
    });
    let mut tasks = Vec::new();
    let mut come = 0;
    while let Some(due) = ticks.recv().await {
        let all = (rate * due.as_secs_f64()) as u64;
        let (oracle, count) = (oracle.clone(), all.saturating_sub(come));
        come = all;
        tasks.push(tokio::spawn(async move {
            let asked = (0..count).map(|_| oracle.timestamp());
            let got = try_join_all(asked).await?;
            let took = nanos(started.elapsed().saturating_sub(due));
            Ok::<_, percolator::Error>((took, got))
        }));
    }
    let results = try_join_all(tasks).await?;
    let mut done = Done::new(spent.spent());
    for result in results {
        let (took, got) = result?;
        done.block.latencies.saturating_record_n(took, got.len() as u64);
        done.block.operations += got.len() as u64;
        done.timestamps.push(got.iter().map(|stamp| stamp.timestamp.as_u64()).collect());
    }
    clock.join().map_err(|_| anyhow::anyhow!("the thread that keeps time ended"))?;
    Ok(done)
}
