//! Lock operations and reads that are delayed so that those of several transactions go in one
//! request (paper section 2.5), over a network.
//!
//! ```text
//!   delay_N   begin, get, set, commit on one cell at random, by many callers of one client whose
//!             reads, prewrites and commits each wait N ms for others
//! ```
//!
//! The table server is a process of its own, the oracle is in this one. Every transaction adds one
//! to its cell, so that the sum over all cells tells whether each commit took effect once.

mod report;

use std::sync::Arc;
use std::time::Duration;

use bigtable_grpc::{Address, ClientOptions, GrpcStore};
use percolator::runtime::Services;
use percolator::{Client, Column, Options, Percolator, RowKey, Table};
use percolator_cli::context::Context;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::Turns;
use crate::callers::{AsyncCaller, call, committed, number};
use crate::findings::{Condition, Findings};
use crate::server::Server;
use crate::system::Load;
use crate::turns::{Block, Measured};

const COLUMN: Column = Column::literal("v");
/// All arms, with their delays in milliseconds.
const ARMS: [(&str, u64, &str); 4] = [
    ("delay_0", 0, "begin, get, set, commit"),
    ("delay_1", 1, "the same; reads and lock requests wait 1 ms for others"),
    ("delay_10", 10, "the same; they wait 10 ms"),
    ("delay_100", 100, "the same; they wait 100 ms"),
];
/// Reads in flight of the check at the end.
const CHECKS_AT_ONCE: usize = 64;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) turns: Turns,
    pub(crate) callers: usize,
    pub(crate) cells: usize,
}

/// A client whose requests wait.
#[derive(Debug)]
struct Arm {
    store: Arc<GrpcStore>,
    client: Client,
    table: Table,
    /// Requests for each transaction that committed, those of them that read and those that do not,
    /// and conflicts among the attempts, in each turn.
    requests: Vec<f64>,
    reads: Vec<f64>,
    mutations: Vec<f64>,
    conflicts: Vec<f64>,
}

fn row(cell: usize) -> RowKey {
    RowKey::from(format!("{cell:024}"))
}

impl Arm {
    async fn open(address: &Address, db: &Percolator, ms: u64) -> anyhow::Result<Self> {
        let batch_delay = Duration::from_millis(ms);
        let options = ClientOptions { batch_delay, ..ClientOptions::default() };
        let store = Arc::new(GrpcStore::open(address, options).await?);
        let services = Services { store: store.clone(), ..db.services().clone() };
        let client = Client::open(services, Options::default()).await?;
        let table = client.table("cells").await?;
        let [requests, reads, mutations, conflicts] = [const { Vec::new() }; 4];
        Ok(Arm { store, client, table, requests, reads, mutations, conflicts })
    }

    async fn block(
        &mut self,
        server: &Server,
        settings: Settings,
        seed: u64,
    ) -> anyhow::Result<Block> {
        let sent = || (self.store.requests_sent(), self.store.reads_sent());
        let before = sent();
        let caller = |number: usize| Adder {
            random: SmallRng::seed_from_u64(seed.wrapping_add(number as u64)),
            client: self.client.clone(),
            table: self.table.clone(),
            cells: settings.cells,
        };
        let (callers, length) = (settings.callers, settings.turns.block());
        let (block, attempts) = call(Some(server), callers, length, caller).await?;
        let after = sent();
        let (requests, reads) = (after.0 - before.0, after.1 - before.1);
        let committed = block.operations as f64;
        let each = |count: u64| count as f64 / committed.max(1.0);
        self.requests.push(each(requests));
        self.reads.push(each(reads));
        self.mutations.push(each(requests.saturating_sub(reads)));
        self.conflicts.push(1.0 - committed / attempts.max(1) as f64);
        Ok(block)
    }
}

/// Adds one to a cell at random.
struct Adder {
    client: Client,
    table: Table,
    cells: usize,
    random: SmallRng,
}

impl AsyncCaller for Adder {
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        let row = row(self.random.random_range(0..self.cells));
        let mut tx = self.client.begin().await?;
        // Another one's lock in the way of the read is a conflict as well.
        let count = match tx.get(&self.table, row.clone(), &COLUMN).await {
            Ok(count) => number(count.as_deref()) + 1,
            Err(error) => return committed::<()>(Err(error)),
        };
        tx.set(&self.table, row, &COLUMN, count.to_be_bytes().to_vec())?;
        committed(tx.commit().await)
    }
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: Settings) -> anyhow::Result<Option<Findings>> {
    let before = Load::now();
    let turns = settings.turns;
    let progress = turns.progress(context, ARMS.len());
    progress.say(0, "starting the table server");
    let server = Server::start("table", &["--durability", "buffered"])?;
    let address: Address = format!("bigtable://{}/bench/batching", server.address()).parse()?;
    let store = Arc::new(GrpcStore::open(&address, ClientOptions::default()).await?);
    let db = Percolator::over(store, Options::default()).await?;
    let mut clients = Vec::new();
    for (_, ms, _) in ARMS {
        clients.push(Arm::open(&address, &db, ms).await?);
    }
    let mut arms = ARMS.map(|(name, _, operation)| Measured::new(name, operation));
    let mut random = SmallRng::seed_from_u64(turns.seed);
    let mut committed = 0;
    let turn = async |at: usize| {
        let block = clients[at].block(&server, settings, random.random()).await?;
        committed += block.operations;
        Ok(block)
    };
    if !turns.take(context, &progress, &mut arms, turn).await? {
        return Ok(None);
    }
    let load = [before, Load::now()];
    let held = sum(&db, settings.cells).await?;
    let found = format!("{committed} commits, {held} counted");
    let condition = Condition::new("every commit took effect once", held == committed, found);
    Ok(Some(report::findings(settings, load, arms.into(), &clients, vec![condition])))
}

/// Of all cells.
async fn sum(db: &Percolator, cells: usize) -> anyhow::Result<u64> {
    let table = db.table("cells").await?;
    let snapshot = db.snapshot().await?;
    let all: Vec<usize> = (0..cells).collect();
    let mut sum = 0;
    for some in all.chunks(CHECKS_AT_ONCE) {
        let (snapshot, table) = (&snapshot, &table);
        let reads = some.iter().map(async |cell| snapshot.get(table, row(*cell), &COLUMN).await);
        let values = futures::future::try_join_all(reads).await?;
        sum += values.iter().map(|value| number(value.as_deref())).sum::<u64>();
    }
    Ok(sum)
}
