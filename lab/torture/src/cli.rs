//! Defines the command line of `percolator-torture`.

use clap::{Parser, Subcommand};
use percolator_cli::context::Context;
use percolator_cli::exit::Exit;
use percolator_cli::program::{Global, Program};

use crate::parent::{Torture, Worker};
use crate::strike::Strike;

/// Kill the program with SIGKILL again and again in the middle of its work, then look for damage.
///
/// A child process runs bank transfers over two tables, blind writes, deletions, and strong
/// and weak observers. It also loads and recrawls a web index. It commits in one step and in
/// two phases, in turns.
///
/// The child is killed at random moments, also while it opens the store, and is started again.
/// At the end, sums, acknowledged commits, observers' effects, locks and the web index are
/// checked. If a check fails, the violations are printed, and the exit status is 3.
#[derive(Debug, Parser)]
#[command(
    name = "percolator-torture",
    version,
    args_conflicts_with_subcommands = true,
    max_term_width = 100,
    after_help = "Example:
  percolator-torture --kills 100 --seed 1"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    torture: Torture,
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    child: Option<Child>,
}

#[derive(Debug, Subcommand)]
enum Child {
    Worker(Worker),
    Strike(Strike),
}

impl Program for Cli {
    fn global(&self) -> &Global {
        &self.global
    }

    async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        match self.child {
            None => self.torture.run(context).await,
            Some(Child::Worker(worker)) => worker.run().await,
            Some(Child::Strike(strike)) => strike.run(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{path} has no example in its help");
            command.get_subcommands().filter(|c| c.get_name() != "help").for_each(|c| {
                check(c, &path);
            });
        }
        check(&Cli::command(), "");
    }
}
