//! Defines the commands, one module for each group.

mod backlog;
mod backup;
mod cell;
mod check;
mod cluster;
mod completions;
pub(crate) mod config;
mod console;
mod csv;
mod demo;
mod doctor;
mod export;
mod failures;
mod gc;
mod import;
mod locks;
mod man;
mod observers;
mod oracle;
mod read;
mod restore;
pub mod serve;
mod tables;
mod transfer;
mod tx;
mod wait;
pub mod webindex;
mod why;
mod worker;
mod write;

use clap::Subcommand;

use crate::context::Context;
use crate::exit::Exit;
use crate::log::ServiceLog;
use crate::program::Elsewhere;

/// A command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    #[command(subcommand)]
    Webindex(webindex::Webindex),
    Get(read::Get),
    Set(write::Set),
    Delete(write::Delete),
    Scan(read::Scan),
    Tables(tables::Tables),
    Tx(tx::Tx),
    Cell(cell::Cell),
    Why(why::Why),
    #[command(subcommand)]
    Locks(locks::Locks),
    Backlog(backlog::Backlog),
    Wait(wait::Wait),
    #[command(subcommand)]
    Observers(observers::Observers),
    Check(check::Check),
    Doctor(doctor::Doctor),
    Backup(backup::Backup),
    Export(export::Export),
    Import(import::Import),
    Restore(restore::Restore),
    Console(console::Console),
    #[command(subcommand)]
    Gc(gc::Gc),
    #[command(subcommand)]
    Serve(serve::Serve),
    Worker(worker::Worker),
    #[command(subcommand)]
    Cluster(cluster::Cluster),
    #[command(subcommand)]
    Oracle(oracle::Oracle),
    #[command(subcommand)]
    Config(config::Config),
    Completions(completions::Completions),
    Man(man::Man),
}

impl Command {
    /// Where the command runs if another process has its directory open. A command that runs in
    /// that process must end by itself, take its input from [`Context`], and print by
    /// `context.out`.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        match self {
            Command::Get(_)
            | Command::Scan(_)
            | Command::Cell(_)
            | Command::Why(_)
            | Command::Tables(_)
            | Command::Export(_)
            | Command::Backlog(_)
            | Command::Wait(_) => Elsewhere::Reads,
            Command::Set(_) | Command::Delete(_) | Command::Tx(_) => Elsewhere::Writes,
            Command::Backup(_) => Elsewhere::Copies,
            Command::Locks(locks) => locks.elsewhere(),
            Command::Observers(observers) => observers.elsewhere(),
            Command::Gc(gc) => gc.elsewhere(),
            Command::Webindex(webindex) => webindex.elsewhere(),
            // These commands need the directory for themselves, run for long, or open none.
            Command::Demo(_)
            | Command::Check(_)
            | Command::Doctor(_)
            | Command::Restore(_)
            | Command::Import(_)
            | Command::Console(_)
            | Command::Serve(_)
            | Command::Worker(_)
            | Command::Cluster(_)
            | Command::Oracle(_)
            | Command::Config(_)
            | Command::Completions(_)
            | Command::Man(_) => Elsewhere::Nowhere,
        }
    }

    /// Whether the command works on a store that cannot be written. `wait` does not: no process
    /// handles the changes there.
    pub(crate) fn only_reads(&self) -> bool {
        self.elsewhere() == Elsewhere::Reads && !matches!(self, Command::Wait(_))
    }

    /// The log of a command that serves.
    pub(crate) fn log(&self) -> Option<ServiceLog> {
        match self {
            Command::Serve(serve) => Some(serve.log()),
            Command::Worker(worker) => Some(worker.log()),
            Command::Console(console) => Some(console.log()),
            _ => None,
        }
    }

    /// Runs the command. Ctrl-C cuts off a command that may end anywhere. The others check for
    /// Ctrl-C themselves, or end soon anyway.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let interrupt = &context.interrupt;
        let read = match &self {
            Command::Get(get) => interrupt.cut_off(get.run(context)).await,
            Command::Scan(scan) => interrupt.cut_off(scan.run(context)).await,
            Command::Cell(cell) => interrupt.cut_off(cell.run(context)).await,
            Command::Why(why) => interrupt.cut_off(why.run(context)).await,
            Command::Locks(locks) => interrupt.cut_off(locks.run(context)).await,
            Command::Backlog(backlog) => interrupt.cut_off(backlog.run(context)).await,
            Command::Tables(tables) => interrupt.cut_off(tables.run(context)).await,
            Command::Gc(gc) => interrupt.cut_off(gc.run(context)).await,
            Command::Oracle(oracle) => interrupt.cut_off(oracle.run(context)).await,
            Command::Check(check) => Some(check.run(context).await),
            Command::Doctor(doctor) => interrupt.cut_off(doctor.run(context)).await,
            Command::Backup(backup) => interrupt.cut_off(backup.run(context)).await,
            Command::Export(export) => interrupt.cut_off(export.run(context)).await,
            Command::Import(import) => interrupt.cut_off(import.run(context)).await,
            Command::Restore(restore) => Some(restore.run(context).await),
            Command::Config(config) => Some(config.run(context)),
            Command::Completions(completions) => Some(completions.run(context)),
            Command::Man(man) => Some(man.run(context)),
            Command::Console(console) => Some(console.run(context).await),
            Command::Set(set) => Some(set.run(context).await),
            Command::Delete(delete) => Some(delete.run(context).await),
            Command::Tx(tx) => Some(tx.run(context).await),
            Command::Wait(wait) => Some(wait.run(context).await),
            Command::Observers(observers) => Some(observers.run(context).await),
            Command::Serve(serve) => Some(serve.run(context).await),
            Command::Worker(worker) => Some(worker.run(context).await),
            Command::Cluster(cluster) => Some(cluster.run(context).await),
            Command::Demo(demo) => Some(demo.run(context).await),
            Command::Webindex(webindex) => Some(webindex.run(context).await),
        };
        read.unwrap_or(Ok(Exit::Interrupted))
    }
}
