//! `percolator-bench notify`.

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::Exit;

use super::measure::Measure;
use crate::notify;

/// Notifications: how soon an observer starts, how many a second, and what they save on hot rows.
///
/// On the embedded store. How soon is compared with a thread that wakes another; how many, with
/// transactions on one cell. The arms take turns in blocks of half a second at most, in an order
/// drawn from the seed. Exit status 3, and no result, when an observer's run was lost or committed
/// twice, or when what observers derived is not what was written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench notify --quick --out results
  percolator-bench notify --seconds 30 --json")]
pub(crate) struct Notify {
    #[command(flatten)]
    measure: Measure,
}

impl Notify {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let turns = self.measure.turns(context)?;
        self.measure.tell(context, notify::run(context, turns)).await
    }
}
