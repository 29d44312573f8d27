//! `config`: shows the settings of a cluster, and what settings there are.

mod reference;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::Column;

/// Look at the settings of a cluster.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  percolator config view --sources")]
pub(crate) enum Config {
    View(View),
    Reference(reference::Reference),
}

impl Config {
    pub(crate) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        match self {
            Config::View(view) => view.run(context),
            Config::Reference(reference) => reference.run(context),
        }
    }
}

/// Show the settings in force.
///
/// The settings come from /etc/percolator/percolator.toml, percolator/config.toml in
/// $XDG_CONFIG_HOME, ./percolator.toml and the environment (PERCOLATOR_LOCKS__KIND for
/// locks.kind). A later source overrides an earlier one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator config view --config D/percolator.toml
  PERCOLATOR_ORACLES=10.0.0.1:7070,10.0.0.2:7070 percolator config view --sources")]
pub(crate) struct View {
    /// Show the source of each setting.
    #[arg(long)]
    sources: bool,
    /// Read this file instead of the usual ones.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Loads the settings of this process.
pub(crate) fn load() -> anyhow::Result<percolator::cluster::Config> {
    load_from(None)
}

/// Loads the settings of this process, from `file` instead of the usual files if it is given.
pub(crate) fn load_from(file: Option<&Path>) -> anyhow::Result<percolator::cluster::Config> {
    let loaded = match file {
        Some(file) => percolator::cluster::Config::load_file(file),
        None => percolator::cluster::Config::load(),
    };
    loaded.map_err(with_advice)
}

/// Converts an error of the settings, and adds the next step.
pub(crate) fn with_advice(error: percolator::Error) -> anyhow::Error {
    match error {
        percolator::Error::Invalid { what, .. } => {
            Failure::usage(what, "`percolator config view --help` says where settings come from")
        }
        error => error.into(),
    }
}

impl View {
    fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let config = load_from(self.config.as_deref())?;
        if context.out.json {
            let settings = config.settings().map(|(key, value, source)| {
                if self.sources {
                    (key.to_owned(), json!({ "value": value, "source": source }))
                } else {
                    (key.to_owned(), json!(value))
                }
            });
            context.out.json(&settings.collect::<Value>())?;
            return Ok(Exit::Done);
        }
        let mut header = vec![Column::left("setting"), Column::left("value")];
        header.extend(self.sources.then(|| Column::left("source")));
        let rows = config.settings().map(|(key, value, source)| {
            let mut row = vec![key.to_owned(), value.to_string()];
            row.extend(self.sources.then(|| source.to_owned()));
            row
        });
        context.out.table(&header, rows.collect())?;
        Ok(Exit::Done)
    }
}
