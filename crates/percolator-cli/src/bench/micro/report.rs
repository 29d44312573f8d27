//! What `bench micro` prints.

use serde_json::{Value, json};

use super::bed::{CACHE_BYTES, KEY_BYTES, VALUE_BYTES};
use super::{Arm, Outcome, Settings};
use crate::bench::report::{Bar, Figure, Report};
use crate::output::{Out, grouped};

/// One arm's rate over another's, with its bar and what the paper's Figure 8 has.
type Ratio = (Arm, Arm, Option<f64>, Option<f64>);

const RATIOS: [Ratio; 8] = [
    (Arm::RawRead, Arm::FjallGet, Some(0.6), None),
    (Arm::RawWrite, Arm::FjallInsert, Some(0.6), None),
    (Arm::RawAppend, Arm::FjallInsert, Some(0.6), None),
    (Arm::TxRead, Arm::RawRead, Some(0.80), Some(0.94)),
    (Arm::SnapshotRead, Arm::RawRead, None, None),
    (Arm::TxWrite, Arm::RawWrite, Some(0.23), Some(0.23)),
    (Arm::TxWrite, Arm::RawAppend, Some(0.23), Some(0.23)),
    (Arm::TwoPhases, Arm::RawAppend, None, Some(0.23)),
];

fn report<'a>(settings: &Settings, result: &'a Outcome) -> Report<'a> {
    let arm = |arm| Arm::ALL.iter().position(|other| *other == arm).map(|at| &result.arms[at]);
    let figures = RATIOS.iter().filter_map(|(above, below, bar, paper)| {
        let figure = Figure::rates(settings.turns, arm(*above)?, arm(*below)?);
        Some(Figure { bar: bar.map(Bar::AtLeast), paper: *paper, ..figure })
    });
    Report {
        benchmark: "micro",
        turns: settings.turns,
        load: result.load,
        arms: &result.arms,
        figures: figures.collect(),
    }
}

/// The settings and figures in JSON.
pub(crate) fn json(settings: &Settings, result: &Outcome) -> Value {
    let about = json!({
        "durability": settings.durability.name(),
        "cells": settings.cells,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "cache_bytes": CACHE_BYTES,
        "threads": 1,
        "data": settings.dir.display().to_string(),
    });
    let check = json!({ "cells": result.check.cells, "wrong": result.check.wrong });
    report(settings, result).json(about, check, result.check.wrong == 0)
}

/// Prints the settings and figures as tables.
pub(crate) fn print(out: Out, settings: &Settings, result: &Outcome) -> std::io::Result<()> {
    let about = format!(
        "single cells at random: {} cells of {KEY_BYTES} + {VALUE_BYTES} bytes, cached, one thread, \
         durability {}; data in {}",
        grouped(settings.cells as u64),
        settings.durability.name(),
        settings.dir.display(),
    );
    let check = format!(
        "{} cells read in each of the four copies, {} wrong",
        grouped(result.check.cells as u64),
        grouped(result.check.wrong)
    );
    report(settings, result).print(out, &about, &check)
}
