//! `percolator-bench large-txn`.

use std::path::PathBuf;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::grouped;

use super::measure::Measure;
use crate::large_txn::{self, Settings};

/// Most and fewest cells of the largest transaction, and most transactions at once.
const CELLS: std::ops::RangeInclusive<usize> = 1_000..=100_000;
const TRANSACTIONS_MAX: usize = 1_000_000;

/// Large transactions, and thousands at once: cells a second, and memory.
///
/// On the embedded store, compared with the same cells written without transactions. The arms take
/// turns in ten blocks or more, in an order drawn from the seed. Exit status 3, and no result, when
/// a cell is not as it was written, or when a slow commit was rolled back although its owner lives.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench large-txn --quick --out results
  percolator-bench large-txn --transactions 100000 --json")]
pub(crate) struct LargeTxn {
    #[command(flatten)]
    measure: Measure,
    /// Cells of the largest transaction.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    cells: usize,
    /// How many transactions at once.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    transactions: usize,
}

/// Measure the memory of a large transaction, in a process that does nothing else.
#[derive(Debug, Args)]
pub(crate) struct LargeTxnMemory {
    #[arg(long)]
    cells: usize,
    #[arg(long)]
    seed: u64,
    /// An empty directory.
    #[arg(long)]
    data: PathBuf,
}

impl LargeTxnMemory {
    pub(super) async fn run(&self) -> anyhow::Result<Exit> {
        large_txn::memory(&self.data, self.cells, self.seed).await?;
        Ok(Exit::Done)
    }
}

impl LargeTxn {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let range = |what: String, least: usize, most: usize| {
            let help = format!("give {} to {}", grouped(least as u64), grouped(most as u64));
            Err(Failure::usage(what, help))
        };
        if !CELLS.contains(&self.cells) {
            return range(format!("--cells {}", self.cells), *CELLS.start(), *CELLS.end());
        }
        if !(1..=TRANSACTIONS_MAX).contains(&self.transactions) {
            let what = format!("--transactions {}", self.transactions);
            return range(what, 1, TRANSACTIONS_MAX);
        }
        let (turns, cells) = (self.measure.turns(context)?, self.cells);
        let settings = Settings { turns, cells, transactions: self.transactions };
        self.measure.tell(context, large_txn::run(context, settings)).await
    }
}
