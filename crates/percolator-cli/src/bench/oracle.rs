//! The timestamp oracle, measured: what batching gives, and what it costs in time.
//!
//! ```text
//!   echo       one message to and fro over loopback, and nothing else: what a round trip takes
//!   unbatched  one caller, one request for each timestamp
//!   batched    many callers, as fast as it goes; one request in flight
//!   half_load  callers that come at half that rate, whether or not they are served
//! ```
//!
//! The server is a process of its own, the clients are this one. The arms take turns; every timestamp that
//! was handed out is marked, and none may be met twice or below one that was there before.

mod arms;
mod marks;
mod report;
mod server;

pub(crate) use report::{json, print};

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use percolator_rpc::oracle::{RemoteOracle, RemoteOracleOptions};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use crate::bench::system;
use crate::cmd::Context;
use crate::progress::Progress;

use arms::{Spent, Start};
use marks::Marks;
use server::Server;

/// How long one arm runs before it is the next one's turn.
const BLOCK: Duration = Duration::from_millis(500);

/// How it is measured.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) callers: usize,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

impl Settings {
    fn blocks(&self) -> usize {
        ((self.seconds / BLOCK.as_secs_f64()).ceil() as usize).max(1)
    }

    fn block(&self) -> Duration {
        Duration::from_secs_f64(self.seconds).div_f64(self.blocks() as f64)
    }
}

/// What is done over and over in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    Echo,
    Unbatched,
    Batched,
    HalfLoad,
}

impl Arm {
    const ALL: [Arm; 4] = [Arm::Echo, Arm::Unbatched, Arm::Batched, Arm::HalfLoad];

    fn name(self) -> &'static str {
        match self {
            Arm::Echo => "echo",
            Arm::Unbatched => "unbatched",
            Arm::Batched => "batched",
            Arm::HalfLoad => "half_load",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Arm::Echo => "32 bytes to and fro over loopback TCP",
            Arm::Unbatched => "a timestamp for the only caller",
            Arm::Batched => "a timestamp for one of many callers",
            Arm::HalfLoad => "a timestamp at half the rate of `batched`, from when it was due",
        }
    }
}

/// One turn of an arm, or all of them.
#[derive(Debug)]
pub(crate) struct Block {
    operations: u64,
    elapsed: Duration,
    client_cpu: Option<Duration>,
    server_cpu: Option<Duration>,
    /// In nanoseconds.
    latencies: Histogram<u64>,
}

/// What an arm did.
#[derive(Debug)]
pub(crate) struct Measured {
    arm: Arm,
    all: Block,
    /// Operations a second, and the 99th percentile of nanoseconds, of each turn.
    turns: Vec<(f64, f64)>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    arms: Vec<Measured>,
    load: [Option<f64>; 2],
    /// How many timestamps were handed out.
    timestamps: u64,
    /// How many of them twice, or backwards.
    pub(crate) wrong: u64,
}

impl Outcome {
    fn arm(&self, arm: Arm) -> &Measured {
        let found = self.arms.iter().find(|measured| measured.arm == arm);
        found.expect("every arm is measured")
    }
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: &Settings) -> anyhow::Result<Option<Outcome>> {
    let before = system::load();
    let rounds = settings.blocks();
    let progress = Progress::new(context.out.quiet, Some(((rounds + 1) * Arm::ALL.len()) as u64));
    progress.say(0, "starting the server");
    let server = Server::start()?;
    let addresses = vec![server.address().clone()];
    let oracle = Arc::new(RemoteOracle::new(addresses, RemoteOracleOptions::default())?);
    let mut marks = Marks::default();
    let mut arms: Vec<Measured> = Arm::ALL.into_iter().map(Measured::new).collect();
    let mut order: Vec<usize> = (0..arms.len()).collect();
    let mut random = SmallRng::seed_from_u64(settings.seed);
    // Of the warming round, until there are others.
    let mut rate = 100_000.0;
    let mut turn = 0;
    for round in 0..=rounds {
        if round > 0 {
            order.shuffle(&mut random);
        }
        for &i in &order {
            if context.interrupt.requested() {
                return Ok(None);
            }
            let arm = arms[i].arm;
            progress.say(turn, &format!("round {round} of {rounds}: {}", arm.name()));
            let start = Start::of(&server);
            let done = arms::turn(arm, &oracle, settings, rate / 2.0, start).await?;
            marks.add(&done.timestamps);
            let (operations, latencies) = (done.operations, done.latencies);
            let Spent { elapsed, client_cpu, server_cpu } = done.spent;
            let block = Block { operations, elapsed, client_cpu, server_cpu, latencies };
            if round > 0 {
                arms[i].add(&block)?;
            }
            if arm == Arm::Batched {
                rate = operations as f64 / elapsed.as_secs_f64();
            }
            turn += 1;
        }
    }
    let load = [before, system::load()];
    Ok(Some(Outcome { arms, load, timestamps: marks.count(), wrong: marks.wrong() }))
}

/// Of nanoseconds up to a minute; what is longer counts as a minute.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("these bounds are allowed")
}

impl Measured {
    fn new(arm: Arm) -> Self {
        let all = Block {
            operations: 0,
            elapsed: Duration::ZERO,
            client_cpu: Some(Duration::ZERO),
            server_cpu: Some(Duration::ZERO),
            latencies: histogram(),
        };
        Measured { arm, all, turns: Vec::new() }
    }

    fn add(&mut self, block: &Block) -> anyhow::Result<()> {
        let sum = |all: Option<Duration>, one| all.zip(one).map(|(all, one)| all + one);
        self.all.operations += block.operations;
        self.all.elapsed += block.elapsed;
        self.all.client_cpu = sum(self.all.client_cpu, block.client_cpu);
        self.all.server_cpu = sum(self.all.server_cpu, block.server_cpu);
        self.all.latencies.add(&block.latencies)?;
        let rate = block.operations as f64 / block.elapsed.as_secs_f64();
        self.turns.push((rate, block.latencies.value_at_quantile(0.99) as f64));
        Ok(())
    }
}
