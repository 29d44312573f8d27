//! Defines the tree of commands, and runs the command of this process.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cmd::Command;
use crate::context::Context;
use crate::exit::Exit;
use crate::log::ServiceLog;
#[cfg(unix)]
use crate::owner;
use crate::program::{self, Elsewhere, Global, Program};

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the answer is no: not found, timed out, a script's commit was aborted
  2    wrong usage, bad input, or a data directory that cannot be used as it is
  3    a check failed: something is damaged, missing, or not as it must always be
  4    the store cannot be reached, or the outcome of a request is unknown
  5    retries were used up, because other clients kept changing or locking the same cells
  7    the disk failed, and the process could not reopen the store: start the process again
  130  Ctrl-C

Example:
  percolator set Bob bal '$10' --data D && percolator cell Bob bal --history --data D";

/// Cross-row transactions and durable observers over a sorted store (Google's Percolator).
///
/// Rows, columns and values are text, or hex:00ff, or b64:AP8=. In text, \\ is a backslash, \n, \r
/// and \t are control characters, and \xNN is a byte. A column is family:qualifier, or family
/// alone. The name of a table has 1 to 50 characters of [-_.a-zA-Z0-9].
#[derive(Debug, Parser)]
#[command(name = "percolator", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

impl Program for Cli {
    fn global(&self) -> &Global {
        &self.global
    }

    fn elsewhere(&self) -> Elsewhere {
        self.command.elsewhere()
    }

    fn only_reads(&self) -> bool {
        self.command.only_reads()
    }

    fn log(&self) -> Option<ServiceLog> {
        self.command.log()
    }

    async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        self.command.run(context).await
    }
}

/// Runs a command that another process sent, because it found its directory open in this one.
#[cfg(unix)]
pub(crate) fn run_asked(call: owner::session::Call) -> Option<Exit> {
    program::run_asked::<Cli>(call)
}

/// Makes the tree of commands, for tools and tests that read it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command of this process, and returns its exit code.
pub fn run() -> ExitCode {
    #[cfg(unix)]
    owner::listen::run_commands_by(run_asked);
    program::run::<Cli>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_sound_and_each_has_an_example() {
        program::check_commands::<Cli>();
    }

    /// Each command, and where it runs if another process has its directory open.
    #[test]
    fn commands_run_where_they_may() {
        let place = |line: &str| {
            let words = line.split(' ').filter(|word| !word.is_empty());
            let parsed = Cli::try_parse_from(["percolator"].into_iter().chain(words));
            parsed.map_err(|error| error.to_string()).expect(line).elsewhere()
        };
        for line in [
            "get Bob",
            "scan",
            "export",
            "cell Bob bal",
            "why Bob bal",
            "locks ls",
            "tables",
            "backlog",
            "observers ls",
            "observers failing",
            "gc status",
            "wait",
            "webindex search cod",
            "webindex page https://a.example/",
            "webindex cluster https://a.example/",
            "webindex stats",
        ] {
            assert_eq!(place(line), Elsewhere::Reads, "{line}");
        }
        for line in [
            "set Bob bal 1",
            "delete Bob",
            "tx",
            "locks resolve",
            "observers replay",
            "observers skip",
            "observers pause parse",
            "observers resume parse",
            "observers retire parse",
            "gc run",
        ] {
            assert_eq!(place(line), Elsewhere::Writes, "{line}");
        }
        assert_eq!(place("backup --data D --to B"), Elsewhere::Copies);
        for line in [
            "demo",
            "check D",
            "doctor",
            "restore --from B --data NEW",
            "import all.jsonl",
            "console",
            "serve table --data D",
            "serve oracle",
            "worker --app webindex",
            "cluster status --data D",
            "oracle status",
            "config view",
            "config reference",
            "completions bash",
            "man",
            "webindex load site --base https://a.example/",
            "webindex remove https://a.example/",
            "webindex rank",
            "webindex recrawl",
            "webindex verify",
            "webindex generate site",
        ] {
            assert_eq!(place(line), Elsewhere::Nowhere, "{line}");
        }
    }
}
