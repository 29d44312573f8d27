//! The figures of `percolator-bench oracle`, as JSON and as tables.

use percolator_cli::output::{Out, grouped};
use serde_json::{Value, json};

use super::{Arm, Outcome, Settings};
use crate::plot::{Axis, Bar as Column, BarSeries, Bars, Role, Unit};
use crate::report::{Bar, Figure, Report};
use crate::turns::Measured;

/// The paper's timestamps a second, from one machine.
const PAPER: f64 = 2_000_000.0;

fn report<'a>(settings: &Settings, result: &'a Outcome) -> Report<'a> {
    let turns = settings.turns;
    let arm = |arm: Arm| -> &Measured { &result.arms[arm as usize] };
    let timestamps = Figure {
        name: "batched timestamps per s".to_owned(),
        estimate: turns.rate(arm(Arm::Batched)),
        per_cpu: None,
        bar: Some(Bar::AtLeast(PAPER)),
        paper: Some(PAPER),
    };
    let over_one = Figure::rates(turns, arm(Arm::Batched), arm(Arm::Unbatched));
    let p99 =
        |above, below| Figure::latencies(turns, arm(above), arm(below), "p99", |turn| turn.p99);
    let figures = vec![
        over_one.bar(Bar::AtLeast(100.0)),
        timestamps,
        // A round trip under the same load; and an idle one, with what the load alone makes of
        // that.
        p99(Arm::HalfLoad, Arm::HalfLoadEcho).bar(Bar::AtMost(3.0)),
        p99(Arm::HalfLoad, Arm::Echo).bar(Bar::AtMost(3.0)),
        p99(Arm::HalfLoadEcho, Arm::Echo),
    ];
    Report { benchmark: "oracle", turns, load: result.load, arms: &result.arms, figures }
}

/// The settings and figures in JSON.
pub(crate) fn json(settings: &Settings, result: &Outcome) -> Value {
    let about = json!({ "callers": settings.callers, "processes": "one server, one client" });
    let check = json!({
        "timestamps": result.timestamps,
        "wrong": result.wrong,
        "late_rounds": result.late,
    });
    report(settings, result).json(about, check, result.void().is_none())
}

/// Timestamps a second of one caller and of many, beside the paper's.
pub(crate) fn plot(settings: &Settings, result: &Outcome) -> String {
    let rate = |arm: Arm| settings.turns.rate(&result.arms[arm as usize]).map(Column::from);
    let series = |name: &str, role, values| BarSeries { name: name.to_owned(), role, values };
    Bars {
        title: "Timestamps from one oracle".into(),
        subtitle: "Over loopback, server and client a process each, on the same machine. The paper's server has \
                   it to itself."
            .into(),
        y: Axis::log("timestamps a second", Unit::Plain),
        groups: vec![
            "one caller, a request for each".into(),
            format!("{} callers, batched", grouped(settings.callers as u64)),
        ],
        series: vec![
            series("here", Role::Ours(0), vec![rate(Arm::Unbatched), rate(Arm::Batched)]),
            series("the paper", Role::Paper(0), vec![None, Some(Column::of(PAPER))]),
        ],
        references: Vec::new(),
    }
    .svg()
}

/// Prints the settings and figures as tables.
pub(crate) fn print(out: Out, settings: &Settings, result: &Outcome) -> std::io::Result<()> {
    let about = format!(
        "timestamps over loopback: {} callers, server and client a process each",
        grouped(settings.callers as u64),
    );
    let check = format!(
        "{} timestamps, {} twice or backwards; callers at half the rate late in {} rounds",
        grouped(result.timestamps),
        grouped(result.wrong),
        result.late,
    );
    report(settings, result).print(out, &about, &check)
}
