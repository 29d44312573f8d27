//! `observers failing|replay|skip`: lists the changes that observers keep failing at, brings them
//! back, or drops them.

use clap::Args;
use percolator::observe::SetAside;
use percolator::{Percolator, RowKey};
use serde_json::{Value, json};

use crate::clock;
use crate::cmd::observers::confirm;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::output::{Column, grouped};
use crate::store::{StoreArgs, at_work};

const NOTHING: &str = "`percolator observers failing` lists the changes that are set aside";

/// A filter of changes.
#[derive(Debug, Args)]
struct Which {
    /// Only changes that this observer fails at.
    name: Option<String>,
    /// Only changes of cells in this table.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Only changes in rows that begin with this text.
    #[arg(long, value_name = "ROW")]
    prefix: Option<String>,
    /// Only changes whose last error contains this text.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
}

impl Which {
    async fn set_aside(&self, db: &Percolator) -> anyhow::Result<Vec<SetAside>> {
        let matches = self.filter()?;
        let mut found = db.set_aside().await?;
        found.retain(|aside| matches(&aside.observer, &aside.table, &aside.row, &aside.error));
        Ok(found)
    }

    async fn retrying(&self, db: &Percolator) -> anyhow::Result<Vec<percolator::observe::Failing>> {
        let matches = self.filter()?;
        let mut found = at_work(db).all_failing().await?;
        found.retain(|cell| matches(&cell.observer, &cell.table, &cell.row, &cell.error));
        Ok(found)
    }

    /// Whether a failure of an observer, table, row and error is among these.
    fn filter(&self) -> anyhow::Result<impl Fn(&str, &str, &RowKey, &str) -> bool> {
        let prefix = self.prefix.as_deref().map(keys::bytes).transpose()?.unwrap_or_default();
        let is = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|w| w == text);
        Ok(move |observer: &str, table: &str, row: &RowKey, error: &str| {
            is(&self.name, observer)
                && is(&self.table, table)
                && row.as_bytes().starts_with(&prefix)
                && self.error.as_ref().is_none_or(|text| error.contains(text))
        })
    }

    /// Returns the changes that match, or an error if there are none.
    async fn some(&self, db: &Percolator) -> anyhow::Result<Vec<SetAside>> {
        let found = self.set_aside(db).await?;
        if found.is_empty() {
            let of = self.name.as_ref().map_or(String::new(), |name| format!(" of {name}"));
            return Err(Failure::no(format!("no matching change{of} is set aside"), NOTHING));
        }
        Ok(found)
    }
}

/// List the changes that observers keep failing at, with their errors.
///
/// An observer that has failed at a change several times sets the change aside and no longer tries
/// it. It tries the other changes again. Only the process that runs the observer knows these. In a
/// cluster, each process names a few of them in its status row.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator observers failing --data D
  percolator observers failing parse --error 'not UTF-8' --json --data D")]
pub(crate) struct Failing {
    #[command(flatten)]
    which: Which,
}

impl Failing {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let out = context.out;
        let db = self.which.store.open_existing().await?;
        let (found, retrying) = (self.which.set_aside(&db).await?, self.which.retrying(&db).await?);
        let notified: Vec<_> = found.iter().map(|aside| aside.notified).collect();
        let ages = db.ages(&notified).await?;
        if out.json {
            let mut array = out.json_array();
            for (aside, age) in found.iter().zip(ages) {
                let mut value = aside_json(aside);
                value["state"] = "set_aside".into();
                value["age"] = clock::age_json(age);
                array.push(&value)?;
            }
            for cell in &retrying {
                array.push(&retrying_json(cell))?;
            }
            array.finish()?;
        } else if found.is_empty() && retrying.is_empty() {
            out.note("no observer fails");
        } else {
            let rows = found.iter().zip(ages).map(|(aside, age)| {
                vec![
                    aside.observer.clone(),
                    format!("{}/{}/{}", aside.table, aside.row, aside.column),
                    "set aside".to_owned(),
                    aside.attempts.to_string(),
                    clock::age_of(age),
                    aside.notified.to_string(),
                    aside.error.clone(),
                ]
            });
            let rows = rows.chain(retrying.iter().map(|cell| {
                vec![
                    cell.observer.clone(),
                    format!("{}/{}/{}", cell.table, cell.row, cell.column),
                    format!("next try in {}", clock::age(cell.next_attempt)),
                    cell.attempts.to_string(),
                    String::new(),
                    String::new(),
                    cell.error.clone(),
                ]
            }));
            let header = [
                Column::left("observer"),
                Column::left("cell"),
                Column::left("state"),
                Column::right("attempts"),
                Column::right("age"),
                Column::right("ts"),
                Column::left("error"),
            ];
            out.table(&header, rows.collect())?;
        }
        Ok(Exit::Done)
    }
}

/// Replay notifications that were set aside because their observer kept failing.
///
/// The observer handles them when its program runs next. The exit status is 1 if no notification
/// matches.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator observers replay parse --data D
  percolator observers replay --table docs --prefix user/ --dry-run --data D")]
pub(crate) struct Replay {
    /// Print how many changes match, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    which: Which,
}

impl Replay {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let db = self.which.store.open_existing().await?;
        let found = self.which.some(&db).await?;
        let mut replayed = 0;
        for aside in found.iter().filter(|_| !self.dry_run) {
            // Other observers that failed at the same change come back with the first one.
            replayed += u64::from(db.replay_one(aside).await?);
        }
        let matched = found.len() as u64;
        if context.out.json {
            context.out.json(&json!({ "matched": matched, "replayed": replayed }))?;
        } else if self.dry_run {
            context.out.note(&format!("would replay {}", failures(matched)));
        } else {
            context.out.note(&format!("{} notifications replayed", grouped(replayed)));
        }
        Ok(Exit::Done)
    }
}

/// Drop changes that were set aside: observers will never handle them.
///
/// Each change is acknowledged as if the observer had handled it. The observer runs again when the
/// cell changes again. The exit status is 1 if no change matches.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator observers skip parse --error 'not UTF-8' --dry-run --data D
  percolator observers skip parse --error 'not UTF-8' --yes --data D")]
pub(crate) struct Skip {
    /// Print how many changes match, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    which: Which,
}

impl Skip {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let db = self.which.store.open_existing().await?;
        let found = self.which.some(&db).await?;
        let matched = found.len() as u64;
        let question = format!("skip {} for good", failures(matched));
        if !self.dry_run && !self.yes && !confirm(&question)? {
            context.out.note("nothing was changed");
            return Ok(Exit::No);
        }
        let mut skipped = 0;
        for aside in found.iter().filter(|_| !self.dry_run) {
            skipped += u64::from(db.skip(aside).await?);
        }
        if context.out.json {
            context.out.json(&json!({ "matched": matched, "skipped": skipped }))?;
        } else if self.dry_run {
            context.out.note(&format!("would {question}"));
        } else {
            context.out.note(&format!("{} changes skipped", grouped(skipped)));
        }
        Ok(Exit::Done)
    }
}

fn failures(count: u64) -> String {
    match count {
        1 => "1 change that an observer failed at".to_owned(),
        count => format!("{} changes that observers failed at", grouped(count)),
    }
}

/// Returns changes that were set aside, in JSON.
pub(super) fn set_aside_json(set_aside: &[SetAside]) -> Value {
    set_aside.iter().map(aside_json).collect()
}

fn retrying_json(cell: &percolator::observe::Failing) -> Value {
    json!({
        "table": cell.table,
        "row": keys::json(cell.row.as_bytes()),
        "column": keys::json(cell.column.as_bytes()),
        "observer": cell.observer,
        "attempts": cell.attempts,
        "error": cell.error,
        "state": "retrying",
        "next_try_s": cell.next_attempt.as_secs_f64(),
    })
}

fn aside_json(aside: &SetAside) -> Value {
    json!({
        "table": aside.table,
        "row": keys::json(aside.row.as_bytes()),
        "column": keys::json(aside.column.as_bytes()),
        "observer": aside.observer,
        "attempts": aside.attempts,
        "error": aside.error,
        "notified_ts": aside.notified.as_u64(),
    })
}
