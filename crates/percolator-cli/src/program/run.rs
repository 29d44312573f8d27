//! Runs the command of a process, from its command line to its exit code.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

#[cfg(unix)]
use super::there::run_anywhere;
use super::{Global, Program, conclude};
use crate::context::{Context, Input};
use crate::events;
use crate::exit::{self, Exit, Report};
use crate::interrupt::Interrupt;
use crate::log::{SERVICE, ServiceLog};
use crate::output::{Color, Out};
use crate::read_only;
use crate::store;

/// How long background tasks may take to end after the command has ended.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// Runs the command of this process: reads the command line, runs the command, prints its error
/// and returns the exit code.
pub fn run<P: Program>() -> ExitCode {
    let program = match P::try_parse() {
        Ok(program) => program,
        Err(error) => return code(conclude_unparsed(&error)),
    };
    let &Global { json, quiet, color, .. } = program.global();
    let log = program.log();
    let out = Out { json, quiet, color: color.on_stderr(), logs: log.is_some() };
    let result = begin(&program, out, log.as_ref());
    // The log has begun.
    let log = log.filter(|_| result.is_ok());
    let result = result.and_then(|()| run_command(program, out));
    code(match log {
        Some(log) => conclude_service::<P>(result, out, &log),
        None => conclude::<P>(result, out),
    })
}

/// Prints the help that a command line asks for, or the mistake in it.
fn conclude_unparsed(error: &clap::Error) -> Exit {
    let asks_for_json = || std::env::args_os().take_while(|arg| arg != "--").any(|a| a == "--json");
    let json = error.use_stderr() && asks_for_json();
    let out = Out { json, quiet: false, color: Color::Auto.on_stderr(), logs: false };
    if json {
        out.error(&Report::of_usage(error));
        return Exit::Usage;
    }
    let printed = error.print().and_then(|()| io::stdout().flush());
    match printed.err().filter(|_| !error.use_stderr()).and_then(Report::of_unprinted_help) {
        Some(report) => {
            out.error(&report);
            report.exit
        }
        None if error.use_stderr() => Exit::Usage,
        None => Exit::Done,
    }
}

/// Begins to record events.
fn begin<P: Program>(program: &P, out: Out, log: Option<&ServiceLog>) -> anyhow::Result<()> {
    let global = program.global();
    let level = if log.is_some() { global.level_of_log() } else { global.level() };
    events::init(level, out.color, global.events.as_deref(), log)?;
    if let Some(ServiceLog { role, .. }) = log {
        let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
        tracing::info!(
            target: SERVICE, event = "starts", role, version, pid, "percolator {role} starts"
        );
    }
    Ok(())
}

/// Logs the end of a server, and prints or logs its error.
fn conclude_service<P: Program>(result: anyhow::Result<Exit>, out: Out, log: &ServiceLog) -> Exit {
    let report = match &result {
        Err(error) if log.takes_errors() => exit::report(error, P::judge),
        _ => None,
    };
    if let Some(Report { exit, what, help, .. }) = &report {
        let (exit, help) = (*exit as u8, help.as_str());
        tracing::error!(target: SERVICE, event = "failed", exit, help, "{what}");
    }
    let exit = match report {
        Some(report) if !log.prints_errors() && !out.json => report.exit,
        _ => conclude::<P>(result, out),
    };
    let (role, code) = (log.role, exit as u8);
    tracing::info!(
        target: SERVICE, event = "ended", role, exit = code, "percolator {role} has ended"
    );
    exit
}

fn run_command<P: Program>(program: P, out: Out) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        survive_the_limit_of_files()?;
        let interrupt = Interrupt::listen();
        let context = Context {
            out,
            interrupt: interrupt.clone(),
            input: Input::default(),
            tree: P::command,
        };
        read_only::set_reads(program.only_reads());
        let result = run_anywhere(program, &context).await;
        let closed = store::close_all().await;
        let result = result.and_then(|exit| closed.map(|()| exit));
        if interrupt.requested() { Ok(Exit::Interrupted) } else { result }
    });
    runtime.shutdown_timeout(SHUTDOWN);
    result
}

/// Has a write beyond the limit of a file's size (`ulimit -f`) fail as a write to a full disk
/// does. Without a handler, the signal XFSZ would end the process. The handler stays after its
/// receiver is dropped.
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

#[cfg(not(unix))]
async fn run_anywhere<P: Program>(program: P, context: &Context) -> anyhow::Result<Exit> {
    program.run(context).await
}
