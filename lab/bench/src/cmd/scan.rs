//! `percolator-bench scan`.

use std::path::PathBuf;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::exit::{Exit, Failure};
use percolator_cli::output::grouped;

use super::measure::Measure;
use crate::cmd::{Place, told};
use crate::scan::{self, ROWS_AT_ONCE, Settings};

/// Cells of each table that is scanned, at most.
const CELLS_MAX: usize = 1_000_000;
/// Clean cells and notifications, at most.
const CLEAN_MAX: usize = 100_000_000;
/// Few clean cells.
const FEW: usize = 100_000;

/// Scans of a snapshot against the store's own, and of notifications among clean cells.
///
/// Cells with one version and with ten that nothing collects. Then a thousand dirty cells that
/// workers find by scanning alone, among few clean cells and among many: at first, after the store
/// was opened again, and after many notifications were processed. The arms take turns in blocks of
/// half a second at most, in an order drawn from the seed. Everything that a scan returns is looked
/// at, and every notification must be processed exactly once: exit status 3, and no result,
/// otherwise.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench scan --quick --out results
  percolator-bench scan --clean 10000000 --data /mnt/disk/bench --json")]
pub(crate) struct Scan {
    #[command(flatten)]
    measure: Measure,
    /// How many cells there are in each table that is scanned.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    cells: usize,
    /// How many clean cells are many, at a hundred and fifty bytes each [default: 10000000, or
    /// 1000000 with --quick].
    #[arg(long, value_name = "N")]
    clean: Option<usize>,
    /// How many clean cells are few.
    #[arg(long, value_name = "N", default_value_t = FEW)]
    few: usize,
    /// How many cells are dirty at a time.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    dirty: usize,
    /// How many notifications are processed before the last look [default: 1000000, or 100000 with
    /// --quick].
    #[arg(long, value_name = "N")]
    processed: Option<usize>,
    /// A new directory for the data, which stays; a temporary one when it is left away.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Scan {
    pub(super) async fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let settings = self.settings(context)?;
        let place = Place::of(self.data.as_deref())?;
        let settings = Settings { dir: place.dir().to_owned(), ..settings };
        let Some(result) = told(context, scan::run(context, &settings)).await? else {
            return Ok(Exit::Interrupted);
        };
        let json = scan::json(&settings, &result);
        let plot = ("scan.svg".to_owned(), scan::plot(&settings, &result));
        self.measure.common.write("scan", &json, vec![plot])?;
        if !result.check.is_ok() {
            let wrong = grouped(result.check.wrong);
            return Err(Failure::error(
                Exit::Violated,
                format!("{wrong} rows were not as they were written, or a notification was lost"),
                "the figures are void; please report this with the settings above",
            ));
        }
        if context.out.json {
            context.out.json(&json)?
        } else {
            scan::print(context.out, &settings, &result)?
        }
        Ok(Exit::Done)
    }

    fn settings(&self, context: &Context) -> anyhow::Result<Settings> {
        let quick = |quick, full| if self.measure.common.quick { quick } else { full };
        let clean = self.clean.unwrap_or(quick(1_000_000, 10_000_000));
        let processed = self.processed.unwrap_or(quick(100_000, 1_000_000));
        let range = |what: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let help = format!("give {} to {}", grouped(least as u64), grouped(most as u64));
            Err(Failure::usage(format!("{what} {value}"), help))
        };
        range("--cells", self.cells, ROWS_AT_ONCE, CELLS_MAX)?;
        range("--dirty", self.dirty, 1, self.few)?;
        range("--few", self.few, 1, CLEAN_MAX)?;
        range("--clean", clean, self.few, CLEAN_MAX)?;
        range("--processed", processed, 0, CLEAN_MAX)?;
        Ok(Settings {
            turns: self.measure.turns(context)?,
            quick: self.measure.common.quick,
            cells: self.cells,
            clean: [self.few, clean],
            dirty: self.dirty,
            processed,
            dir: PathBuf::new(),
        })
    }
}
