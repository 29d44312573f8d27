//! The flags that benchmarks of arms and figures share, and what becomes of their findings.

use std::path::PathBuf;

use clap::Args;

use crate::bench::Turns;
use crate::bench::findings::Findings;
use crate::cmd::Context;
use crate::exit::{Exit, Failure};

/// Seconds to measure each arm for, in a full run and in a quick one.
const SECONDS: f64 = 10.0;
const QUICK_SECONDS: f64 = 2.0;

#[derive(Debug, Args)]
pub(super) struct Measure {
    /// Shorter.
    #[arg(long)]
    pub(super) quick: bool,
    /// Seconds to measure each arm for [default: 10, quick: 2].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Seed of the order of arms, and of whatever is random in them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the figures, and a plot of them, to files in this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Measure {
    /// How long the arms take turns. Creates the directory of the results, so that nobody waits for
    /// figures that cannot be written.
    pub(super) fn turns(&self) -> anyhow::Result<Turns> {
        let default = if self.quick { QUICK_SECONDS } else { SECONDS };
        let seconds = self.seconds.unwrap_or(default);
        if !(0.01..=600.0).contains(&seconds) {
            let what = format!("--seconds {seconds}");
            return Err(Failure::usage(what, "give 0.01 to 600 seconds"));
        }
        if let Some(out) = &self.out {
            std::fs::create_dir_all(out).map_err(|error| {
                let what = format!("{}: {error}", out.display());
                Failure::usage(what, "name a directory that can be written to with --out")
            })?;
        }
        Ok(Turns { seconds, seed: self.seed })
    }

    /// Measures, and tells what was found.
    pub(super) async fn tell(
        &self,
        context: &Context,
        run: impl Future<Output = anyhow::Result<Option<Findings>>>,
    ) -> anyhow::Result<Exit> {
        let Some(findings) = super::measured(context, run).await? else {
            return Ok(Exit::Interrupted);
        };
        let json = findings.json();
        if let Some(out) = &self.out {
            std::fs::write(out.join(format!("{}.json", findings.name)), format!("{json:#}\n"))?;
            if let Some(svg) = &findings.plot {
                std::fs::write(out.join(format!("{}.svg", findings.name)), svg)?;
            }
        }
        match context.out.json {
            true => context.out.json(&json)?,
            false => findings.print(context.out)?,
        }
        let broken: Vec<String> =
            findings.broken().map(|c| format!("\n  {}: {}", c.name, c.found)).collect();
        if broken.is_empty() {
            return Ok(Exit::Done);
        }
        Err(Failure::error(
            Exit::Violated,
            format!("the figures are void:{}", broken.concat()),
            "please report this with the settings above",
        ))
    }
}
