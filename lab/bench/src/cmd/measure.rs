//! The flags that benchmarks of arms and figures share, and what becomes of their findings.

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};

use super::common::Common;
use crate::Turns;
use crate::findings::Findings;

/// Seconds to measure each arm for, in a full run and in a quick one.
const SECONDS: f64 = 10.0;
const QUICK_SECONDS: f64 = 2.0;

#[derive(Debug, Args)]
pub(super) struct Measure {
    #[command(flatten)]
    pub(super) common: Common,
    /// Seconds to measure each arm for [default: 10, quick: 2].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
}

impl Measure {
    /// How long the arms take turns. Makes the directory for the results.
    pub(super) fn turns(&self, context: &Context) -> anyhow::Result<Turns> {
        let seconds = self.seconds.unwrap_or(self.common.sized(QUICK_SECONDS, SECONDS));
        if !(0.01..=600.0).contains(&seconds) {
            let what = format!("--seconds {seconds}");
            return Err(Failure::usage(what, "give 0.01 to 600 seconds"));
        }
        self.common.prepare(context)?;
        Ok(Turns { seconds, seed: self.common.seed })
    }

    /// Measures, and tells what was found.
    pub(super) async fn tell(
        &self,
        context: &Context,
        run: impl Future<Output = anyhow::Result<Option<Findings>>>,
    ) -> anyhow::Result<Exit> {
        let Some(findings) = super::told(context, run).await? else {
            return Ok(Exit::Interrupted);
        };
        let json = findings.json();
        let plot = findings.plot.clone().map(|svg| (format!("{}.svg", findings.name), svg));
        self.common.write(findings.name, &json, plot.into_iter().collect())?;
        if context.out.json {
            context.out.json(&json)?
        } else {
            findings.print(context.out)?
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
