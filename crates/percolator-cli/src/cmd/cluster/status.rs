//! `cluster status`: shows which processes of a local cluster run, which oracle leads, and which
//! worker writes the search index.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::look::{self, Look, Seen, State};
use super::plan::{Place, Plan};
use crate::clock;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::Column;

/// Show which processes of a cluster run, which oracle leads, and which worker writes the search
/// index.
///
/// A process hangs if it is stopped, or does not answer within two seconds. A worker also hangs if
/// it writes the search index and has reported nothing for 30 seconds. The exit status is 1 if a
/// process does not run, hangs or does not serve, or if no oracle leads.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator cluster status --json --data D")]
pub(crate) struct Status {
    /// The directory of the cluster.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

impl Status {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let (place, plan) = Place::find(&self.data)?;
        show(context, &place, &plan, &look::at(&place, &plan).await?)
    }
}

/// Prints the state of a cluster. The exit code says whether every process serves and an oracle
/// leads.
pub(super) fn show(
    context: &Context,
    place: &Place,
    plan: &Plan,
    look: &Look,
) -> anyhow::Result<Exit> {
    let exit = if look.is_well() { Exit::Done } else { Exit::No };
    if context.out.json {
        context.out.json(&in_json(place, plan, look))?;
        return Ok(exit);
    }
    let header = [
        Column::left("process"),
        Column::left("state"),
        Column::right("pid"),
        Column::left("address"),
    ];
    let row = |seen: &Seen| {
        vec![
            seen.role.to_string(),
            in_words(look, seen),
            seen.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            seen.address.map(|address| address.to_string()).unwrap_or_default(),
        ]
    };
    context.out.table(&header, look.processes.iter().map(row).collect())?;
    for seen in look.processes.iter().filter(|seen| seen.state == State::Hangs) {
        context.out.warn(&format!(
            "{} hangs: continue it, or end process {} and run `percolator cluster up` again",
            seen.role,
            seen.pid.unwrap_or_default()
        ));
    }
    match &look.leader {
        Ok(Some(_)) => {}
        Ok(None) => context.out.warn("no oracle leads at the moment"),
        Err(error) => context.out.warn(&format!("the leading oracle is unknown: {error:#}")),
    }
    if let Err(error) = &look.writer {
        context.out.warn(&format!("the writer of the search index is unknown: {error:#}"));
    }
    Ok(exit)
}

fn leads(look: &Look, seen: &Seen) -> bool {
    seen.pid.is_some() && matches!(&look.leader, Ok(Some(leader)) if seen.is_at(leader))
}

fn in_words(look: &Look, seen: &Seen) -> String {
    let mut text = seen.state.name().to_owned();
    if leads(look, seen) {
        text.push_str(", leads");
    }
    if let Some(writer) = look.writer_in(seen) {
        let silent = clock::age(Duration::from_millis(writer.silent_ms));
        text.push_str(&format!(", writes the search index (reported {silent} ago)"));
    }
    text
}

fn in_json(place: &Place, plan: &Plan, look: &Look) -> Value {
    let process = |seen: &Seen| {
        json!({
            "role": seen.role.to_string(),
            "state": seen.state.name(),
            "pid": seen.pid,
            "address": seen.address.map(|address| address.to_string()),
            "leads": leads(look, seen),
            "writes_search": look.writer_in(seen).is_some(),
            "log": place.log(seen.role).display().to_string(),
        })
    };
    json!({
        "well": look.is_well(), "store": plan.store, "locks": plan.locks,
        "leader": look.leader.as_ref().ok().cloned().flatten(),
        "writer": look.writer.as_ref().ok().cloned().flatten(),
        "config": place.settings_file().display().to_string(),
        "processes": look.processes.iter().map(process).collect::<Vec<_>>(),
    })
}
