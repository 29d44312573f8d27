//! Arms take turns, and what they did in each.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::bench::server::Server;
use crate::bench::system::{self, Io};
use crate::cmd::Context;
use crate::progress::Progress;

/// How long one arm runs at most before it is the next one's turn, and how often it is its turn at least: a
/// median of fewer, and its interval, say little.
const BLOCK: Duration = Duration::from_millis(500);
const BLOCKS_MIN: usize = 10;

/// How long arms are measured, and in which order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns {
    /// Of each arm.
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

/// Processor time and time of a turn, without its preparation and evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) elapsed: Duration,
    pub(crate) client_cpu: Option<Duration>,
    pub(crate) server_cpu: Option<Duration>,
    /// By this process.
    pub(crate) io: Option<Io>,
}

/// Whose processor time counts beside that of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Others<'a> {
    Nobody,
    Server(&'a Server),
    /// Every process that comes from this one.
    Descendants,
    /// Somebody's who cannot be asked.
    Unknown,
}

/// The beginning of a turn.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    others: Others<'a>,
    at: Instant,
    client_cpu: Option<Duration>,
    server_cpu: Option<Duration>,
    io: Option<Io>,
}

/// One turn of an arm.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) operations: u64,
    pub(crate) spent: Spent,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
}

/// What an arm did in all of its turns.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    /// What one operation of it does.
    pub(crate) operation: &'static str,
    pub(crate) operations: u64,
    pub(crate) spent: Spent,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    pub(crate) turns: Vec<Turn>,
}

/// The figures of one turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// Operations a second.
    pub(crate) rate: f64,
    /// Operations a second of processor time, of all processes.
    pub(crate) cpu_rate: Option<f64>,
    pub(crate) operations: u64,
    /// By this process.
    pub(crate) io: Option<Io>,
    /// In nanoseconds.
    pub(crate) p50: f64,
    /// In nanoseconds.
    pub(crate) p99: f64,
}

/// Of nanoseconds up to a minute; what is longer counts as a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are allowed")
}

/// Nanoseconds, as histograms take them.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Turns {
    /// How many turns each arm has.
    pub(crate) fn blocks(self) -> usize {
        ((self.seconds / BLOCK.as_secs_f64()).ceil() as usize).max(BLOCKS_MIN)
    }

    /// The length of a turn.
    pub(crate) fn block(self) -> Duration {
        Duration::from_secs_f64(self.seconds).div_f64(self.blocks() as f64)
    }

    /// Progress towards the end of all turns of so many arms.
    pub(crate) fn progress(self, context: &Context, arms: usize) -> Progress {
        Progress::new(context.out.quiet, Some(self.steps(arms)))
    }

    fn steps(self, arms: usize) -> u64 {
        ((self.blocks() + 1) * arms) as u64
    }

    /// Lets the arms take turns: `turn` is given the index of the arm. The first round warms up, goes by
    /// the order of the arms, and does not count. Returns `false` after Ctrl-C.
    pub(crate) async fn take(
        self,
        context: &Context,
        progress: &Progress,
        arms: &mut [Measured],
        mut turn: impl AsyncFnMut(usize) -> anyhow::Result<Block>,
    ) -> anyhow::Result<bool> {
        let mut order: Vec<usize> = (0..arms.len()).collect();
        let mut random = SmallRng::seed_from_u64(self.seed);
        let (rounds, mut step) = (self.blocks(), 0);
        for round in 0..=rounds {
            if round > 0 {
                order.shuffle(&mut random);
            }
            for &arm in &order {
                if context.interrupt.requested() {
                    return Ok(false);
                }
                progress.say(step, &format!("round {round} of {rounds}: {}", arms[arm].name));
                let block = turn(arm).await?;
                if round > 0 {
                    arms[arm].add(&block)?;
                }
                step += 1;
            }
        }
        progress.say(self.steps(arms.len()), "checking");
        Ok(true)
    }
}

impl<'a> Start<'a> {
    /// Now; `server` is the process whose processor time counts beside this one's.
    pub(crate) fn now(server: Option<&'a Server>) -> Self {
        Start::beside(server.map_or(Others::Nobody, Others::Server))
    }

    /// Now; the processor time of these counts beside this process's.
    pub(crate) fn beside(others: Others<'a>) -> Self {
        let server_cpu = others.cpu();
        let io = system::io();
        let client_cpu = system::cpu_time();
        Start { others, at: Instant::now(), client_cpu, server_cpu, io }
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// What was spent since.
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

impl Spent {
    /// Of all processes.
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

    /// Adds a turn.
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
            rate: operations / block.spent.elapsed.as_secs_f64(),
            cpu_rate: cpu_rate.filter(|rate| rate.is_finite()),
            operations: block.operations,
            io: block.spent.io,
            p50: quantile(0.5),
            p99: quantile(0.99),
        });
        Ok(())
    }
}
