//! The figures of `percolator-bench rpc`, as JSON and as tables.

use percolator_cli::output::{Out, grouped};
use serde_json::{Value, json};

use super::bed::{KEY_BYTES, VALUE_BYTES};
use super::{Outcome, Settings};
use crate::plot::{Axis, Bar as Column, BarSeries, Bars, Role, Unit};
use crate::report::{Bar, Figure, Report};
use crate::turns::Measured;

fn report<'a>(settings: &Settings, result: &'a Outcome) -> Report<'a> {
    let turns = settings.turns;
    let arm = |name: &str| -> &Measured {
        let found = result.arms.iter().find(|measured| measured.name == name);
        found.expect("every arm is measured")
    };
    let rates =
        |above, below, bar| Figure::rates(turns, arm(above), arm(below)).bar(Bar::AtLeast(bar));
    let p50 = |above, below| {
        let figure = Figure::latencies(turns, arm(above), arm(below), "p50", |turn| turn.p50);
        figure.bar(Bar::AtMost(2.0))
    };
    let p99 =
        |above, below| Figure::latencies(turns, arm(above), arm(below), "p99", |turn| turn.p99);
    let figures = vec![
        rates("tx", "bare_commit", 0.8),
        rates("tx_many", "bare_commit_many", 0.8),
        rates("get", "bare_read", 0.9),
        rates("get_many", "bare_read_many", 0.9),
        // What conditional mutations gain.
        Figure::rates(turns, arm("tx"), arm("tx_read_first")),
        Figure::rates(turns, arm("tx_many"), arm("tx_read_first_many")),
        p50("tx_ten", "tx"),
        p99("tx_ten", "tx"),
        Figure::rates(turns, arm("tx_ten"), arm("tx_ten_each")),
        Figure::rates(turns, arm("tx_ten_many"), arm("tx_ten_each_many")),
    ];
    Report { benchmark: "rpc", turns, load: result.load, arms: &result.arms, figures }
}

/// The settings and figures in JSON.
pub(crate) fn json(settings: &Settings, result: &Outcome) -> Value {
    let about = json!({
        "callers": settings.callers,
        "cells": settings.cells,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "secondaries": "background",
        "durability": "buffered",
        "processes": "one table server, one client with its oracle",
    });
    let check = &result.check;
    let checked = json!({
        "cells": check.cells,
        "wrong": check.wrong,
        "transactions": check.transactions,
        "committed": check.committed,
    });
    report(settings, result).json(about, checked, check.is_ok())
}

/// Rates of transactions beside those of the requests that they consist of.
pub(crate) fn plot(settings: &Settings, result: &Outcome) -> String {
    let rate = |name: &&str| {
        let arm = result.arms.iter().find(|arm| arm.name == *name)?;
        settings.turns.rate(arm).map(Column::from)
    };
    let series = |name: &str, role, arms: [&str; 4]| BarSeries {
        name: name.to_owned(),
        role,
        values: arms.iter().map(rate).collect(),
    };
    let many = settings.callers;
    Bars {
        title: "Single cells over a network: transactions and bare requests".into(),
        subtitle: "Over loopback: a table server, and a client with its oracle.".into(),
        y: Axis::linear("operations a second", Unit::Plain),
        groups: vec![
            "a read".into(),
            format!("a read, {many} callers"),
            "a write".into(),
            format!("a write, {many} callers"),
        ],
        series: vec![
            series(
                "the requests alone",
                Role::Peer(0),
                ["bare_read", "bare_read_many", "bare_commit", "bare_commit_many"],
            ),
            series("Percolator", Role::Ours(0), ["get", "get_many", "tx", "tx_many"]),
            series(
                "without conditional mutations",
                Role::Ours(1),
                ["", "", "tx_read_first", "tx_read_first_many"],
            ),
        ],
        references: Vec::new(),
    }
    .svg()
}

/// Prints the settings and figures as tables.
pub(crate) fn print(out: Out, settings: &Settings, result: &Outcome) -> std::io::Result<()> {
    let about = format!(
        "transactions over loopback: {} cells of {KEY_BYTES} + {VALUE_BYTES} bytes, durability buffered; \
         one caller, and {}; a table server, and a client with its oracle",
        grouped(settings.cells as u64),
        settings.callers,
    );
    let check = &result.check;
    let checked = format!(
        "{} cells read, {} wrong; {} transactions committed, {} counted",
        grouped(check.cells),
        grouped(check.wrong),
        grouped(check.transactions),
        grouped(check.committed),
    );
    report(settings, result).print(out, &about, &checked)
}
