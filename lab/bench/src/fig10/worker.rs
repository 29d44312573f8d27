//! Runs a worker of `percolator-bench fig10`: a process that drives the brokerage at its
//! capacity, with customers and a market of its own. Requests are lines of JSON on stdin. Only
//! the last has an answer.
//!
//! ```text
//! {"pace": "free"}      as fast as it goes
//! {"pace": RATE}        RATE transactions a second: the capacity of this process
//! {"pace": "halt"}      none
//! {"end": true}         finishes the current transactions; the answer is a report
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bigtable_grpc::ClientOptions;
use clap::Args;
use percolator::Percolator;
use percolator::cluster::{Cluster, Locks, StoreAddress};
use serde_json::{Value, json};
use tpce::{Exchange, Log, Pace, Pacer, Scale, Seat};

use crate::processes::{requests, say};
use crate::system::shared_clock;

/// Transactions of a worker in flight: locks hold some of them up, and the others must still
/// reach its capacity.
const CLIENTS: usize = 8;

/// Time after the death of a process until others take it for dead. From then on its locks can
/// be resolved. A live process renews its token three times in this time.
pub(super) const LIFETIME: Duration = Duration::from_secs(2);

pub(super) async fn connect(
    store: &str,
    oracle: &str,
    lifetime: Duration,
) -> anyhow::Result<Percolator> {
    let store = StoreAddress::from_env(store)?.open(ClientOptions::default()).await?;
    let cluster =
        Cluster { gc: None, locks: Locks::table(lifetime), ..Cluster::new(vec![oracle.parse()?]) };
    Ok(Percolator::connect(store, cluster).await?)
}

/// Drive the brokerage of `percolator-bench fig10`; requests come on stdin, answers go to stdout.
#[derive(Debug, Args)]
pub(crate) struct Fig10Worker {
    /// The store's URL.
    #[arg(long)]
    store: String,
    /// Milliseconds after the death of a process until others take it for dead.
    #[arg(long)]
    lifetime_ms: u64,
    /// The address of the oracle.
    #[arg(long)]
    oracle: String,
    #[arg(long)]
    customers: u64,
    #[arg(long)]
    seed: u64,
    /// The number of the worker.
    #[arg(long)]
    number: u64,
    /// The number of requests that customers have made of an earlier worker so far.
    #[arg(long)]
    made: u64,
    /// A file that does not exist yet.
    #[arg(long)]
    log: PathBuf,
}

impl Fig10Worker {
    /// Works until a request ends it, or until it is killed.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let mut requests = requests();
        let log = Log::create(&self.log, shared_clock)?;
        let db =
            connect(&self.store, &self.oracle, Duration::from_millis(self.lifetime_ms)).await?;
        let scale = Scale::new(self.customers, self.seed);
        let seat = Seat { number: self.number, made: self.made, log };
        let exchange = Exchange::join(db, scale, seat).await?;
        let pacer = Arc::new(Pacer::default());
        let mut work = tokio::spawn({
            let pacer = pacer.clone();
            async move { exchange.paced(CLIENTS, pacer).await }
        });
        say(&json!({ "ready": true }))?;
        loop {
            let line = tokio::select! {
                line = requests.recv() => line,
                failed = &mut work => {
                    failed??;
                    anyhow::bail!("the clients ended before they were asked to");
                }
            };
            // The starting process is gone, so there is no more work.
            let Some(line) = line else { return Ok(()) };
            let request: Value =
                serde_json::from_str(&line).context("reading a request on stdin")?;
            match (&request["pace"], request["pace"].as_f64()) {
                (_, Some(rate)) => pacer.set(Pace::PerSecond(rate)),
                (Value::String(pace), _) if pace == "free" => pacer.set(Pace::Free),
                (Value::String(_), _) => pacer.set(Pace::Halt),
                _ => break,
            }
        }
        pacer.set(Pace::End);
        let report = work.await??;
        let retries = tpce::TransactionType::ALL.into_iter().map(|kind| report.of(kind).retries);
        Ok(say(&json!({
            "transactions": report.total(),
            "trade_results": report.trade_results(),
            "conflicts": report.conflicts(),
            "retries": retries.sum::<u64>(),
        }))?)
    }
}
