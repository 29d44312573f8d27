//! `cluster status`: shows which processes of a local cluster run, and which oracle leads.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use percolator::cluster::{Config, OracleNode};
use serde_json::{Value, json};

use super::plan::{Place, Plan};
use super::process;
use crate::cmd::config;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::Column;

/// How long the store may take to return the leading oracle.
const LEADER_MAX: Duration = Duration::from_secs(3);

/// Show which processes of a cluster run, and which oracle leads.
///
/// The exit status is 1 if a process does not run or no oracle leads.
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
        if show(context, &place, &plan).await? { Ok(Exit::Done) } else { Ok(Exit::No) }
    }
}

/// Prints the state of a cluster. Returns true if every process runs and an oracle leads.
pub(super) async fn show(context: &Context, place: &Place, plan: &Plan) -> anyhow::Result<bool> {
    let leader = leader(place).await;
    let mut well = leader.as_ref().is_ok_and(Option::is_some);
    let (mut rows, mut processes) = (Vec::new(), Vec::new());
    for role in plan.roles() {
        let pid = process::pid(place, role)?;
        let address = plan.address(role).map(|address| address.to_string());
        let leads = address.is_some() && leader.as_ref().is_ok_and(|leader| *leader == address);
        well &= pid.is_some();
        processes.push(json!({
            "role": role.to_string(), "pid": pid, "address": address, "leads": leads,
            "log": place.log(role).display().to_string(),
        }));
        let state = match (pid, leads) {
            (None, _) => "does not run",
            (Some(_), true) => "runs, leads",
            (Some(_), false) => "runs",
        };
        rows.push(vec![
            role.to_string(),
            state.to_owned(),
            pid.map(|pid| pid.to_string()).unwrap_or_default(),
            address.unwrap_or_default(),
        ]);
    }
    if context.out.json {
        context.out.json(&json!({
            "well": well, "store": plan.store, "locks": plan.locks,
            "leader": leader.as_ref().ok().cloned().flatten(),
            "config": place.settings_file().display().to_string(),
            "processes": Value::from(processes),
        }))?;
        return Ok(well);
    }
    let header = [
        Column::left("process"),
        Column::left("state"),
        Column::right("pid"),
        Column::left("address"),
    ];
    context.out.table(&header, rows)?;
    match &leader {
        Ok(Some(_)) => {}
        Ok(None) => context.out.warn("no oracle leads at the moment"),
        Err(error) => context.out.warn(&format!("the leading oracle is unknown: {error:#}")),
    }
    Ok(well)
}

/// Returns the address of the leading oracle, as the store has it.
async fn leader(place: &Place) -> anyhow::Result<Option<String>> {
    // The environment may name another cluster: only the settings of this one are read.
    let mut config = Config::default();
    config.add_file(&place.settings_file()).map_err(config::with_advice)?;
    let ask = async {
        let store = config.open_store().await?;
        OracleNode::leader(&*store).await
    };
    match tokio::time::timeout(LEADER_MAX, ask).await {
        Ok(leader) => Ok(leader?),
        Err(_) => anyhow::bail!("{} did not answer", config.store().map_err(config::with_advice)?),
    }
}
