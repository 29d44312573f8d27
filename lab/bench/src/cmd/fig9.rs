//! `percolator-bench fig9`, and the process that it starts for each store.

use std::path::PathBuf;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};

use crate::fig9::{self, Settings, Store, work};

use super::common::Common;

/// Customers and seconds of a full run, and of a quick one.
const CUSTOMERS: u64 = 5_000;
const SECONDS: f64 = 60.0;
const QUICK_CUSTOMERS: u64 = 300;
const QUICK_SECONDS: f64 = 10.0;

/// A TPC-E-like brokerage (the paper's Figure 9): embedded on one and two cores, over RPC, and the
/// same transactions in PostgreSQL, as statements and as functions in PL/pgSQL.
///
/// Each store is driven by a process of its own; they take turns in blocks of a second or two, in
/// an order drawn from the seed, and a ratio is the median of the ratios of each round. Then
/// requests come at half the rate that each store reached, for latencies, and in the full form at
/// 0.75 and 0.9 of it. At the end the books are checked: exit status 3, and no result, when
/// something is wrong with them, or when requests were sent late. The figures are not comparable
/// with published TPC-E results.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench fig9 --quick --out fig9
  percolator-bench fig9 --customers 5000 --seconds 60 --json")]
pub(crate) struct Fig9 {
    #[command(flatten)]
    common: Common,
    /// Customers of the brokerage; all else is in proportion [default: 5000, quick: 300].
    #[arg(long, value_name = "N")]
    customers: Option<u64>,
    /// Seconds to measure each arm for [default: 60, quick: 10].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Leave out a store; may be repeated.
    #[arg(long, value_enum, value_name = "STORE")]
    without: Vec<Store>,
}

impl Fig9 {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let Common { quick, seed, .. } = self.common;
        let customers = self.customers.unwrap_or(self.common.sized(QUICK_CUSTOMERS, CUSTOMERS));
        let seconds = self.seconds.unwrap_or(self.common.sized(QUICK_SECONDS, SECONDS));
        if !(0.1..=3600.0).contains(&seconds) {
            let what = format!("--seconds {seconds}");
            return Err(Failure::usage(what, "give 0.1 to 3600 seconds"));
        }
        let scale = tpce::Scale::new(customers, seed);
        if let Err(error) = scale.check() {
            return Err(Failure::usage(
                error.to_string(),
                "choose another number with --customers",
            ));
        }
        self.common.prepare(context)?;
        let settings = Settings { customers, seconds, seed, quick, without: self.without.clone() };
        let Some(outcome) = fig9::run(context, &settings).await? else {
            context.out.note("interrupted before the end: nothing to report");
            return Ok(Exit::Interrupted);
        };
        let figures = fig9::json(&settings, &outcome);
        let plot = fig9::chart(&settings, &outcome).svg();
        self.common.write("fig9", &figures, vec![("fig9.svg".to_owned(), plot)])?;
        if context.out.json {
            context.out.json(&figures)?
        } else {
            fig9::print(context.out, &settings, &outcome)?
        }
        match outcome.void() {
            None => Ok(Exit::Done),
            Some((what, help)) => Err(Failure::error(Exit::Violated, what, help)),
        }
    }
}

/// Drive one store of `percolator-bench fig9`; requests come on stdin, answers go to stdout.
#[derive(Debug, Args)]
pub(crate) struct Fig9Store {
    /// Which.
    #[arg(long, value_enum)]
    store: Store,
    #[arg(long)]
    customers: u64,
    #[arg(long)]
    seed: u64,
    /// An empty directory.
    #[arg(long)]
    data: PathBuf,
}

impl Fig9Store {
    pub(super) async fn run(&self) -> anyhow::Result<Exit> {
        let scale = tpce::Scale::new(self.customers, self.seed);
        work::run(self.store, scale, &self.data).await?;
        Ok(Exit::Done)
    }
}
