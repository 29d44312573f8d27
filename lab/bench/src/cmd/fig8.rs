//! `percolator-bench fig8`.

use std::path::PathBuf;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::grouped;

use super::measure::Measure;
use crate::cmd::{Place, told};
use crate::fig8::{self, Beside, CELLS_MAX, Settings, TEN};

/// Most callers: PostgreSQL has a connection for each.
const CALLERS_MAX: usize = 128;

/// Reads and writes of single cells, transactional over raw (the paper's Figure 8).
///
/// Embedded, buffered and synced, with one caller and with many; from the paper's form to the
/// default, one optimisation after the other; over our server and Google's emulator; and beside the
/// bare engine, its own transactions and PostgreSQL. All data cached. The arms take turns in blocks
/// of half a second at most, in an order drawn from the seed; a ratio is the median of the ratios
/// of each round. At the end everything that was written is read again: exit status 3, and no
/// result, when it is not there, or when readers had to read files.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench fig8 --quick --out results
  percolator-bench fig8 --data /mnt/disk/bench --without postgres --json")]
pub(crate) struct Fig8 {
    #[command(flatten)]
    measure: Measure,
    /// How many cells there are in each copy.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    cells: usize,
    /// How many callers the arms for many have.
    #[arg(long, value_name = "N", default_value_t = 64)]
    callers: usize,
    /// The program of Google's emulator.
    #[arg(long, value_name = "PROGRAM")]
    emulator: Option<PathBuf>,
    /// Leave out what runs beside; may be repeated.
    #[arg(long, value_enum, value_name = "WHAT")]
    without: Vec<Beside>,
    /// A new directory for the data, which stays; a temporary one when it is left away.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Fig8 {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let settings = self.settings(context)?;
        let place = Place::of(self.data.as_deref())?;
        let settings = Settings { dir: place.dir().to_owned(), ..settings };
        let Some(result) = told(context, fig8::run(context, &settings)).await? else {
            return Ok(Exit::Interrupted);
        };
        let json = fig8::json(&settings, &result);
        let plot = ("fig8.svg".to_owned(), fig8::plot(&settings, &result));
        self.measure.common.write("fig8", &json, vec![plot])?;
        let broken = fig8::broken(&result);
        if !broken.is_empty() {
            let help = "the figures are void; measure fewer cells (--cells) where they are not in memory, and \
                        report anything else with the settings above";
            return Err(Failure::error(Exit::Violated, broken.join("; "), help));
        }
        if context.out.json {
            context.out.json(&json)?
        } else {
            fig8::print(context.out, &settings, &result)?
        }
        for missing in &result.missing {
            context.out.warn(&format!("left out: {missing}"));
        }
        Ok(Exit::Done)
    }

    fn settings(&self, context: &Context) -> anyhow::Result<Settings> {
        if !(1..=CALLERS_MAX).contains(&self.callers) {
            let help = format!("give 1 to {CALLERS_MAX} callers");
            return Err(Failure::usage(format!("--callers {}", self.callers), help));
        }
        // Callers share no cell, and a larger transaction writes several.
        let least = self.callers.max(TEN);
        if !(least..=CELLS_MAX).contains(&self.cells) {
            let help = format!("give {least} to {} cells", grouped(CELLS_MAX as u64));
            return Err(Failure::usage(format!("--cells {}", self.cells), help));
        }
        Ok(Settings {
            turns: self.measure.turns(context)?,
            quick: self.measure.common.quick,
            cells: self.cells,
            callers: self.callers,
            emulator: self.emulator.clone(),
            without: self.without.clone(),
            dir: PathBuf::new(),
        })
    }
}
