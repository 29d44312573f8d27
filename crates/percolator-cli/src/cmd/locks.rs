//! `locks ls|resolve`: lists locks with their owners and fates, and resolves them.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};
use percolator::admin::{LockEnd, LockFate, LockView, LockWaiter};
use percolator::{Percolator, Timestamp};
use serde_json::{Value, json};

use crate::clock;
use crate::cmd::cell;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::output::{Column, grouped};
use crate::program::Elsewhere;
use crate::store::{StoreArgs, at_work};

/// Look at the locks of transactions that have not ended, or resolve them.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator locks ls --older 10s --data D")]
pub(crate) enum Locks {
    Ls(Ls),
    Resolve(Resolve),
}

impl Locks {
    /// Where the command runs if another process has its directory open.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        match self {
            Locks::Ls(_) => Elsewhere::Reads,
            Locks::Resolve(_) => Elsewhere::Writes,
        }
    }

    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Locks::Ls(ls) => ls.run(context).await,
            Locks::Resolve(resolve) => resolve.run(context).await,
        }
    }
}

/// A filter of locks.
#[derive(Debug, Args)]
struct Which {
    /// Only locks that were last written longer ago than this, by the owner's wall clock.
    #[arg(long, value_name = "DURATION", value_parser = clock::duration, default_value = "0s")]
    older: Duration,
    /// Only locks in this table.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Only locks in rows that begin with this text.
    #[arg(long, value_name = "ROW")]
    prefix: Option<String>,
    /// Only locks of the transaction with this start timestamp.
    #[arg(long, value_name = "TS")]
    transaction: Option<u64>,
}

/// A lock, and how long ago its owner wrote it.
struct Held {
    lock: LockView,
    age: Duration,
}

impl Which {
    /// Returns the locks that match, the oldest first.
    async fn held(&self, db: &Percolator) -> anyhow::Result<Vec<Held>> {
        let prefix = self.prefix.as_deref().map(keys::bytes).transpose()?.unwrap_or_default();
        let transaction = self.transaction.map(keys::timestamp).transpose()?;
        let now = clock::now_ms();
        let held = db.held_locks(usize::MAX).await?.into_iter().map(|lock| Held {
            age: Duration::from_millis(now.saturating_sub(lock.wall_ms)),
            lock,
        });
        let is_wanted = |held: &Held| {
            held.age >= self.older
                && self.table.as_ref().is_none_or(|table| *table == held.lock.cell.table)
                && held.lock.cell.row.as_bytes().starts_with(&prefix)
                && transaction.is_none_or(|transaction| transaction == held.lock.start_ts)
        };
        let mut held: Vec<Held> = held.filter(is_wanted).collect();
        held.sort_by_key(|held| std::cmp::Reverse(held.age));
        Ok(held)
    }
}

/// Returns the fates of transactions. Each transaction's primary lock is looked up once.
#[derive(Default)]
struct Fates(BTreeMap<Timestamp, LockFate>);

impl Fates {
    async fn of(&mut self, db: &Percolator, lock: &LockView) -> anyhow::Result<LockFate> {
        if let Some(fate) = self.0.get(&lock.start_ts) {
            return Ok(*fate);
        }
        let fate = db.lock_fate(lock).await?;
        self.0.insert(lock.start_ts, fate);
        Ok(fate)
    }
}

/// List locks, the oldest first.
///
/// Each line has the lock's age by the owner's wall clock, its transaction, cell, owner and
/// primary. It also has the readers that wait for the lock, and what will become of the lock.
///
/// The waiting readers are those of the process that has the store open. In a cluster they are
/// those of all processes, as far as the status rows name them.
///
/// This command resolves nothing. The next client that reads or writes the cell resolves the
/// lock, and so does `locks resolve`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator locks ls --older 10s --table accounts --json --data D")]
pub(crate) struct Ls {
    #[command(flatten)]
    which: Which,
    /// List at most this many locks.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    #[command(flatten)]
    store: StoreArgs,
}

impl Ls {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let db = self.store.open_existing_alone().await?;
        let (mut rows, mut fates) = (Vec::new(), Fates::default());
        let mut array = out.json_array();
        let held = self.which.held(&db).await?;
        let waiters = at_work(&db).lock_waiters().await?;
        for Held { lock, age } in held.iter().take(self.limit) {
            let fate = fates.of(&db, lock).await?;
            let of = |w: &&LockWaiter| w.lock_ts == lock.start_ts && w.cell == lock.cell;
            let waiters: Vec<&LockWaiter> = waiters.iter().filter(of).collect();
            if out.json {
                let mut value = held_json(lock, *age, fate);
                value["waiters"] = waiters.iter().copied().map(waiter_json).collect();
                array.push(&value)?;
            } else {
                let mut row = row(lock, *age, &verdict(fate));
                row.insert(row.len() - 1, waiting(&waiters));
                rows.push(row);
            }
        }
        if held.len() > self.limit {
            let (shown, all) = (grouped(self.limit as u64), grouped(held.len() as u64));
            out.note(&format!("{shown} of {all} locks: --limit shows more"));
        }
        if out.json {
            array.finish()?;
        } else if rows.is_empty() {
            out.note("no locks");
        } else {
            let mut header = header("verdict");
            header.insert(header.len() - 1, Column::left("waiters"));
            out.table(&header, rows)?;
        }
        Ok(Exit::Done)
    }
}

/// Resolve locks as the next reader of each cell would.
///
/// A committed transaction's lock becomes its write record. The lock of a transaction that was
/// rolled back, or whose owner is dead, is removed. The lock of an owner who lives stays, and the
/// exit status is 1.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator locks resolve --older 1m --dry-run --data D
  percolator locks resolve --table accounts --prefix user/ --json --data D")]
pub(crate) struct Resolve {
    #[command(flatten)]
    which: Which,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    store: StoreArgs,
}

impl Resolve {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let db = self.store.open_existing_alone().await?;
        let held = self.which.held(&db).await?;
        let (mut rows, mut fates) = (Vec::new(), Fates::default());
        let (mut done, mut stay) = (0, 0);
        let mut array = out.json_array();
        for Held { lock, age } in &held {
            let (text, mut value) = if self.dry_run {
                let fate = fates.of(&db, lock).await?;
                count(fate == LockFate::OwnerAlive, &mut stay, &mut done);
                (verdict(fate), held_json(lock, *age, fate))
            } else {
                let end = db.resolve_lock(lock).await?;
                count(end == LockEnd::OwnerAlive, &mut stay, &mut done);
                let mut value = cell::lock_json(lock);
                value["end"] = end_json(end);
                (end_text(end), value)
            };
            if out.json {
                value["age_s"] = age.as_secs_f64().into();
                array.push(&value)?;
            } else {
                rows.push(row(lock, *age, &text));
            }
        }
        if out.json {
            array.finish()?;
        } else if !rows.is_empty() {
            out.table(&header(if self.dry_run { "verdict" } else { "outcome" }), rows)?;
        }
        self.verdict(context, done, stay)
    }

    fn verdict(&self, context: &Context, done: u64, stay: u64) -> anyhow::Result<Exit> {
        let would = if self.dry_run { "would be " } else { "" };
        context.out.note(&format!("{} locks {would}resolved", grouped(done)));
        if stay == 0 || self.dry_run {
            return Ok(Exit::Done);
        }
        Err(Failure::no(
            format!("{} locks stay: their owners live and may still commit", grouped(stay)),
            "if those processes hang, end them; `percolator locks ls` shows the owners",
        ))
    }
}

fn count(stays: bool, stay: &mut u64, done: &mut u64) {
    *if stays { stay } else { done } += 1;
}

fn header(last: &str) -> Vec<Column> {
    let mut columns = vec![Column::right("age"), Column::right("transaction")];
    columns.extend(["cell", "owner", "primary", last].map(Column::left));
    columns
}

fn row(lock: &LockView, age: Duration, end: &str) -> Vec<String> {
    let primary = lock.primary.as_ref().map_or("itself".to_owned(), ToString::to_string);
    let owner = lock.owner.to_string();
    vec![
        clock::age(age),
        lock.start_ts.to_string(),
        lock.cell.to_string(),
        owner[..owner.len().min(8)].to_owned(),
        primary,
        end.to_owned(),
    ]
}

fn verdict(fate: LockFate) -> String {
    match fate {
        LockFate::RollForward(commit_ts) => format!("roll forward: committed @ {commit_ts}"),
        LockFate::RollBack => "roll back".to_owned(),
        LockFate::OwnerDead => "owner dead: will be rolled back".to_owned(),
        LockFate::OwnerAlive => "owner lives: may still commit".to_owned(),
    }
}

/// The readers that wait for a lock: how many, and for how long the first has.
fn waiting(waiters: &[&LockWaiter]) -> String {
    match waiters.iter().map(|waiter| waiter.waited).max() {
        None => "none".to_owned(),
        Some(longest) => format!("{} for {}", grouped(waiters.len() as u64), clock::age(longest)),
    }
}

fn waiter_json(waiter: &LockWaiter) -> Value {
    json!({ "at": waiter.at.as_u64(), "waited_s": waiter.waited.as_secs_f64() })
}

fn end_text(end: LockEnd) -> String {
    match end {
        LockEnd::RolledForward(commit_ts) => format!("rolled forward: committed @ {commit_ts}"),
        LockEnd::RolledBack => "rolled back".to_owned(),
        LockEnd::Gone => "was gone already".to_owned(),
        LockEnd::OwnerAlive => "stays: owner lives".to_owned(),
    }
}

fn end_json(end: LockEnd) -> Value {
    match end {
        LockEnd::RolledForward(commit_ts) => {
            json!({ "kind": "rolled_forward", "commit_ts": commit_ts.as_u64() })
        }
        LockEnd::RolledBack => json!({ "kind": "rolled_back" }),
        LockEnd::Gone => json!({ "kind": "gone" }),
        LockEnd::OwnerAlive => json!({ "kind": "owner_alive" }),
    }
}

fn held_json(lock: &LockView, age: Duration, fate: LockFate) -> Value {
    let mut value = cell::lock_json(lock);
    value["age_s"] = age.as_secs_f64().into();
    value["verdict"] = match fate {
        LockFate::RollForward(commit_ts) => {
            json!({ "kind": "roll_forward", "commit_ts": commit_ts.as_u64() })
        }
        LockFate::RollBack => json!({ "kind": "roll_back" }),
        LockFate::OwnerDead => json!({ "kind": "owner_dead" }),
        LockFate::OwnerAlive => json!({ "kind": "owner_alive" }),
    };
    value
}
