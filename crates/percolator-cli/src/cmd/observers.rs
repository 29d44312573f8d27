//! `observers`: lists, pauses, resumes and retires observers. The commands for changes that
//! observers fail at are in `failures`.

use std::io::{BufRead, IsTerminal, Write};

use clap::{Args, Subcommand};
use percolator::Percolator;
use percolator::observe::Strength;
use serde_json::json;

use crate::cmd::failures::{Failing, Replay, Skip};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::output::{Column, grouped};
use crate::owner::asked;
use crate::program::Elsewhere;
use crate::store::StoreArgs;

/// List observers, pause them, take them out of the store, and manage the changes that they fail
/// at.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator observers ls --data D")]
pub(crate) enum Observers {
    Ls(Ls),
    Failing(Failing),
    Replay(Replay),
    Skip(Skip),
    Pause(Pause),
    Resume(Resume),
    Retire(Retire),
}

impl Observers {
    /// Where the command runs if another process has its directory open.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        match self {
            Observers::Ls(_) | Observers::Failing(_) => Elsewhere::Reads,
            Observers::Replay(_)
            | Observers::Skip(_)
            | Observers::Pause(_)
            | Observers::Resume(_)
            | Observers::Retire(_) => Elsewhere::Writes,
        }
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Observers::Ls(ls) => ls.run(context).await,
            Observers::Failing(failing) => failing.run(context).await,
            Observers::Replay(replay) => replay.run(context).await,
            Observers::Skip(skip) => skip.run(context).await,
            Observers::Pause(pause) => pause.run(context).await,
            Observers::Resume(resume) => resume.run(context).await,
            Observers::Retire(retire) => retire.run(context).await,
        }
    }
}

/// List the observers that are registered in the store.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator observers ls --json --data D")]
pub(crate) struct Ls {
    #[command(flatten)]
    store: StoreArgs,
}

impl Ls {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let db = self.store.open_existing().await?;
        let (observers, failed) = (db.observers().await?, db.set_aside().await?);
        let paused = db.paused_observers().await?;
        let failed = |name: &str| failed.iter().filter(|aside| aside.observer == name).count();
        let strength = |strength| match strength {
            Strength::Strong => "strong",
            Strength::Weak => "weak",
        };
        if out.json {
            let mut array = out.json_array();
            for entry in &observers {
                array.push(&json!({
                    "observer": entry.observer,
                    "table": entry.table,
                    "column": keys::json(entry.column.as_bytes()),
                    "strength": strength(entry.strength),
                    "paused": paused.contains(entry),
                    "set_aside": failed(&entry.observer),
                }))?;
            }
            array.finish()?;
        } else if observers.is_empty() {
            out.note("no observers");
        } else {
            let rows = observers.iter().map(|entry| {
                let column = format!("{}/{}", entry.table, entry.column);
                let failed = grouped(failed(&entry.observer) as u64);
                let state = if paused.contains(entry) { "paused" } else { "" };
                let strength = strength(entry.strength).to_owned();
                vec![entry.observer.clone(), column, strength, state.to_owned(), failed]
            });
            let header = [
                Column::left("observer"),
                Column::left("column"),
                Column::left("strength"),
                Column::left("state"),
                Column::right("set aside"),
            ];
            out.table(&header, rows.collect())?;
        }
        Ok(Exit::Done)
    }
}

/// Pause an observer in all processes, until it is resumed.
///
/// Changes wait, and are handled after the pause. The pause outlasts restarts. Weak observers of
/// one column pause together. The exit status is 1 if no observer has this name.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator observers pause parse --data D")]
pub(crate) struct Pause {
    #[command(flatten)]
    named: Named,
}

/// Have a paused observer run again, also for all changes that it has missed.
///
/// The exit status is 1 if no observer has this name.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator observers resume parse --data D")]
pub(crate) struct Resume {
    #[command(flatten)]
    named: Named,
}

/// An observer by its name.
#[derive(Debug, Args)]
struct Named {
    /// The observer.
    name: String,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    store: StoreArgs,
}

impl Pause {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let Named { name, dry_run, store } = &self.named;
        let db = store.open_existing().await?;
        let columns = columns(&db, name).await?;
        if !dry_run {
            db.pause_observer(name).await?;
        }
        said(context, *dry_run, "pause", "paused", name, &columns)
    }
}

impl Resume {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let Named { name, dry_run, store } = &self.named;
        let db = store.open_existing().await?;
        let columns = columns(&db, name).await?;
        if !dry_run {
            db.resume_observer(name).await?;
        }
        said(context, *dry_run, "resume", "resumed", name, &columns)
    }
}

fn said(
    context: &Context,
    dry_run: bool,
    verb: &str,
    done: &str,
    name: &str,
    columns: &[String],
) -> anyhow::Result<Exit> {
    let registrations = if dry_run { 0 } else { columns.len() };
    if context.out.json {
        context.out.json(&json!({ "matched": columns.len(), done: registrations }))?;
    } else {
        let columns = columns.join(", ");
        let what = if dry_run { format!("would {verb}") } else { done.to_owned() };
        context.out.note(&format!("{what} {name}, which observes {columns}"));
    }
    Ok(Exit::Done)
}

/// Take an observer out of the store: its columns no longer notify it.
///
/// Changes that still wait for it are dropped. Its program registers it again when it runs next.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator observers retire parse --yes --data D")]
pub(crate) struct Retire {
    /// The observer.
    name: String,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    store: StoreArgs,
}

impl Retire {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let db = self.store.open_existing().await?;
        let columns = columns(&db, &self.name).await?;
        let question = format!("retire {}, which observes {}", self.name, columns.join(", "));
        let (out, matched) = (context.out, columns.len());
        if self.dry_run {
            if out.json {
                out.json(&json!({ "matched": matched, "retired": 0 }))?;
            } else {
                out.note(&format!("would {question}"));
            }
            return Ok(Exit::Done);
        }
        if !self.yes && !confirm(&question)? {
            context.out.note("nothing was changed");
            return Ok(Exit::No);
        }
        let retired = db.retire_observer(&self.name).await?;
        if out.json {
            out.json(&json!({ "matched": matched, "retired": retired }))?
        } else {
            out.note(&format!("retired {}", self.name))
        }
        Ok(Exit::Done)
    }
}

/// Returns the columns that an observer observes, in words.
async fn columns(db: &Percolator, name: &str) -> anyhow::Result<Vec<String>> {
    let mut observers = db.observers().await?;
    observers.retain(|entry| entry.observer == name);
    if observers.is_empty() {
        let help = "`percolator observers ls` lists the registered observers";
        return Err(Failure::no(format!("no observer is called {name}"), help));
    }
    Ok(observers.iter().map(|entry| format!("{}/{}", entry.table, entry.column)).collect())
}

/// Asks on the terminal. A command that runs for another process has no terminal, so it needs
/// `--yes`.
pub(super) fn confirm(question: &str) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    if asked::current().is_some() || !stdin.is_terminal() {
        let what = format!("cannot ask whether to {question} without a terminal");
        return Err(Failure::usage(
            what,
            "give --yes to confirm, or --dry-run to see what the command would do",
        ));
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
