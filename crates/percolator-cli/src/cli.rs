//! The tree of commands, the options that all of them have, and the run of one command.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use tracing::level_filters::LevelFilter;

use crate::cmd::Command;
use crate::context::Context;
use crate::events;
use crate::exit::{self, Exit};
use crate::interrupt::Interrupt;
use crate::output::{Color, Out};
use crate::store;

/// How long background tasks may take to end after the command is done.
const SHUTDOWN: Duration = Duration::from_millis(500);

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the answer is no: not found, timed out, a script's commit was aborted
  2    wrong usage, bad input, or a data directory that cannot be used as it is
  3    something that must always hold does not
  4    the store cannot be reached, or did not say what became of a request
  5    retries were used up
  6    a goal of the project's speed is missed, or was not measured
  7    the disk failed, and the store could not be opened anew in place
  130  Ctrl-C

Example:
  percolator set Bob bal '$10' --data D && percolator cell Bob bal --history --data D";

/// Cross-row transactions and durable observers over a sorted store (Google's Percolator).
///
/// Rows, columns and values are text in which \xNN stands for a byte, or hex:00ff, or b64:AP8=.
/// A column is family:qualifier, or family alone.
#[derive(Debug, Parser)]
#[command(name = "percolator", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// The options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// Append a trace of what happens inside, one JSON object a line; it survives kill -9.
    #[arg(long, global = true, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Say more on stderr; twice for even more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Say less on stderr: errors and warnings only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Color,
}

impl Global {
    fn level(&self) -> LevelFilter {
        match (self.quiet, self.verbose) {
            (true, _) => LevelFilter::ERROR,
            (false, 0) => LevelFilter::WARN,
            (false, 1) => LevelFilter::INFO,
            (false, _) => LevelFilter::DEBUG,
        }
    }
}

/// Runs the command of this process.
pub(crate) fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // The reader of the help may have gone.
            let _ = error.print();
            return code(if error.use_stderr() { Exit::Usage } else { Exit::Done });
        }
    };
    let Global { json, quiet, color, .. } = cli.global;
    let out = Out { json, quiet, color: color.on_stderr() };
    let result = run_command(cli, out);
    code(match result {
        Ok(exit) => exit,
        Err(error) => match exit::report(&error) {
            None => Exit::Done,
            Some(report) => {
                out.error(&report);
                report.exit
            }
        },
    })
}

fn run_command(cli: Cli, out: Out) -> anyhow::Result<Exit> {
    events::init(cli.global.level(), out.color, cli.global.events.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        survive_the_limit_of_files()?;
        let interrupt = Interrupt::listen();
        let context = Context { out, interrupt: interrupt.clone() };
        let result = cli.command.run(&context).await;
        let closed = store::close_all().await;
        let result = result.and_then(|exit| closed.map(|()| exit));
        match interrupt.requested() {
            true => Ok(Exit::Interrupted),
            false => result,
        }
    });
    runtime.shutdown_timeout(SHUTDOWN);
    result
}

/// Has a write beyond the limit of a file's size (`ulimit -f`) fail, as one to a full disk does: without a
/// handler its signal ends the process. The handler stays, and nobody listens.
fn survive_the_limit_of_files() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    }
    Ok(())
}

fn code(exit: Exit) -> ExitCode {
    ExitCode::from(exit as u8)
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
