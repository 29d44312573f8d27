//! `percolator-bench fig10`, and the workers that it starts and kills.

use std::path::PathBuf;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};

use crate::fig10::worker::{self, Place};
use crate::fig10::{self, Settings};

use super::common::Common;

const WORKERS_MAX: usize = 100;

/// Throughput over time while processes are killed (the paper's Figure 10): a third of the workers,
/// and then the table server.
///
/// Workers drive a TPC-E-like brokerage over RPC, each with a capacity, so that what a killed one
/// could do is lost. Exit status 3, and no result, when a commit that was acknowledged is lost,
/// when the books are not in order, or when the workers were kept from their capacities before
/// anything was killed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench fig10 --quick --out results
  percolator-bench fig10 --seconds 120 --rounds 1 --json")]
pub(crate) struct Fig10 {
    #[command(flatten)]
    common: Common,
    /// Customers of the brokerage; all else is in proportion [default: 1000, quick: 300].
    #[arg(long, value_name = "N")]
    customers: Option<u64>,
    /// How many workers there are; a third of them is killed.
    #[arg(long, value_name = "N", default_value_t = 15)]
    workers: usize,
    /// Seconds before the kill, until the return, and after it [default: 60, quick: 20].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// How often all of it is done [default: 3, quick: 1].
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
}

impl Fig10 {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let settings = self.settings()?;
        self.common.prepare(context)?;
        let Some(outcome) = fig10::run(context, &settings).await? else {
            context.out.note("interrupted before the end: nothing to report");
            return Ok(Exit::Interrupted);
        };
        let figures = fig10::json(&settings, &outcome);
        let plot = fig10::chart(&settings, &outcome);
        let plots = plot.map(|chart| ("fig10.svg".to_owned(), chart.svg())).into_iter().collect();
        self.common.write("fig10", &figures, plots)?;
        if context.out.json {
            context.out.json(&figures)?
        } else {
            fig10::print(context.out, &settings, &outcome)?
        }
        match outcome.void(&settings) {
            None => Ok(Exit::Done),
            Some((what, help)) => Err(Failure::error(Exit::Violated, what, help)),
        }
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let bad = |what: String, help: String| Err(Failure::usage(what, help));
        let customers = self.customers.unwrap_or(self.common.sized(300, 1_000));
        let seconds = self.seconds.unwrap_or(self.common.sized(20.0, 60.0));
        let rounds = self.rounds.unwrap_or(self.common.sized(1, 3));
        let (workers, seed) = (self.workers, self.common.seed);
        if !(1.0..=3600.0).contains(&seconds) {
            return bad(format!("--seconds {seconds}"), "give 1 to 3600 seconds".to_owned());
        }
        if !(2..=WORKERS_MAX).contains(&workers) {
            return bad(format!("--workers {workers}"), format!("give 2 to {WORKERS_MAX} workers"));
        }
        if !(1..=100).contains(&rounds) {
            return bad(format!("--rounds {rounds}"), "give 1 to 100 rounds".to_owned());
        }
        if let Err(error) = tpce::Scale::new(customers, seed).check() {
            let help = "choose another number with --customers".to_owned();
            return bad(error.to_string(), help);
        }
        Ok(Settings { customers, workers, seconds, rounds, seed, quick: self.common.quick })
    }
}

/// Drive the brokerage of `percolator-bench fig10`; requests come on stdin, answers go to stdout.
#[derive(Debug, Args)]
pub(crate) struct Fig10Worker {
    /// Where the table server is.
    #[arg(long)]
    table: String,
    /// Where the oracle is.
    #[arg(long)]
    oracle: String,
    #[arg(long)]
    customers: u64,
    #[arg(long)]
    seed: u64,
    /// Which worker it is.
    #[arg(long)]
    number: u64,
    /// How many requests customers have made of another so far.
    #[arg(long)]
    made: u64,
    /// A file that is not there yet.
    #[arg(long)]
    log: PathBuf,
}

impl Fig10Worker {
    pub(super) async fn run(&self) -> anyhow::Result<Exit> {
        let Fig10Worker { table, oracle, log, number, made, .. } = self;
        let place = Place { table, oracle, log, number: *number, made: *made };
        worker::run(&place, tpce::Scale::new(self.customers, self.seed)).await?;
        Ok(Exit::Done)
    }
}
