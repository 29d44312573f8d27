//! `backlog` and `observers`: what waits to be handled, and who handles it.

use std::io::{BufRead, IsTerminal, Write};

use clap::{Args, Subcommand};
use percolator::Percolator;
use percolator::observe::{SetAside, Strength};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::output::{Column, grouped};
use crate::owner::asked;
use crate::program::Elsewhere;
use crate::store::StoreArgs;

/// Count the notifications that wait for observers, by column.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator backlog --json --data D")]
pub(crate) struct Backlog {
    #[command(flatten)]
    store: StoreArgs,
}

impl Backlog {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let db = self.store.open_existing().await?;
        let backlog = db.backlog().await?;
        if context.out.json {
            context.out.json(&backlog_json(&backlog))?;
            return Ok(Exit::Done);
        }
        if backlog.is_empty() {
            context.out.note("nothing waits");
            return Ok(Exit::Done);
        }
        let rows = backlog.iter().map(|entry| {
            let cells = grouped(entry.cells as u64);
            let column = format!("{}/{}", entry.table, entry.column);
            vec![column, cells, entry.oldest.to_string(), entry.observers.join(", ")]
        });
        let header = [
            Column::left("column"),
            Column::right("cells"),
            Column::right("oldest ts"),
            Column::left("observers"),
        ];
        context.out.table(&header, rows.collect())?;
        Ok(Exit::Done)
    }
}

/// The backlog in JSON.
pub(super) fn backlog_json(backlog: &[percolator::observe::Backlog]) -> Value {
    let entry = |entry: &percolator::observe::Backlog| {
        json!({
            "table": entry.table,
            "column": keys::json(entry.column.as_bytes()),
            "observers": entry.observers,
            "cells": entry.cells,
            "oldest_ts": entry.oldest.as_u64(),
        })
    };
    backlog.iter().map(entry).collect()
}

/// What was set aside, in JSON.
pub(super) fn set_aside_json(set_aside: &[SetAside]) -> Value {
    let entry = |entry: &SetAside| {
        json!({
            "table": entry.table,
            "row": keys::json(entry.row.as_bytes()),
            "column": keys::json(entry.column.as_bytes()),
            "observer": entry.observer,
            "attempts": entry.attempts,
            "error": entry.error,
        })
    };
    set_aside.iter().map(entry).collect()
}

/// List observers, run again what they failed at, or take them out of the store.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator observers ls --data D")]
pub(crate) enum Observers {
    Ls(Ls),
    Replay(Replay),
    Retire(Retire),
}

impl Observers {
    /// Where the command runs if another process has its directory open.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        match self {
            Observers::Ls(_) => Elsewhere::Reads,
            Observers::Replay(_) | Observers::Retire(_) => Elsewhere::Writes,
        }
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Observers::Ls(ls) => ls.run(context).await,
            Observers::Replay(replay) => replay.run(context).await,
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
                vec![entry.observer.clone(), column, strength(entry.strength).to_owned(), failed]
            });
            let header = [
                Column::left("observer"),
                Column::left("column"),
                Column::left("strength"),
                Column::right("set aside"),
            ];
            out.table(&header, rows.collect())?;
        }
        Ok(Exit::Done)
    }
}

/// Bring back notifications that were set aside because their observer kept failing.
///
/// They are handled when the observer's program runs next. Exit status 1 when there are none.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator observers replay parse --data D")]
pub(crate) struct Replay {
    /// Only those of this observer.
    name: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
}

impl Replay {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let db = self.store.open_existing().await?;
        let replayed = db.replay(self.name.as_deref()).await?;
        if context.out.json {
            context.out.json(&json!({ "replayed": replayed }))?;
        }
        if replayed == 0 {
            let of = self.name.as_ref().map_or(String::new(), |name| format!(" of {name}"));
            let what = format!("nothing{of} was set aside");
            return Err(Failure::no(what, "`percolator observers ls` shows what is set aside"));
        }
        context.out.note(&format!("{} notifications brought back", grouped(replayed as u64)));
        Ok(Exit::Done)
    }
}

/// Take an observer out of the store: its columns no longer notify it.
///
/// What still waits for it is dropped. Its program registers it again when it runs next.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator observers retire parse --yes --data D")]
pub(crate) struct Retire {
    /// The observer.
    name: String,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    store: StoreArgs,
}

impl Retire {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let db = self.store.open_existing().await?;
        let columns = self.columns(&db).await?;
        let question = format!("retire {}, which observes {}", self.name, columns.join(", "));
        if self.dry_run {
            context.out.note(&format!("would {question}"));
            return Ok(Exit::Done);
        }
        if !self.yes && !confirm(&question)? {
            context.out.note("nothing was changed");
            return Ok(Exit::No);
        }
        let retired = db.retire_observer(&self.name).await?;
        if context.out.json {
            context.out.json(&json!({ "retired": retired }))?
        } else {
            context.out.note(&format!("retired {}", self.name))
        }
        Ok(Exit::Done)
    }

    async fn columns(&self, db: &Percolator) -> anyhow::Result<Vec<String>> {
        let mut observers = db.observers().await?;
        observers.retain(|entry| entry.observer == self.name);
        if observers.is_empty() {
            let help = "`percolator observers ls` lists those that are registered";
            return Err(Failure::no(format!("no observer is called {}", self.name), help));
        }
        Ok(observers.iter().map(|entry| format!("{}/{}", entry.table, entry.column)).collect())
    }
}

/// Asks on the terminal. A command that runs here for another process has none.
fn confirm(question: &str) -> anyhow::Result<bool> {
    let stdin = std::io::stdin();
    if asked::current().is_some() || !stdin.is_terminal() {
        let what = format!("will not {question} without being asked to");
        return Err(Failure::usage(what, "add --yes, or --dry-run to see what it would do"));
    }
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
