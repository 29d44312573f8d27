//! Flags that benchmarks have in common.

use std::path::PathBuf;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::Failure;
use serde_json::Value;

/// How large a run is, its seed, and where its results go.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Smaller and shorter: three minutes at most, on two cores.
    #[arg(long)]
    pub(super) quick: bool,
    /// Seed of all that is drawn: data, requests, the order of turns.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Write the figures to NAME.json in this directory, and plots beside it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Common {
    /// One of two defaults.
    pub(super) fn sized<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Makes the directory for the results: before the run, which may be long.
    pub(super) fn prepare(&self, context: &Context) -> anyhow::Result<()> {
        if let Some(out) = &self.out {
            std::fs::create_dir_all(out).map_err(|error| {
                let what = format!("{}: {error}", out.display());
                Failure::usage(what, "name a directory that can be written to with --out")
            })?;
        }
        if cfg!(debug_assertions) {
            context.out.warn("this build is not optimised: build with --release for real figures");
        }
        Ok(())
    }

    /// Writes NAME.json, and plots by the names of their files.
    pub(super) fn write(
        &self,
        name: &str,
        figures: &Value,
        plots: Vec<(String, String)>,
    ) -> anyhow::Result<()> {
        let Some(out) = &self.out else { return Ok(()) };
        std::fs::write(out.join(format!("{name}.json")), format!("{figures:#}\n"))?;
        for (name, svg) in plots {
            std::fs::write(out.join(name), svg)?;
        }
        Ok(())
    }
}
