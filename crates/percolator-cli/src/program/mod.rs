//! Defines a program of this project: its global options, and how it runs one command.

mod run;
#[cfg(unix)]
mod there;

use std::error::Error;
use std::path::PathBuf;

use clap::{Args, Parser};
use tracing::level_filters::LevelFilter;

use crate::context::Context;
use crate::exit::{self, Exit};
use crate::log::ServiceLog;
use crate::output::{Color, Out};

pub use run::run;
#[cfg(unix)]
pub(crate) use there::run_asked;

/// A program: a command line with the global options, and one command.
pub trait Program: Parser {
    /// The global options that were given.
    fn global(&self) -> &Global;

    /// Runs the command.
    ///
    /// # Errors
    /// Any error of the command; [`run`] prints the error and chooses the exit code.
    fn run(self, context: &Context) -> impl Future<Output = anyhow::Result<Exit>>;

    /// Where the command runs if another process has its directory open.
    fn elsewhere(&self) -> Elsewhere {
        Elsewhere::Nowhere
    }

    /// Whether the command works on a store that cannot be written.
    fn only_reads(&self) -> bool {
        false
    }

    /// The log of a command that serves; `None` for a command that prints remarks instead.
    fn log(&self) -> Option<ServiceLog> {
        None
    }

    /// Returns the exit code and the next step for an error that only this program knows. Errors
    /// of `percolator`, of its services and of the web index need no case here.
    fn judge(_cause: &(dyn Error + 'static)) -> Option<(Exit, &'static str)> {
        None
    }
}

/// Where a command runs if another process has its directory open, and listens there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// In that process. It changes nothing, so it is run again if that process ends before it.
    Reads,
    /// In that process, once.
    Writes,
    /// In that process, once, also if it serves tables and knows nothing of transactions.
    Copies,
    /// Nowhere: it needs the directory for itself, takes long, or opens none.
    Nowhere,
}

/// The options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// Append a trace of internal events to FILE, one JSON object a line. The trace survives kill
    /// -9.
    #[arg(long, global = true, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Print more on stderr; give the option twice for even more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Print less on stderr: errors and warnings only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Color,
}

impl Global {
    fn level(&self) -> LevelFilter {
        match self.verbose {
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        }
    }

    /// The level of a server's log, which is more than what a command prints.
    fn level_of_log(&self) -> LevelFilter {
        match (self.quiet, self.verbose) {
            (true, _) => LevelFilter::WARN,
            (false, 0) => LevelFilter::INFO,
            (false, _) => LevelFilter::DEBUG,
        }
    }
}

/// Prints the error of a command, and returns its exit code.
fn conclude<P: Program>(result: anyhow::Result<Exit>, out: Out) -> Exit {
    match result {
        Ok(exit) => exit,
        Err(error) => match exit::report(&error, P::judge) {
            None => Exit::Done,
            Some(report) => {
                out.error(&report);
                report.exit
            }
        },
    }
}

/// Asserts, for a test, that a program's commands are sound, and that each has an example in its
/// help.
///
/// # Panics
/// If a command is not so.
#[doc(hidden)]
pub fn check_commands<P: Program>() {
    fn check(command: &clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Example"), "{path} has no example in its help");
        let commands = command.get_subcommands().filter(|c| c.get_name() != "help");
        commands.for_each(|command| check(command, &path));
    }
    P::command().debug_assert();
    check(&P::command(), "");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        global: Global,
    }

    #[test]
    fn quiet_leaves_warnings_and_errors() {
        let levels = |option: Option<&str>| {
            let Line { global } = Line::parse_from(["program"].into_iter().chain(option));
            (global.level(), global.level_of_log())
        };
        assert_eq!(levels(Some("-q")), (LevelFilter::WARN, LevelFilter::WARN));
        assert_eq!(levels(None), (LevelFilter::WARN, LevelFilter::INFO));
        assert_eq!(levels(Some("-v")), (LevelFilter::INFO, LevelFilter::DEBUG));
        assert_eq!(levels(Some("-vv")), (LevelFilter::DEBUG, LevelFilter::DEBUG));
    }
}
