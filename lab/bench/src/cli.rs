//! Defines the tree of commands, and the errors that benchmarks know.

use std::error::Error;

use clap::Parser;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, of_percolator};
use percolator_cli::log::ServiceLog;
use percolator_cli::program::{Global, Program};

use crate::cmd::Bench;

const AFTER_HELP: &str = "\
Exit codes:
  0    done
  2    wrong usage or bad input
  3    a check failed, and the figures are void
  4    a store or a rival cannot be reached
  5    retries were used up
  6    a goal of the project's speed is missed, or was not measured
  130  Ctrl-C

Example:
  percolator-bench all --quick --out results
  percolator-bench fig7 --quick --out results
  percolator-bench fig8 --quick --out results
  percolator-bench fig9 --quick
  percolator-bench fig10 --quick --out results
  percolator-bench micro oracle --json
  percolator-bench micro scan --quick --out results
  percolator-bench profile --quick
  percolator-bench webindex site/ --json";

/// Measures Percolator on this machine: the paper's experiments, and others.
#[derive(Debug, Parser)]
#[command(name = "percolator-bench", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Bench,
}

impl Program for Cli {
    fn global(&self) -> &Global {
        &self.global
    }

    fn log(&self) -> Option<ServiceLog> {
        self.command.log()
    }

    async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        self.command.run(context).await
    }

    fn judge(cause: &(dyn Error + 'static)) -> Option<(Exit, &'static str)> {
        cause.downcast_ref::<tpce::Error>().map(of_tpce)
    }
}

fn of_tpce(error: &tpce::Error) -> (Exit, &'static str) {
    match error {
        tpce::Error::Database(error) => of_percolator(error),
        tpce::Error::Exhausted { .. } | tpce::Error::Saturated { .. } => {
            (Exit::Exhausted, "run it on a machine that does nothing else")
        }
        tpce::Error::Invalid(_) => {
            (Exit::Usage, "`percolator-bench fig9 --help` lists its options")
        }
        tpce::Error::Log(_) => (Exit::Usage, "see that the temporary directory can be written to"),
        _ => (Exit::Unreachable, "leave PostgreSQL out with `--without postgres`"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_commands_are_sound_and_each_has_an_example() {
        percolator_cli::program::check_commands::<super::Cli>();
    }
}
