//! Drives one store in a process of its own: it loads a brokerage, answers requests for blocks,
//! and checks the books. Requests and answers are lines of JSON.
//!
//! ```text
//! {"closed": SECONDS, "name": ARM}   clients in a closed loop, counted under a name
//! {"open": RATE, "seconds": SECONDS} requests at a rate
//! {"end": true}                      checks, and the counts under each name
//! ```
//!
//! Processor time is that of this process, of every process that it started, and of those that
//! serve HBase.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bigtable_grpc::ClientOptions;
use clap::{Args, ValueEnum};
use percolator::cluster::{Cluster, StoreAddress};
use percolator::{Durability, OpenOptions, Percolator};
use serde_json::{Value, json};
use tpce::postgres;
use tpce::{Exchange, Report, Scale, TransactionType};

use crate::priority::go_before_all_others;
use crate::processes::{requests, say};
use crate::server::{ANY_PORT, Server};
use crate::system::{Spent, descendants_cpu};
use crate::turns::histogram;

/// Memory for blocks of the embedded store. PostgreSQL has four times as much.
const CACHE_BYTES: u64 = 128 << 20;

/// Divisor for the customers of the smaller brokerage, which shows the effect of size.
const SMALLER: u64 = 8;

/// A store that is driven by a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Store {
    /// In the driver's own process.
    Embedded,
    /// The same, with an eighth of the customers.
    Small,
    /// Served by other processes.
    Rpc,
    /// PostgreSQL.
    Postgres,
    /// HBase, where `--hbase` names it.
    Hbase,
}

impl Store {
    pub(super) fn name(self) -> &'static str {
        match self {
            Store::Embedded => "embedded",
            Store::Small => "small",
            Store::Rpc => "rpc",
            Store::Postgres => "postgres",
            Store::Hbase => "hbase",
        }
    }

    pub(super) fn customers(self, all: u64) -> u64 {
        match self {
            Store::Small => (all / SMALLER).max(tpce::CUSTOMERS_MIN),
            _ => all,
        }
    }
}

/// A brokerage in a store, with the processes that serve it.
struct Bed {
    exchange: Exchange,
    /// The processes that serve the store and were not started by this one.
    helpers: Vec<u32>,
    _servers: Vec<Server>,
    _postgres: Option<postgres::Server>,
}

/// Number of clients: enough to keep two cores busy, and over RPC to fill the batches of
/// requests.
fn clients(store: Store) -> usize {
    match store {
        Store::Embedded | Store::Small => 8,
        Store::Rpc | Store::Hbase => 64,
        Store::Postgres => 16,
    }
}

/// Drive one store of `percolator-bench fig9`; requests come on stdin, answers go to stdout.
#[derive(Debug, Args)]
pub(crate) struct Fig9Store {
    /// The store.
    #[arg(long, value_enum)]
    store: Store,
    #[arg(long)]
    customers: u64,
    #[arg(long)]
    seed: u64,
    /// An empty directory.
    #[arg(long)]
    data: PathBuf,
    /// The address of the store, if it is HBase.
    #[arg(long)]
    address: Option<String>,
    /// The processes that serve the store, if others have started them.
    #[arg(long)]
    process: Vec<u32>,
}

impl Fig9Store {
    /// Loads the brokerage, and answers requests until one ends it.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let started = Instant::now();
        let bed = self.load(Scale::new(self.customers, self.seed)).await?;
        say(&json!({ "loaded_s": started.elapsed().as_secs_f64() }))?;
        let mut totals = BTreeMap::<String, Report>::new();
        let mut requests = requests();
        while let Some(line) = requests.recv().await {
            let request: Value =
                serde_json::from_str(&line).context("reading a request on stdin")?;
            let number = |name: &str| request[name].as_f64();
            if let Some(seconds) = number("closed") {
                let spent = Spent::with(&bed.helpers);
                let length = Duration::from_secs_f64(seconds);
                let report = bed.exchange.closed(clients(self.store), length).await?;
                say(&block(&report, &spent))?;
                let name = request["name"].as_str().unwrap_or_default().to_owned();
                totals.entry(name).or_default().add(&report);
            } else if let (Some(rate), Some(seconds)) = (number("open"), number("seconds")) {
                // The requests are sent by a thread that this thread starts.
                go_before_all_others();
                let spent = Spent::with(&bed.helpers);
                match bed.exchange.open(rate, Duration::from_secs_f64(seconds)).await {
                    Ok(report) => say(&open(&report, rate, &spent)?)?,
                    // A saturated store has no meaningful latencies, so only this is reported.
                    Err(tpce::Error::Saturated { waiting }) => {
                        say(&json!({ "per_second": rate, "saturated": waiting }))?;
                    }
                    Err(error) => return Err(error.into()),
                }
            } else {
                let violations = bed.exchange.check().await?;
                let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
                let totals: BTreeMap<&String, Value> =
                    totals.iter().map(|(name, report)| (name, types(report))).collect();
                return Ok(say(&json!({ "violations": violations, "types": totals }))?);
            }
        }
        Ok(())
    }

    async fn load(&self, scale: Scale) -> anyhow::Result<Bed> {
        let data = &self.data;
        let (mut servers, mut postgres) = (Vec::new(), None);
        let exchange = match self.store {
            Store::Embedded | Store::Small => {
                let options = OpenOptions {
                    durability: Durability::Buffered,
                    cache_bytes: CACHE_BYTES,
                    ..OpenOptions::default()
                };
                Exchange::load(Percolator::open_with(data, options).await?, scale).await?
            }
            Store::Rpc => {
                let buffered = ["--durability", "buffered"];
                let table = Server::over(&data.join("table"), "table", ANY_PORT, &buffered)?;
                let address = format!("bigtable://{}/bench/fig9", table.address());
                servers.push(table);
                Exchange::load(connect(&address, data, &mut servers).await?, scale).await?
            }
            Store::Hbase => {
                let address = self.address.as_deref().context("HBase needs --address")?;
                Exchange::load(connect(address, data, &mut servers).await?, scale).await?
            }
            Store::Postgres => {
                let server =
                    postgres.insert(postgres::Server::start(data, postgres::Server::find()?)?);
                Exchange::load_postgres(server, scale).await?
            }
        };
        let helpers = self.process.clone();
        Ok(Bed { exchange, helpers, _servers: servers, _postgres: postgres })
    }
}

/// Connects to a store that other processes serve, with an oracle of its own.
async fn connect(
    address: &str,
    data: &Path,
    servers: &mut Vec<Server>,
) -> anyhow::Result<Percolator> {
    let store = StoreAddress::from_env(address)?.open(ClientOptions::default()).await?;
    let oracle = Server::over(&data.join("oracle"), "oracle", ANY_PORT, &[])?;
    let cluster = Cluster::new(vec![oracle.address().parse()?]);
    servers.push(oracle);
    Ok(Percolator::connect(store, Cluster { gc: None, ..cluster }).await?)
}

fn block(report: &Report, spent: &Spent) -> Value {
    json!({
        "seconds": report.elapsed.as_secs_f64(),
        "transactions": report.total(),
        "trade_results": report.trade_results(),
        "conflicts": report.conflicts(),
        "cpu_seconds": spent.seconds(),
        "servers_cpu_seconds": descendants_cpu().map(|cpu| cpu.as_secs_f64()),
    })
}

fn open(report: &Report, rate: f64, spent: &Spent) -> anyhow::Result<Value> {
    let mut answer = block(report, spent);
    let late = |quantile| report.lateness.value_at_quantile(quantile) as f64 / 1e6;
    let mut all = histogram();
    for kind in TransactionType::ALL {
        all.add(&report.of(kind).latencies)?;
    }
    for (name, quantile) in [("p50_ms", 0.5), ("p99_ms", 0.99)] {
        answer[name] = json!(all.value_at_quantile(quantile) as f64 / 1e6);
    }
    answer["per_second"] = json!(rate);
    answer["lateness_p50_ms"] = json!(late(0.5));
    answer["lateness_p99_ms"] = json!(late(0.99));
    answer["lateness_max_ms"] = json!(report.lateness.max() as f64 / 1e6);
    answer["types"] = types(report);
    Ok(answer)
}

/// Latencies, conflicts and reads by type of transaction.
fn types(report: &Report) -> Value {
    let of = |kind: TransactionType| {
        let report = report.of(kind);
        let ms = |quantile| report.latencies.value_at_quantile(quantile) as f64 / 1e6;
        let each = |count: u64| count as f64 / report.done.max(1) as f64;
        json!({
            "name": kind.name(),
            "done": report.done,
            "conflicts": report.conflicts,
            "retries": report.retries,
            "p50_ms": ms(0.5),
            "p95_ms": ms(0.95),
            "p99_ms": ms(0.99),
            "max_ms": report.latencies.max() as f64 / 1e6,
            "gets": each(report.reads.gets),
            "scans": each(report.reads.scans),
            "cells_scanned": each(report.reads.scanned),
            "cells_written": each(report.reads.writes),
        })
    };
    TransactionType::ALL.into_iter().map(of).collect()
}
