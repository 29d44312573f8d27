//! Measures two kinds of scans: scans of rows at a snapshot, against the store's own scan, and
//! scans by which workers find dirty cells.
//!
//! ```text
//! rows     a thousand rows in order: the store's own scan, a scan at a snapshot with one version
//!          of each cell, a scan at a snapshot with ten versions of each cell
//! notify   workers find dirty cells by scanning alone, among few clean cells and among many
//! ```
//!
//! The workers are those of the library, with an observer that only counts its runs. The time
//! of their scans is the time of their requests for pages to the store. This time leaves out the
//! work on each dirty cell.

mod notify;
mod rows;

use clap::Args;
use percolator_cli::context::Context;
use percolator_cli::output::grouped;
use percolator_cli::progress::Progress;
use serde_json::json;

use super::bed::{KEY_BYTES, VALUE_BYTES};
use crate::flags::{Measure, Place, within};
use crate::plot::{Axis, Line, Plot, Role, Unit};
use crate::report::{Figure, Report, Row, figures, rate, ratio};
use crate::turns::Measured;

use notify::World;
use rows::Rows;

/// Versions of each cell, which nobody collects.
const VERSIONS: u64 = 10;
/// Rows of one measured scan.
const ROWS_AT_ONCE: usize = 1000;
/// Memory for blocks read from disk.
const CACHE_BYTES: u64 = 512 << 20;
/// Most clean cells and notifications.
const CLEAN_MAX: usize = 100_000_000;

/// Bars of a snapshot's scan over the store's own: with one version of each cell, and with ten.
const ONE_MIN: f64 = 0.70;
const TEN_MIN: f64 = 0.35;
/// Largest ratio of the time to find dirty cells among many clean ones to the time among few.
const FOUND_MAX: f64 = 1.2;

/// The two arms of each stage of the second part: many clean cells against few, at the same
/// time.
const STAGES: [[(&str, &str); 2]; 3] = [
    [
        ("notify_few", "dirty cells found among few clean ones, and visited"),
        ("notify_many", "the same among many"),
    ],
    [
        ("notify_few_again", "notify_few"),
        ("notify_many_reopened", "notify_many, after the store was closed and opened"),
    ],
    [
        ("notify_few_last", "notify_few"),
        ("notify_many_processed", "notify_many, after many notifications were processed"),
    ],
];

/// The ratio of the times of the scans that find dirty cells.
const fn found(many: &'static str, few: &'static str) -> Row {
    ratio(many, few, " scan", |turn| Some(turn.p50)).at_most(FOUND_MAX)
}

/// The ratio of the whole times.
const fn worked(many: &'static str, few: &'static str) -> Row {
    ratio(many, few, " all", |turn| Some(1.0 / turn.rate))
}

const ROWS: [Row; 8] = [
    rate("snapshot_scan", "raw_scan").at_least(ONE_MIN),
    rate("snapshot_scan_ten", "raw_scan").at_least(TEN_MIN),
    found("notify_many", "notify_few"),
    found("notify_many_reopened", "notify_few_again"),
    found("notify_many_processed", "notify_few_last"),
    worked("notify_many", "notify_few"),
    worked("notify_many_reopened", "notify_few_again"),
    worked("notify_many_processed", "notify_few_last"),
];

/// Scans of a snapshot against the store's own, and of notifications among clean cells.
///
/// The scanned cells have one version, or ten versions that nothing collects. Then workers
/// find a thousand dirty cells by scanning alone, among few clean cells and among many. They
/// do so at first, after the store was opened again, and after many notifications were
/// processed.
///
/// The arms take turns in blocks of at most half a second, in an order drawn from the seed.
/// Every result of a scan is checked, and every notification must be processed exactly once.
/// The exit status is 3 otherwise.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench micro scan --quick --out results
  percolator-bench micro scan --clean 10000000 --json")]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) measure: Measure,
    /// The number of cells in each scanned table.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    cells: usize,
    /// The number of clean cells in the arms with many, at a hundred and fifty bytes each [default:
    /// 10000000, or 1000000 with --quick].
    #[arg(long, value_name = "N")]
    clean: Option<usize>,
    /// The number of clean cells in the arms with few.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    few: usize,
    /// The number of cells that are dirty at the same time.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    dirty: usize,
    /// The number of notifications that are processed before the last measurement [default:
    /// 1000000, or 100000 with --quick].
    #[arg(long, value_name = "N")]
    processed: Option<usize>,
}

#[derive(Debug, Default)]
struct Check {
    /// Number of rows that scans returned.
    rows: u64,
    /// Rows that were missing, surplus or wrong.
    wrong: u64,
    /// Number of processed notifications, and of those that should have been.
    observed: u64,
    notified: u64,
}

impl Scan {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let Scan { cells, few, dirty, .. } = *self;
        let sized = |given: Option<usize>, quick, full| {
            given.unwrap_or(self.measure.common.sized(quick, full))
        };
        let clean = sized(self.clean, 1_000_000, 10_000_000);
        let processed = sized(self.processed, 100_000, 1_000_000);
        within("cells", cells, ROWS_AT_ONCE..=1_000_000)?;
        within("dirty", dirty, 1..=few)?;
        within("few", few, 1..=CLEAN_MAX)?;
        within("clean", clean, few..=CLEAN_MAX)?;
        within("processed", processed, 0..=CLEAN_MAX)?;
        let turns = self.measure.turns(10.0)?;
        let place = Place::temporary()?;
        let mut check = Check::default();
        let loading = Progress::new(context.out.quiet, None);
        loading.say(0, "loading rows");
        let mut rows = Rows::create(&place.join("rows"), cells, turns.seed).await?;
        let turn = async |arm: usize| rows.turn(arm, turns.block()).await;
        let mut arms = turns.measure(context, rows::ARMS, turn).await?;
        rows.check_all().await?;
        (check.rows, check.wrong) = (rows.seen, rows.wrong);
        drop(rows);
        loading.say(1, "loading clean cells");
        let mut worlds = Vec::new();
        for (name, clean) in [("few", few), ("many", clean)] {
            worlds.push(World::create(context, &place.join(name), clean).await?);
        }
        for (number, stage) in STAGES.into_iter().enumerate() {
            match number {
                1 => {
                    let old = worlds.remove(1);
                    worlds.push(old.reopen().await?);
                }
                2 => {
                    loading.say(2, "processing notifications");
                    worlds[1].process(processed).await?;
                }
                _ => {}
            }
            let turn = async |at: usize| worlds[at].turn(dirty, turns.block()).await;
            arms.extend(turns.measure(context, stage, turn).await?);
        }
        for world in &mut worlds {
            world.check_all(&mut check).await?;
        }
        let settings = json!({
            "quick": self.measure.common.quick,
            "durability": "buffered",
            "cells": cells,
            "versions": VERSIONS,
            "dirty": dirty,
            "clean_few": few,
            "clean_many": clean,
            "processed": processed,
            "key_bytes": KEY_BYTES,
            "value_bytes": VALUE_BYTES,
            "cache_bytes": CACHE_BYTES,
        });
        Ok(self.report(settings, turns, &arms, &check, clean))
    }
}

impl Scan {
    fn report(
        &self,
        settings: serde_json::Value,
        turns: crate::Turns,
        arms: &[Measured],
        check: &Check,
        clean: usize,
    ) -> Report {
        let figures = figures(turns, arms, &ROWS);
        let plot = plot(&figures, [self.dirty, clean, self.few]);
        let Check { rows, wrong, observed, notified } = check;
        let why = format!("{wrong} rows were not as they were written, or a notification was lost");
        let counts = json!({
            "rows": rows, "wrong": wrong, "observed": observed, "notified": notified,
        });
        Report::of_arms("scan", settings, turns, arms, figures)
            .check_counts(counts, *wrong == 0 && observed == notified, &why)
            .plot("scan.svg", plot)
    }
}

fn plot(figures: &[Figure], sizes: [usize; 3]) -> String {
    let bars = |places: std::ops::Range<usize>| {
        (0..5).map(move |at| figures.get(at).filter(|_| places.contains(&at))?.estimate)
    };
    let [dirty, many, few] = sizes.map(|size| grouped(size as u64));
    let subtitle = format!(
        "A snapshot's cells a second over the store's own; and how many times as long it takes to \
         find {dirty} dirty cells among {many} clean ones as among {few}."
    );
    let groups = ["one version", "ten versions", "dirty cells"];
    let groups = groups.into_iter().chain(["the same, reopened", "the same, many processed"]);
    Plot::groups(groups, Axis::linear("ratio", Unit::Plain), "Scans", subtitle)
        .bars("snapshot / raw, higher is better", Role::Ours(0), bars(0..2))
        .bars("many / few clean, lower is better", Role::Ours(1), bars(2..5))
        .mark(Line::Y(ONE_MIN), "one version: at least")
        .mark(Line::Y(TEN_MIN), "ten versions: at least")
        .mark(Line::Y(FOUND_MAX), "dirty cells: at most")
        .svg()
}
