//! `percolator-bench profile`.

use std::path::PathBuf;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::grouped;

use super::common::Common;
use crate::fig8::TEN;
use crate::profile::{self, Settings};

/// As many as are done without anything being written out.
const OPERATIONS: std::ops::RangeInclusive<u64> = 100..=50_000;
/// Most cells, and how often each is written at least before anything counts: its versions then lie
/// as they do in the long run.
const CELLS_MAX: u64 = 1_000;
const WRITTEN_BEFORE: u64 = 5;

/// What an operation of `percolator-bench fig8` takes, and a document of `percolator-bench fig7`,
/// in instructions.
///
/// And in allocations, and of files. Counted by Valgrind and the kernel, so the same whatever else
/// the machine does; of a document, which several threads work on, within some percent. Each arm is
/// a process that does nothing else, once with N operations and once with twice as many. Exit
/// status 3, and the figures are void, when a cell is not as it was written, or a document not
/// where it belongs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench profile --quick --out results
  percolator-bench profile --arm raw_set --arm fjall_insert")]
pub(crate) struct Profile {
    #[command(flatten)]
    common: Common,
    /// How many operations are counted [default: 20000, quick: 5000].
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Count this arm alone; may be repeated.
    #[arg(long, value_name = "NAME")]
    arm: Vec<String>,
}

/// Do the operations of one arm, in a process that does nothing else.
#[derive(Debug, Args)]
pub(crate) struct ProfileWork {
    arm: String,
    #[arg(long)]
    operations: u64,
    #[arg(long)]
    cells: usize,
    #[arg(long)]
    seed: u64,
    /// A directory that is not there yet.
    #[arg(long)]
    data: PathBuf,
    /// Compare clusters with the rule in the end.
    #[arg(long)]
    check: bool,
}

impl ProfileWork {
    pub(super) async fn run(&self) -> anyhow::Result<Exit> {
        let ProfileWork { operations, cells, seed, check, .. } = *self;
        profile::work(&self.arm, &self.data, Settings { operations, cells, seed }, check).await?;
        Ok(Exit::Done)
    }
}

impl Profile {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let operations = self.operations.unwrap_or(self.common.sized(5_000, 20_000));
        if !OPERATIONS.contains(&operations) || !operations.is_multiple_of(TEN as u64) {
            let [least, most] = [*OPERATIONS.start(), *OPERATIONS.end()].map(grouped);
            let what = format!("--operations {operations}");
            return Err(Failure::usage(
                what,
                format!("give a multiple of {TEN}, {least} to {most}"),
            ));
        }
        let arms = profile::arms(&self.arm).map_err(|unknown| {
            let help = format!("choose from {}", profile::known());
            Failure::usage(format!("--arm {unknown}: no such arm"), help)
        })?;
        self.common.prepare(context)?;
        let cells = (operations / WRITTEN_BEFORE).min(CELLS_MAX) as usize;
        let settings = Settings { operations, cells, seed: self.common.seed };
        let Some(outcome) = profile::run(context, settings, &arms)? else {
            context.out.note("interrupted before the end: nothing to report");
            return Ok(Exit::Interrupted);
        };
        let figures = outcome.json();
        let plot = outcome.plot().map(|svg| ("profile.svg".to_owned(), svg));
        self.common.write("profile", &figures, plot.into_iter().collect())?;
        if context.out.json {
            context.out.json(&figures)?
        } else {
            outcome.print(context.out)?
        }
        if outcome.wrong > 0 {
            return Err(Failure::error(
                Exit::Violated,
                format!("{} cells or clusters were not as they should be", outcome.wrong),
                "the figures are void; please report this",
            ));
        }
        Ok(Exit::Done)
    }
}
