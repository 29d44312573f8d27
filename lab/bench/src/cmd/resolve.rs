//! `percolator-bench resolve`.

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::Exit;

use super::measure::Measure;
use crate::resolve;

/// Locks of dead clients: what they cost whoever meets them, and how long they hold readers up.
///
/// On the embedded store, compared with a commit on one cell. The arms take turns in blocks of half
/// a second, in an order drawn from the seed. Exit status 3, and no result, when anything is read
/// but what was committed, or when a client that lives was rolled back before its locks were too
/// old.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench resolve --quick --out results
  percolator-bench resolve --seconds 30 --json")]
pub(crate) struct Resolve {
    #[command(flatten)]
    measure: Measure,
}

impl Resolve {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let turns = self.measure.turns(context)?;
        self.measure.tell(context, resolve::run(context, turns)).await
    }
}
