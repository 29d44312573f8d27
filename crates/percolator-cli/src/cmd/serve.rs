//! `serve`: runs one role of an installation in a process of its own.

mod member;
mod oracle;
mod table;
mod tls;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::log::{SERVICE, ServiceLog};
use crate::service::{self, State};

/// Serve one role of an installation.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator serve table --listen 127.0.0.1:8086 --data D")]
pub(crate) enum Serve {
    Table(table::Table),
    Oracle(oracle::Oracle),
}

impl Serve {
    pub(crate) fn log(&self) -> ServiceLog {
        match self {
            Serve::Table(table) => ServiceLog::new("serve table", &table.log),
            Serve::Oracle(oracle) => ServiceLog::new("serve oracle", &oracle.log),
        }
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Serve::Table(table) => table.run(context).await,
            Serve::Oracle(oracle) => oracle.run(context).await,
        }
    }
}

/// Parses the number of peers that a server takes at a time.
fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// `serve ROLE` as a command of another program, which runs servers as processes of itself.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator serve table --listen 127.0.0.1:8086 --data D")]
pub struct ServeRole {
    #[command(subcommand)]
    role: Serve,
}

impl ServeRole {
    /// The log of the server.
    pub fn log(&self) -> ServiceLog {
        self.role.log()
    }

    /// Serves until Ctrl-C or SIGTERM.
    ///
    /// # Errors
    /// If the server cannot listen, or its store cannot be opened.
    pub async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        self.role.run(context).await
    }
}

/// Listens for Ctrl-C and SIGTERM from now on. The future completes at the first of them, after it
/// has reported the end to the service manager.
pub(super) fn asked_to_end(
    interrupt: &Interrupt,
) -> std::io::Result<impl Future<Output = ()> + use<>> {
    let interrupt = interrupt.clone();
    #[cfg(unix)]
    let mut terminated = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate())?
    };
    Ok(async move {
        #[cfg(unix)]
        let by = tokio::select! {
            () = interrupt.pressed() => "Ctrl-C",
            _ = terminated.recv() => "SIGTERM",
        };
        #[cfg(not(unix))]
        let by = {
            interrupt.pressed().await;
            "Ctrl-C"
        };
        tracing::info!(target: SERVICE, event = "stops", by, "{by}: the process ends");
        service::report(State::Stopping);
    })
}
