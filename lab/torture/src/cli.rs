//! Defines the command line of `percolator-torture`.

use clap::{Parser, Subcommand};
use percolator_cli::context::Context;
use percolator_cli::exit::Exit;
use percolator_cli::program::{Global, Program};

use crate::disk_full::DiskFull;
use crate::hbase::Hbase;
use crate::parent::Torture;
use crate::strike::Strike;
use crate::work::Worker;

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
    DiskFull(DiskFull),
    #[command(subcommand)]
    Hbase(Hbase),
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
            Some(Child::DiskFull(disk_full)) => disk_full.run(context).await,
            Some(Child::Hbase(hbase)) => hbase.run(context).await,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_commands_are_sound_and_each_has_an_example() {
        percolator_cli::program::check_commands::<super::Cli>();
    }
}
