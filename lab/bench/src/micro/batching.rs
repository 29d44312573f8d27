//! Measures delayed lock operations and reads, so that those of several transactions go in one
//! request (paper section 2.5), over a network.
//!
//! ```text
//!   delay_N   begin, get, set, commit on one cell at random, by many callers of one client whose
//!             reads, prewrites and commits each wait N ms for others
//! ```
//!
//! The table server is a process of its own; the oracle is in this one. Every transaction adds
//! one to its cell, so the sum over all cells shows whether each commit took effect once.

use std::sync::Arc;
use std::time::Duration;

use bigtable_grpc::{Address, ClientOptions, GrpcStore};
use clap::Args;
use percolator::runtime::Services;
use percolator::{Client, Options, Percolator, Table};
use percolator_cli::context::Context;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::bed::{COLUMN, cell, key, number};
use crate::callers::{AsyncCaller, call, committed};
use crate::fig8::CELLS_MAX;
use crate::flags::{Measure, within};
use crate::plot::{Axis, Plot, Role, Unit};
use crate::report::{Condition, PLEASE_REPORT, Report, Row, arm, figures, own, p50, rate, ratio};
use crate::server::Server;
use crate::statistics::Estimate;
use crate::turns::{Block, Measured, Others};

/// All arms, with their delays in milliseconds.
const ARMS: [(&str, u64, &str); 4] = [
    ("delay_0", 0, "begin, get, set, commit"),
    ("delay_1", 1, "the same; reads and lock requests wait 1 ms for others"),
    ("delay_10", 10, "the same; they wait 10 ms"),
    ("delay_100", 100, "the same; they wait 100 ms"),
];
/// Reads in flight during the check at the end.
const CHECKS_AT_ONCE: usize = 64;
/// Largest share of requests with a delay of 10 ms, compared with none. Without gathered reads
/// it would be at least a third.
const REQUESTS: f64 = 0.25;

/// Reads and lock requests that wait up to 100 ms for others, against a table server over
/// loopback.
///
/// The benchmark measures requests, latency, conflicts and throughput at delays of 0, 1, 10
/// and 100 ms. The server is a process of its own, and the oracle is in this one. The arms
/// take turns in blocks of half a second, in an order drawn from the seed. At the end every
/// cell is read. The exit status is 3 unless all cells together hold as many commits as there
/// were.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench micro batching --quick --out results
  percolator-bench micro batching --callers 1000 --json")]
pub(crate) struct Batching {
    #[command(flatten)]
    pub(crate) measure: Measure,
    /// The number of callers of the client.
    #[arg(long, value_name = "N", default_value_t = 256)]
    callers: usize,
    /// The number of cells; with few cells transactions conflict.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    cells: usize,
}

/// A client whose requests wait for others.
#[derive(Debug)]
struct Waiting {
    store: Arc<GrpcStore>,
    client: Client,
    table: Table,
}

impl Waiting {
    async fn open(address: &Address, db: &Percolator, ms: u64) -> anyhow::Result<Self> {
        let batch_delay = Duration::from_millis(ms);
        let options = ClientOptions { batch_delay, ..ClientOptions::default() };
        let store = Arc::new(GrpcStore::open(address, options).await?);
        let services = Services { store: store.clone(), ..db.services().clone() };
        let client = Client::open(services, Options::default()).await?;
        let table = client.table("cells").await?;
        Ok(Waiting { store, client, table })
    }

    /// Runs one turn. Its own numbers are requests per committed transaction, split into reads
    /// and others, and the share of conflicts among the attempts.
    async fn turn(
        &self,
        server: &Server,
        (callers, cells): (usize, usize),
        length: Duration,
        seed: u64,
    ) -> anyhow::Result<Block> {
        let sent = || (self.store.requests_sent(), self.store.reads_sent());
        let before = sent();
        let adder = |number: usize| Adder {
            random: SmallRng::seed_from_u64(seed.wrapping_add(number as u64)),
            client: self.client.clone(),
            table: self.table.clone(),
            cells,
        };
        let called = call(Others::Server(server), (0..callers).map(adder), length).await?;
        let after = sent();
        let (requests, reads) = (after.0 - before.0, after.1 - before.1);
        let committed = called.block.operations.max(1) as f64;
        let conflicts = called.conflicts();
        let block = called.block.with("requests", requests as f64 / committed);
        let block = block.with("reads", reads as f64 / committed);
        let block = block.with("mutations", requests.saturating_sub(reads) as f64 / committed);
        Ok(block.with("conflicts", conflicts))
    }
}

struct Adder {
    client: Client,
    table: Table,
    cells: usize,
    random: SmallRng,
}

impl AsyncCaller for Adder {
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        let row = key(self.random.random_range(0..self.cells));
        let mut tx = self.client.begin().await?;
        // If another transaction's lock makes the read fail, that is a conflict as well.
        let count = match tx.get(&self.table, row.clone(), &COLUMN).await {
            Ok(count) => number(count.as_deref()) + 1,
            Err(error) => return committed::<()>(Err(error)),
        };
        tx.set(&self.table, row, &COLUMN, cell(count))?;
        committed(tx.commit().await)
    }
}

impl Batching {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let Batching { callers, cells, .. } = *self;
        within("callers", callers, 1..=10_000)?;
        within("cells", cells, 1..=CELLS_MAX)?;
        let turns = self.measure.turns(10.0)?;
        let server = Server::start("table", &["--durability", "buffered"])?;
        let address: Address = format!("bigtable://{}/bench/batching", server.address()).parse()?;
        let store = Arc::new(GrpcStore::open(&address, ClientOptions::default()).await?);
        let db = Percolator::over(store, Options::default()).await?;
        let mut clients = Vec::new();
        for (_, ms, _) in ARMS {
            clients.push(Waiting::open(&address, &db, ms).await?);
        }
        let mut random = SmallRng::seed_from_u64(turns.seed);
        let mut committed = 0;
        let turn = async |at: usize| {
            let (client, seed) = (&clients[at], random.random());
            let block = client.turn(&server, (callers, cells), turns.block(), seed).await?;
            committed += block.operations;
            Ok(block)
        };
        let arms = ARMS.map(|(name, _, operation)| (name, operation));
        let arms = turns.measure(context, arms, turn).await?;
        let held = sum(&db, cells).await?;
        let found = format!("{committed} commits, {held} counted");
        let condition = Condition::new("every commit took effect once", held == committed, found);
        let settings = json!({
            "callers": callers,
            "cells": cells,
            "durability": "buffered",
            "processes": "one table server, one client with its oracle",
        });
        let figures = figures(turns, &arms, &rows());
        let report = Report::of_arms("batching", settings, turns, &arms, figures);
        let plot = plot(callers, turns.seed, &arms);
        Ok(report.conditions(&[condition], PLEASE_REPORT).plot("batching.svg", plot))
    }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, ms, _) in ARMS {
        rows.extend([
            own(name, ": requests for a transaction", |turn| turn.own("requests")),
            own(name, ": reads for a transaction", |turn| turn.own("reads")),
            own(name, ": mutations for a transaction", |turn| turn.own("mutations")),
            own(name, ": conflicts of attempts", |turn| turn.own("conflicts")),
        ]);
        if ms > 0 {
            let requests = ratio(name, "delay_0", " requests", |turn| turn.own("requests"));
            rows.push(if ms == 10 { requests.at_most(REQUESTS) } else { requests });
            rows.extend([rate(name, "delay_0"), p50(name, "delay_0")]);
        }
    }
    rows
}

async fn sum(db: &Percolator, cells: usize) -> anyhow::Result<u64> {
    let table = db.table("cells").await?;
    let snapshot = db.snapshot().await?;
    let all: Vec<usize> = (0..cells).collect();
    let mut sum = 0;
    for some in all.chunks(CHECKS_AT_ONCE) {
        let (snapshot, table) = (&snapshot, &table);
        let reads = some.iter().map(async |cell| snapshot.get(table, key(*cell), &COLUMN).await);
        let values = futures::future::try_join_all(reads).await?;
        sum += values.iter().map(|value| number(value.as_deref())).sum::<u64>();
    }
    Ok(sum)
}

fn plot(callers: usize, seed: u64, arms: &[Measured]) -> String {
    let of = |what: &'static str| {
        ARMS.iter().map(move |(name, ..)| {
            let turns = arm(arms, name)?.turns.iter();
            let each: Vec<f64> = turns.filter_map(|turn| turn.own(what)).collect();
            Estimate::of(&each, seed)
        })
    };
    let title = "Requests for a transaction on one cell, by how long each waits for others";
    let subtitle = format!(
        "Over loopback, {callers} callers of one client. The read, the prewrite and the commit \
         each go with those of other transactions."
    );
    let groups = ARMS.iter().map(|(_, ms, _)| format!("{ms} ms"));
    Plot::groups(groups, Axis::linear("requests", Unit::Plain), title, subtitle)
        .bars("reads", Role::Ours(0), of("reads"))
        .bars("prewrites and commits", Role::Ours(1), of("mutations"))
        .svg()
}
