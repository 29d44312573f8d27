//! Runs small benchmarks, each of one mechanism: the arms of `percolator-bench micro`.
//!
//! ```text
//!   batching    requests that wait for those of other transactions
//!   churn       updates at a fixed rate, for long, beside the engine and SQLite
//!   grow        single operations as the store grows, beside the engine and SQLite
//!   large_txn   large transactions, and many at once
//!   notify      the delay and the rate of observers' runs
//!   oracle      timestamps, batched and not
//!   prefetch    counts reads; nothing is timed
//!   resolve     locks that dead clients left
//!   rpc         transactions against the requests that they consist of
//!   scan        scans of snapshots, and of notifications
//!   bed         stores, keys and values that they share
//! ```

mod batching;
pub(crate) mod bed;
pub(crate) mod churn;
pub(crate) mod grow;
pub(crate) mod large_txn;
mod notify;
mod oracle;
mod prefetch;
mod resolve;
mod rpc;
mod scan;

use clap::Subcommand;
use percolator_cli::context::Context;
use percolator_cli::exit::Exit;

use crate::flags::run;

/// Small benchmarks, each of one mechanism.
#[derive(Debug, Subcommand)]
pub(crate) enum Arm {
    Batching(batching::Batching),
    Churn(churn::Churn),
    Grow(grow::Grow),
    LargeTxn(large_txn::LargeTxn),
    Notify(notify::Notify),
    Oracle(oracle::Oracle),
    Prefetch(prefetch::Prefetch),
    Resolve(resolve::Resolve),
    Rpc(rpc::Rpc),
    Scan(scan::Scan),
}

pub(crate) fn names() -> Vec<String> {
    let command = Arm::augment_subcommands(clap::Command::new("micro"));
    command.get_subcommands().map(|arm| arm.get_name().to_owned()).collect()
}

impl Arm {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Arm::Batching(it) => run(context, &it.measure.common, it.measure(context)).await,
            Arm::Churn(it) => run(context, &it.common, it.measure(context)).await,
            Arm::Grow(it) => run(context, &it.common, it.measure(context)).await,
            Arm::LargeTxn(it) => run(context, &it.measure.common, it.measure(context)).await,
            Arm::Notify(it) => run(context, &it.measure.common, it.measure(context)).await,
            Arm::Oracle(it) => run(context, &it.measure.common, it.measure(context)).await,
            Arm::Prefetch(it) => run(context, &it.common, it.measure()).await,
            Arm::Resolve(it) => run(context, &it.measure.common, it.measure(context)).await,
            Arm::Rpc(it) => run(context, &it.measure.common, it.measure(context)).await,
            Arm::Scan(it) => run(context, &it.measure.common, it.measure(context)).await,
        }
    }
}
