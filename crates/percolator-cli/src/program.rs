//! A program of this project: its global options, and the run of one command.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use tracing::level_filters::LevelFilter;

use crate::context::Context;
use crate::events;
use crate::exit::{self, Exit};
use crate::interrupt::Interrupt;
use crate::output::{Color, Out};
use crate::store;

/// How long background tasks may take to end after the command is done.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// A program: a command line with the global options, and one command.
pub trait Program: Parser {
    /// The global options that were given.
    fn global(&self) -> &Global;

    /// Runs the command.
    ///
    /// # Errors
    /// Whatever the command fails with; [`run`] prints the error and chooses the exit code.
    fn run(self, context: &Context) -> impl Future<Output = anyhow::Result<Exit>>;

    /// Returns the exit code and the next step for an error that only this program knows. The
    /// errors of `percolator`, of its services and of the web index are known without it.
    fn judge(_cause: &(dyn Error + 'static)) -> Option<(Exit, &'static str)> {
        None
    }
}

/// The options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
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

/// Runs the command of this process: reads the command line, runs its command, prints its error and
/// returns its exit code.
pub fn run<P: Program>() -> ExitCode {
    let program = match P::try_parse() {
        Ok(program) => program,
        Err(error) => {
            // The reader of the help may have gone.
            let _ = error.print();
            return code(if error.use_stderr() { Exit::Usage } else { Exit::Done });
        }
    };
    let &Global { json, quiet, color, .. } = program.global();
    let out = Out { json, quiet, color: color.on_stderr() };
    let result = run_command(program, out);
    code(match result {
        Ok(exit) => exit,
        Err(error) => match exit::report(&error, P::judge) {
            None => Exit::Done,
            Some(report) => {
                out.error(&report);
                report.exit
            }
        },
    })
}

fn run_command<P: Program>(program: P, out: Out) -> anyhow::Result<Exit> {
    let global = program.global();
    events::init(global.level(), out.color, global.events.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        survive_the_limit_of_files()?;
        let interrupt = Interrupt::listen();
        let context = Context { out, interrupt: interrupt.clone() };
        let result = program.run(&context).await;
        let closed = store::close_all().await;
        let result = result.and_then(|exit| closed.map(|()| exit));
        if interrupt.requested() { Ok(Exit::Interrupted) } else { result }
    });
    runtime.shutdown_timeout(SHUTDOWN);
    result
}

/// Has a write beyond the limit of a file's size (`ulimit -f`) fail, as one to a full disk does:
/// without a handler its signal ends the process. The handler stays, and nobody listens.
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
