//! `locks ls`: who holds which cells, and what will become of it.

use std::time::Duration;

use clap::{Args, Subcommand};
use percolator::admin::{LockFate, LockView};
use serde_json::json;

use crate::clock;
use crate::cmd::cell;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::Column;
use crate::store::StoreArgs;

/// Look at the locks of transactions that have not ended.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator locks ls --older 10s --data D")]
pub(crate) enum Locks {
    Ls(Ls),
}

impl Locks {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let Locks::Ls(ls) = self;
        ls.run(context).await
    }
}

/// List locks: age by the owner's wall clock, cell, owner, primary, and what will become of them.
///
/// Nothing is resolved: that is done by the next who reads or writes the cell.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator locks ls --older 10s --json --data D")]
pub(crate) struct Ls {
    /// Only locks that were last written longer ago than this.
    #[arg(long, value_name = "DURATION", value_parser = clock::duration, default_value = "0s")]
    older: Duration,
    /// At most this many.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    #[command(flatten)]
    store: StoreArgs,
}

impl Ls {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let db = self.store.open_existing().await?;
        let (now, mut shown, mut rows) = (clock::now_ms(), 0, Vec::new());
        let mut array = out.json_array();
        for lock in db.held_locks(usize::MAX).await? {
            let age = Duration::from_millis(now.saturating_sub(lock.wall_ms));
            if age < self.older {
                continue;
            }
            if shown == self.limit {
                out.note(&format!("more than {shown} locks: --limit shows more"));
                break;
            }
            shown += 1;
            let fate = db.lock_fate(&lock).await?;
            if out.json {
                let mut value = cell::lock_json(&lock);
                value["age_s"] = age.as_secs_f64().into();
                value["verdict"] = verdict_json(fate);
                array.push(&value)?;
            } else {
                rows.push(row(&lock, age, fate));
            }
        }
        if out.json {
            array.finish()?;
        } else if rows.is_empty() {
            out.note("no locks");
        } else {
            let names = ["age", "cell", "transaction", "owner", "primary", "alive", "verdict"];
            let column = |(i, name)| match i {
                0 | 2 => Column::right(name),
                _ => Column::left(name),
            };
            let header: Vec<Column> = names.into_iter().enumerate().map(column).collect();
            out.table(&header, rows)?;
        }
        Ok(Exit::Done)
    }
}

fn row(lock: &LockView, age: Duration, fate: LockFate) -> Vec<String> {
    let primary = lock.primary.as_ref().map_or("itself".to_owned(), ToString::to_string);
    let owner = lock.owner.to_string();
    let alive = match fate {
        LockFate::OwnerAlive => "yes",
        LockFate::OwnerDead => "no",
        LockFate::RollForward(_) | LockFate::RollBack => "",
    };
    vec![
        clock::age(age),
        lock.cell.to_string(),
        lock.start_ts.to_string(),
        owner[..owner.len().min(8)].to_owned(),
        primary,
        alive.to_owned(),
        verdict(fate),
    ]
}

fn verdict(fate: LockFate) -> String {
    match fate {
        LockFate::RollForward(commit_ts) => format!("roll forward: committed @ {commit_ts}"),
        LockFate::RollBack => "roll back".to_owned(),
        LockFate::OwnerDead => "owner dead: will be rolled back".to_owned(),
        LockFate::OwnerAlive => "may still commit".to_owned(),
    }
}

fn verdict_json(fate: LockFate) -> serde_json::Value {
    match fate {
        LockFate::RollForward(commit_ts) => {
            json!({ "kind": "roll_forward", "commit_ts": commit_ts.as_u64() })
        }
        LockFate::RollBack => json!({ "kind": "roll_back" }),
        LockFate::OwnerDead => json!({ "kind": "owner_dead" }),
        LockFate::OwnerAlive => json!({ "kind": "owner_alive" }),
    }
}
