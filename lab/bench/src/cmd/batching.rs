//! `percolator-bench batching`.

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::grouped;

use super::measure::Measure;
use crate::batching::{self, Settings};
use crate::fig8::CELLS_MAX;

/// Most callers.
const CALLERS_MAX: usize = 10_000;

/// Reads and lock requests that wait for others, against a table server over loopback: requests,
/// latency, conflicts and throughput at delays of 0, 1, 10 and 100 ms.
///
/// The server is a process of its own, the oracle is in this one. The arms take turns in blocks of
/// half a second, in an order drawn from the seed. At the end every cell is read: exit status 3,
/// and no result, unless they hold as many commits together as there were.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench batching --quick --out results
  percolator-bench batching --callers 1000 --json")]
pub(crate) struct Batching {
    #[command(flatten)]
    measure: Measure,
    /// How many callers the client has.
    #[arg(long, value_name = "N", default_value_t = 256)]
    callers: usize,
    /// How many cells there are; with few of them transactions conflict.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    cells: usize,
}

impl Batching {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        for (flag, value, most) in
            [("callers", self.callers, CALLERS_MAX), ("cells", self.cells, CELLS_MAX)]
        {
            if !(1..=most).contains(&value) {
                let help = format!("give 1 to {} {flag}", grouped(most as u64));
                return Err(Failure::usage(format!("--{flag} {value}"), help));
            }
        }
        let (turns, callers, cells) = (self.measure.turns(context)?, self.callers, self.cells);
        let settings = Settings { turns, callers, cells };
        self.measure.tell(context, batching::run(context, settings)).await
    }
}
