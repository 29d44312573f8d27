//! Runs small benchmarks, each of one mechanism: the arms of `percolator-bench micro`.
//!
//! ```text
//!   batching    requests that wait for those of other transactions
//!   churn       updates at a fixed rate, for long
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
mod churn;
pub(crate) mod large_txn;
mod notify;
mod oracle;
mod prefetch;
mod resolve;
mod rpc;
mod scan;

use std::process::Stdio;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use percolator_cli::context::Context;
use percolator_cli::exit::Exit;

use crate::flags::{Common, run};
use crate::processes::own_program;

/// Small benchmarks, each of one mechanism: one that is named, or all of them.
///
/// Without a name each runs in a process of its own, one after another, with its own defaults.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  percolator-bench micro --quick --out results
  percolator-bench micro scan --quick --out results
  percolator-bench micro oracle --callers 2000 --json"
)]
pub(crate) struct Micro {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    arm: Option<Arm>,
}

/// The small benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum Arm {
    Batching(batching::Batching),
    Churn(churn::Churn),
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

impl Micro {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match &self.arm {
            None => self.all(context),
            Some(Arm::Batching(it)) => run(context, &it.measure.common, it.measure(context)).await,
            Some(Arm::Churn(it)) => run(context, &it.common, it.measure(context)).await,
            Some(Arm::LargeTxn(it)) => run(context, &it.measure.common, it.measure(context)).await,
            Some(Arm::Notify(it)) => run(context, &it.measure.common, it.measure(context)).await,
            Some(Arm::Oracle(it)) => run(context, &it.measure.common, it.measure(context)).await,
            Some(Arm::Prefetch(it)) => run(context, &it.common, it.measure()).await,
            Some(Arm::Resolve(it)) => run(context, &it.measure.common, it.measure(context)).await,
            Some(Arm::Rpc(it)) => run(context, &it.measure.common, it.measure(context)).await,
            Some(Arm::Scan(it)) => run(context, &it.measure.common, it.measure(context)).await,
        }
    }

    /// Runs all of them. The exit status is that of the first that fails.
    fn all(&self, context: &Context) -> anyhow::Result<Exit> {
        let mut first = Exit::Done;
        for name in names() {
            context.out.note(&name);
            let mut arm = own_program()?;
            arm.args(["micro", &name, "--seed", &self.common.seed.to_string()]);
            arm.args(self.common.quick.then_some("--quick"));
            arm.args(context.out.json.then_some("--json"));
            arm.args(context.out.quiet.then_some("--quiet"));
            if let Some(out) = &self.common.out {
                arm.arg("--out").arg(out);
            }
            let status = arm.stdin(Stdio::null()).status().with_context(|| format!("{arm:?}"))?;
            if context.interrupt.requested() {
                return Ok(Exit::Interrupted);
            }
            if !status.success() && first == Exit::Done {
                first = Exit::Violated;
            }
        }
        Ok(first)
    }
}
