//! The figures of `percolator-bench scan`: as JSON, as tables, and as a plot.

use percolator_cli::output::{Out, grouped};
use serde_json::{Value, json};

use super::rows::{CACHE_BYTES, KEY_BYTES, VALUE_BYTES};
use super::{Outcome, STAGES, Settings, VERSIONS};
use crate::plot::{Axis, Bar as Column, BarSeries, Bars, Reference, Role, Unit};
use crate::report::{Bar, Figure, Report};
use crate::turns::Measured;

/// Bars of a snapshot's scan over the store's own: with one version of each cell, and with ten.
const ONE_MIN: f64 = 0.70;
const TEN_MIN: f64 = 0.35;
/// How many times as long it may take to find dirty cells among many clean ones as among few.
const FOUND_MAX: f64 = 1.2;

fn figures(settings: &Settings, result: &Outcome) -> Vec<Figure> {
    let turns = settings.turns;
    let arm = |name: &str| -> &Measured {
        let found = result.arms.iter().find(|measured| measured.name == name);
        found.expect("every arm is measured")
    };
    let rates =
        |above, bar| Figure::rates(turns, arm(above), arm("raw_scan")).bar(Bar::AtLeast(bar));
    let mut figures = vec![rates("snapshot_scan", ONE_MIN), rates("snapshot_scan_ten", TEN_MIN)];
    for [(few, _), (many, _)] in STAGES {
        let found = Figure::latencies(turns, arm(many), arm(few), "scan", |turn| turn.p50);
        figures.push(found.bar(Bar::AtMost(FOUND_MAX)));
    }
    for [(few, _), (many, _)] in STAGES {
        let name = format!("{many} / {few} all");
        let worked = Figure::latencies(turns, arm(many), arm(few), "all", |turn| 1.0 / turn.rate);
        figures.push(Figure { name, ..worked });
    }
    figures
}

fn report<'a>(settings: &Settings, result: &'a Outcome) -> Report<'a> {
    let (turns, load) = (settings.turns, result.load);
    let figures = figures(settings, result);
    Report { benchmark: "scan", turns, load, arms: &result.arms, figures }
}

/// The settings and figures in JSON.
pub(crate) fn json(settings: &Settings, result: &Outcome) -> Value {
    let about = json!({
        "quick": settings.quick,
        "durability": "buffered",
        "cells": settings.cells,
        "versions": VERSIONS,
        "dirty": settings.dirty,
        "clean_few": settings.clean[0],
        "clean_many": settings.clean[1],
        "processed": settings.processed,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "cache_bytes": CACHE_BYTES,
    });
    let check = json!({
        "rows": result.check.rows,
        "wrong": result.check.wrong,
        "observed": result.check.observed,
        "notified": result.check.notified,
    });
    report(settings, result).json(about, check, result.check.is_ok())
}

/// Prints the settings and figures as tables.
pub(crate) fn print(out: Out, settings: &Settings, result: &Outcome) -> std::io::Result<()> {
    let [few, many] = settings.clean.map(|clean| grouped(clean as u64));
    let about = format!(
        "scans: {} cells of {KEY_BYTES} + {VALUE_BYTES} bytes, with one version and with {VERSIONS}; {} \
         dirty cells among {few} clean ones and among {many}, and after {} processed notifications; \
         p50 and p99 of these arms are what the scans took; durability buffered; data in {}",
        grouped(settings.cells as u64),
        grouped(settings.dirty as u64),
        grouped(settings.processed as u64),
        settings.dir.display(),
    );
    let check = &result.check;
    let checked = format!(
        "{} rows scanned, {} wrong; {} notifications, {} runs of their observer",
        grouped(check.rows),
        grouped(check.wrong),
        grouped(check.notified),
        grouped(check.observed),
    );
    report(settings, result).print(out, &about, &checked)
}

/// The plot: each ratio beside its bar.
pub(crate) fn plot(settings: &Settings, result: &Outcome) -> String {
    let figures = figures(settings, result);
    let bar = |at: usize| {
        let estimate = figures.get(at)?.estimate?;
        Some(Column::of(estimate.median).between(estimate.low, estimate.high))
    };
    let none = || vec![None; 5];
    let with = |places: [usize; 2]| {
        let mut values = none();
        places.into_iter().for_each(|at| values[at] = bar(at));
        values
    };
    let mut found = none();
    (2..5).for_each(|at| found[at] = bar(at));
    let series = |name: &str, role, values| BarSeries { name: name.to_owned(), role, values };
    let [few, many] = settings.clean.map(|clean| grouped(clean as u64));
    Bars {
        title: "Scans".into(),
        subtitle: format!(
            "A snapshot's cells a second over the store's own; and how many times as long it takes to \
             find {} dirty cells among {many} clean ones as among {few}.",
            grouped(settings.dirty as u64)
        ),
        y: Axis::linear("ratio", Unit::Plain),
        groups: [
            "one version",
            "ten versions",
            "dirty cells",
            "the same, reopened",
            "the same, many processed",
        ]
        .map(str::to_owned)
        .into(),
        series: vec![
            series("snapshot / raw, higher is better", Role::Ours(0), with([0, 1])),
            series("many / few clean, lower is better", Role::Ours(1), found),
        ],
        references: vec![
            Reference::y(ONE_MIN, "one version: at least"),
            Reference::y(TEN_MIN, "ten versions: at least"),
            Reference::y(FOUND_MAX, "dirty cells: at most"),
        ],
    }
    .svg()
}
