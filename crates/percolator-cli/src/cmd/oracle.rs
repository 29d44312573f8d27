//! `oracle status`: shows whether the oracle of a cluster answers, and its latest timestamp.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use percolator::cluster::Oracle as _;
use percolator_rpc::oracle::{RemoteOracle, RemoteOracleOptions};
use serde_json::json;

use crate::cmd::config;
use crate::context::Context;
use crate::exit::Exit;
use crate::output::Column;

/// Look at the oracle of a cluster.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator oracle status --oracles 127.0.0.1:7070")]
pub(crate) enum Oracle {
    Status(Status),
}

impl Oracle {
    pub(crate) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Oracle::Status(status) => status.run(context).await,
        }
    }
}

/// Show the latest timestamp and the version of the observer schema. No timestamp is issued.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator oracle status --config D/percolator.toml
  percolator oracle status --oracles 127.0.0.1:7070,127.0.0.1:7071 --json")]
pub(crate) struct Status {
    /// The oracle processes, instead of those in the settings (`percolator config view`).
    #[arg(long, value_name = "HOST:PORT,...")]
    oracles: Option<String>,
    /// The settings of the cluster, instead of those in the usual files.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The number of seconds to try for.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u16,
}

impl Status {
    async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let mut settings = config::load_from(self.config.as_deref())?;
        if let Some(oracles) = &self.oracles {
            settings.set("--oracles", "oracles", oracles).map_err(config::with_advice)?;
        }
        let cluster = settings.cluster().map_err(config::with_advice)?;
        let deadline = Duration::from_secs(self.timeout.into());
        let options =
            RemoteOracleOptions { tls: cluster.tls, deadline, ..RemoteOracleOptions::default() };
        let oracle = RemoteOracle::new(cluster.oracles, options)?;
        let latest = oracle.peek().await?;
        let since = Instant::now();
        let schema_version = oracle.schema_version().await?;
        let micros = since.elapsed().as_micros() as u64;
        if context.out.json {
            context.out.json(&json!({
                "latest_ts": latest.as_u64(),
                "schema_version": schema_version,
                "round_trip_us": micros,
            }))?;
            return Ok(Exit::Done);
        }
        let rows = [
            ("latest timestamp", latest.to_string()),
            ("observer schema", schema_version.to_string()),
            ("round trip", format!("{micros} µs")),
        ];
        let rows = rows.map(|(name, value)| vec![name.to_owned(), value]);
        context.out.table(&[Column::left("oracle"), Column::right("")], rows.to_vec())?;
        Ok(Exit::Done)
    }
}
