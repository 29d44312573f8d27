//! `doctor`: examines the store of a cluster, and names what to mend.

use std::path::PathBuf;

use bigtable::{Finding, Verdict};
use clap::Args;
use serde_json::json;

use crate::cmd::config;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Column;

/// Examine the store of a cluster: its version, the settings of its servers, its tables.
///
/// Settings that cannot be read are reported as unknown. The exit status is 3 if something is
/// wrong: data may be lost, or requests are refused.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator doctor --store hbase://127.0.0.1:16000/percolator
  percolator doctor --config D/percolator.toml --json")]
pub(crate) struct Doctor {
    /// The store, instead of the one in the settings: bigtable://HOST:PORT/PROJECT/INSTANCE or
    /// hbase://HOST:PORT/NAMESPACE.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The settings of the cluster, instead of those in the usual files.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Doctor {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let mut settings = config::load_from(self.config.as_deref())?;
        if let Some(store) = &self.store {
            settings.set("--store", "store", store).map_err(config::with_advice)?;
        }
        let findings = settings.examine_store().await.map_err(config::with_advice)?;
        if context.out.json {
            let all: Vec<_> = findings.iter().map(as_json).collect();
            context.out.json(&json!(all))?;
        } else {
            let header = ["", "", "found"].map(Column::left);
            let row = |one: &Finding| {
                vec![one.verdict.name().to_owned(), one.about.clone(), one.found.clone()]
            };
            context.out.table(&header, findings.iter().map(row).collect())?;
            for finding in &findings {
                if let Some(help) = &finding.help {
                    context.out.line(&format!("\n{}: {help}", finding.about))?;
                }
            }
        }
        match findings.iter().filter(|one| one.verdict == Verdict::Wrong).count() {
            0 => Ok(Exit::Done),
            count => Err(Failure::error(
                Exit::Violated,
                format!("{count} findings are wrong"),
                "mend each as described above, then run the command again",
            )),
        }
    }
}

fn as_json(finding: &Finding) -> serde_json::Value {
    let Finding { about, verdict, found, help } = finding;
    json!({ "about": about, "verdict": verdict.name(), "found": found, "help": help })
}
