//! `percolator-bench check`.

use std::path::PathBuf;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};

use crate::check::{self, Checked};

/// The figures of benchmarks against what the project must reach.
///
/// Reads the files that benchmarks wrote with --out DIR. Exit status 6 when a goal is missed, even
/// by the better end of the figure's interval, or has no figure that counts.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator-bench check results --json")]
pub(crate) struct Check {
    /// Where fig7.json, fig8.json and the others are.
    dir: PathBuf,
}

impl Check {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        if !self.dir.is_dir() {
            return Err(Failure::usage(
                format!("{}: no such directory", self.dir.display()),
                "name the directory that was given to --out; `percolator-bench all --out DIR` \
                 fills one",
            ));
        }
        let checked = check::all(&self.dir);
        if context.out.json {
            context.out.json(&check::json(&checked))?
        } else {
            check::print(context.out, &checked)?
        }
        let complaints = complaints(&checked);
        if complaints.is_empty() {
            Ok(Exit::Done)
        } else {
            Err(Failure::error(
                Exit::Missed,
                format!(
                    "{} goals are missed or not measured:{}",
                    complaints.len(),
                    listed(&complaints)
                ),
                "`percolator-bench all --out DIR` measures everything",
            ))
        }
    }
}

/// What is missed or not measured.
pub(super) fn complaints(checked: &[Checked]) -> Vec<String> {
    checked.iter().filter_map(Checked::complaint).collect()
}

/// A line each.
pub(super) fn listed(complaints: &[String]) -> String {
    complaints.iter().map(|complaint| format!("\n  {complaint}")).collect()
}
