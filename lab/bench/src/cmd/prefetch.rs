//! `percolator-bench prefetch`.

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};

use crate::prefetch;

use super::common::Common;

const DOCUMENTS_MAX: usize = 100_000;

/// Reads of the store that documents of twenty columns take, one column after the other and with
/// columns read ahead (the paper's section 2.5).
///
/// Counted, not timed: the same in every run. Exit status 3, and no result, when a value is not as
/// it was written.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-bench prefetch --json")]
pub(crate) struct Prefetch {
    #[command(flatten)]
    common: Common,
    /// How many documents there are [default: 1000, quick: 100].
    #[arg(long, value_name = "N")]
    documents: Option<usize>,
}

impl Prefetch {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let documents = self.documents.unwrap_or(self.common.sized(100, 1_000));
        if !(1..=DOCUMENTS_MAX).contains(&documents) {
            let what = format!("--documents {documents}");
            return Err(Failure::usage(what, format!("give 1 to {DOCUMENTS_MAX} documents")));
        }
        self.common.prepare(context)?;
        let outcome = prefetch::run(documents).await?;
        let figures = prefetch::json(&outcome);
        let plot = ("prefetch.svg".to_owned(), prefetch::plot(&outcome));
        self.common.write("prefetch", &figures, vec![plot])?;
        if context.out.json {
            context.out.json(&figures)?
        } else {
            prefetch::print(context.out, &outcome)?
        }
        if outcome.wrong > 0 {
            return Err(Failure::error(
                Exit::Violated,
                format!("{} values were not as they were written", outcome.wrong),
                "the figures are void; please report this",
            ));
        }
        Ok(Exit::Done)
    }
}
