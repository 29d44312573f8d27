//! Lets arms take turns, and measures each turn.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use percolator_cli::context::Context;
use percolator_cli::progress::Progress;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::server::Server;
use crate::statistics::Estimate;
use crate::system::{self, Io};

/// Longest turn of an arm, and fewest turns: with fewer, a median and its interval mean little.
const BLOCK: Duration = Duration::from_millis(500);
const BLOCKS_MIN: usize = 10;
/// An arm is warm when two successive blocks differ by no more than this share of the first.
const WARM: f64 = 0.03;
/// Longest time for warming up: a share of the measuring time, and an absolute bound.
const WARM_UP_PART: f64 = 0.25;
const WARM_UP_MAX: Duration = Duration::from_secs(5);

/// The time for measuring arms, and the seed of their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns {
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

/// Elapsed time and processor time of a turn, without its preparation and evaluation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) elapsed: Duration,
    pub(crate) client_cpu: Option<Duration>,
    pub(crate) server_cpu: Option<Duration>,
    /// Operations of this process.
    pub(crate) io: Option<Io>,
}

/// The processes whose processor time counts beside this process's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Others<'a> {
    Nobody,
    Server(&'a Server),
    /// All descendants of this process.
    Descendants,
    /// A process whose time cannot be measured.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Start<'a> {
    others: Others<'a>,
    pub(crate) at: Instant,
    client_cpu: Option<Duration>,
    server_cpu: Option<Duration>,
    io: Option<Io>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) operations: u64,
    pub(crate) spent: Spent,
    /// Latencies in nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Further numbers of the arm, with their names.
    pub(crate) own: Vec<(&'static str, f64)>,
}

/// A turn that is being measured. One reading of the clock ends an operation and begins the
/// next.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    start: Start<'a>,
    last: Duration,
    block: Block,
}

/// The results of an arm over all of its turns.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) operations: u64,
    pub(crate) spent: Spent,
    /// Latencies in nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) turns: Vec<Turn>,
}

#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) rate: f64,
    /// Operations a second of processor time, of all processes.
    pub(crate) cpu_rate: Option<f64>,
    pub(crate) operations: u64,
    /// Operations of this process.
    pub(crate) io: Option<Io>,
    /// Median latency, in nanoseconds.
    pub(crate) p50: f64,
    /// Latency at the 99th percentile, in nanoseconds.
    pub(crate) p99: f64,
    pub(crate) own: Vec<(&'static str, f64)>,
}

impl Turn {
    pub(crate) fn own(&self, name: &str) -> Option<f64> {
        self.own.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    }
}

/// Fails after Ctrl-C, so that the benchmark ends without a report.
pub(crate) fn go_on(context: &Context) -> anyhow::Result<()> {
    anyhow::ensure!(!context.interrupt.requested(), "interrupted");
    Ok(())
}

/// A histogram of nanoseconds up to a minute. Longer times count as a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are allowed")
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Turns {
    pub(crate) fn blocks(self) -> usize {
        ((self.seconds / BLOCK.as_secs_f64()).ceil() as usize).max(BLOCKS_MIN)
    }

    pub(crate) fn block(self) -> Duration {
        Duration::from_secs_f64(self.seconds).div_f64(self.blocks() as f64)
    }

    pub(crate) fn rate(self, arm: &Measured) -> Option<Estimate> {
        let rates: Vec<f64> = arm.turns.iter().map(|turn| turn.rate).collect();
        Estimate::of(&rates, self.seed)
    }

    /// Most turns of an arm for warming up.
    fn warm_ups(self) -> usize {
        let time = Duration::from_secs_f64(self.seconds * WARM_UP_PART).min(WARM_UP_MAX);
        time.div_duration_f64(self.block()).ceil() as usize
    }

    /// Measures arms, each given by its name and a description of its operation. `turn` runs
    /// the arm with an index. The first round goes in the order of the arms and does not count:
    /// each arm has turns until it is warm. Fails after Ctrl-C.
    pub(crate) async fn measure(
        self,
        context: &Context,
        arms: impl IntoIterator<Item = (&'static str, &'static str)>,
        mut turn: impl AsyncFnMut(usize) -> anyhow::Result<Block>,
    ) -> anyhow::Result<Vec<Measured>> {
        let named = |(name, operation)| Measured::new(name, operation);
        let mut arms: Vec<Measured> = arms.into_iter().map(named).collect();
        let mut order: Vec<usize> = (0..arms.len()).collect();
        let mut random = SmallRng::seed_from_u64(self.seed);
        let rounds = self.blocks();
        let (mut step, steps) = (0, ((rounds + 1) * arms.len()) as u64);
        let progress = Progress::new(context.out.quiet, Some(steps));
        for round in 0..=rounds {
            if round > 0 {
                order.shuffle(&mut random);
            }
            for &arm in &order {
                go_on(context)?;
                progress.say(step, &format!("round {round} of {rounds}: {}", arms[arm].name));
                match round {
                    0 => self.warm(async || turn(arm).await).await?,
                    _ => arms[arm].add(&turn(arm).await?)?,
                }
                step += 1;
            }
        }
        progress.say(steps, "checking");
        Ok(arms)
    }

    async fn warm(
        self,
        mut turn: impl AsyncFnMut() -> anyhow::Result<Block>,
    ) -> anyhow::Result<()> {
        let mut before = None;
        for _ in 0..self.warm_ups() {
            let rate = turn().await?.rate();
            let is_warm = |before: f64| (rate - before).abs() <= before * WARM;
            if before.replace(rate).is_some_and(is_warm) {
                break;
            }
        }
        Ok(())
    }
}

impl<'a> Start<'a> {
    /// Starts measuring now. The processor time of `others` counts beside this process's.
    pub(crate) fn beside(others: Others<'a>) -> Self {
        let server_cpu = others.cpu();
        let io = system::io();
        let client_cpu = system::cpu_time();
        Start { others, at: Instant::now(), client_cpu, server_cpu, io }
    }

    pub(crate) fn spent(&self) -> Spent {
        let since = |now: Option<Duration>, before: Option<Duration>| {
            now.zip(before).map(|(now, before)| now.saturating_sub(before))
        };
        Spent {
            elapsed: self.at.elapsed(),
            client_cpu: since(system::cpu_time(), self.client_cpu),
            server_cpu: since(self.others.cpu(), self.server_cpu),
            io: system::io().zip(self.io).map(|(now, before)| now.since(before)),
        }
    }
}

impl<'a> Watch<'a> {
    pub(crate) fn start() -> Self {
        Watch::beside(Others::Nobody)
    }

    /// Starts a turn. The processor time of `others` counts beside this process's.
    pub(crate) fn beside(others: Others<'a>) -> Self {
        let block = Block::new(0, Spent::default());
        Watch { start: Start::beside(others), last: Duration::ZERO, block }
    }

    pub(crate) fn since(&self) -> Instant {
        self.start.at
    }

    /// True if another operation may begin in a turn of this length.
    pub(crate) fn goes_on(&self, length: Duration) -> bool {
        self.last < length
    }

    /// Notes that this many operations have ended together, each with its share of the time,
    /// and that the next one begins.
    pub(crate) fn lap(&mut self, operations: usize) {
        let now = self.start.at.elapsed();
        let each = nanos((now - self.last).div_f64(operations as f64));
        self.block.latencies.saturating_record_n(each, operations as u64);
        self.block.operations += operations as u64;
        self.last = now;
    }

    /// Notes an operation that was timed by another clock.
    pub(crate) fn note(&mut self, nanos: u64) {
        self.block.latencies.saturating_record(nanos);
        self.block.operations += 1;
        self.last = self.start.at.elapsed();
    }

    pub(crate) fn stop(self) -> Block {
        Block { spent: self.start.spent(), ..self.block }
    }
}

impl Others<'_> {
    fn cpu(self) -> Option<Duration> {
        match self {
            Others::Nobody => Some(Duration::ZERO),
            Others::Server(server) => server.cpu_time(),
            Others::Descendants => system::descendants_cpu(),
            Others::Unknown => None,
        }
    }
}

impl Block {
    /// Creates a block with this many operations, whose latencies are added later.
    pub(crate) fn new(operations: u64, spent: Spent) -> Self {
        Block { operations, spent, latencies: histogram(), own: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &'static str, number: f64) -> Self {
        self.own.push((name, number));
        self
    }

    fn rate(&self) -> f64 {
        self.operations as f64 / self.spent.elapsed.as_secs_f64()
    }
}

impl Spent {
    pub(crate) fn cpu(&self) -> Option<Duration> {
        Some(self.client_cpu? + self.server_cpu?)
    }
}

impl Measured {
    pub(crate) fn new(name: &'static str, operation: &'static str) -> Self {
        let nothing = Some(Duration::ZERO);
        Measured {
            name,
            operation,
            operations: 0,
            spent: Spent {
                elapsed: Duration::ZERO,
                client_cpu: nothing,
                server_cpu: nothing,
                io: Some(Io::default()),
            },
            latencies: histogram(),
            turns: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, block: &Block) -> anyhow::Result<()> {
        let sum = |all: &mut Option<Duration>, one: Option<Duration>| {
            *all = all.zip(one).map(|(all, one)| all + one);
        };
        self.operations += block.operations;
        self.spent.elapsed += block.spent.elapsed;
        sum(&mut self.spent.client_cpu, block.spent.client_cpu);
        sum(&mut self.spent.server_cpu, block.spent.server_cpu);
        self.spent.io = self.spent.io.zip(block.spent.io).map(|(all, one)| all.plus(one));
        self.latencies.add(&block.latencies)?;
        let operations = block.operations as f64;
        let quantile = |quantile| block.latencies.value_at_quantile(quantile) as f64;
        let cpu_rate = block.spent.cpu().map(|cpu| operations / cpu.as_secs_f64());
        self.turns.push(Turn {
            rate: block.rate(),
            cpu_rate: cpu_rate.filter(|rate| rate.is_finite()),
            operations: block.operations,
            io: block.spent.io,
            p50: quantile(0.5),
            p99: quantile(0.99),
            own: block.own.clone(),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of half-second blocks with these rates that an arm gets until it is warm.
    async fn blocks(turns: Turns, rates: &[u64]) -> usize {
        let mut given = 0;
        let turn = async || {
            let elapsed = Duration::from_millis(500);
            given += 1;
            let spent = Spent { elapsed, ..Spent::default() };
            Ok(Block::new(rates[given - 1] / 2, spent))
        };
        turns.warm(turn).await.unwrap();
        given
    }

    #[tokio::test]
    async fn an_arm_is_warm_when_two_blocks_agree_or_its_time_is_over() {
        let full = Turns { seconds: 20.0, seed: 1 };
        assert_eq!((full.block().as_millis(), full.warm_ups()), (500, 10));
        assert_eq!(blocks(full, &[1000, 1500, 1900, 2000, 2050, 1]).await, 5);
        assert_eq!(blocks(full, &[2000, 1950]).await, 2);
        let restless = [1000, 2000].repeat(10);
        assert_eq!(blocks(full, &restless).await, 10);
        assert_eq!(blocks(Turns { seconds: 60.0, seed: 1 }, &restless).await, 10);
        assert_eq!(blocks(Turns { seconds: 2.0, seed: 1 }, &restless).await, 3);
        assert_eq!(blocks(full, &[0; 2]).await, 2, "nothing done is no reason to wait");
    }
}
