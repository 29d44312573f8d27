//! The figures of `percolator-bench notify`.

use serde_json::json;

use super::bed::CALLERS;
use super::{ARMS, WORKERS};
use crate::Turns;
use crate::findings::{Condition, Findings};
use crate::plot::{Axis, Chart, Point, Role, Series, Unit};
use crate::report::{Bar, Figure};
use crate::system::Load;
use crate::turns::Measured;

/// Percentiles of the plot.
const QUANTILES: [f64; 13] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 0.999];

/// All that was found; `aside` has the numbers of each arm's own.
pub(super) fn findings(
    turns: Turns,
    load: [Load; 2],
    arms: Vec<Measured>,
    aside: &[&[f64]],
    conditions: Vec<Condition>,
) -> Findings {
    let figures = figures(turns, &arms, aside);
    let about = format!(
        "notifications in the embedded store, durability buffered: {WORKERS} workers; {CALLERS} callers of \
         what conflicts"
    );
    let settings = json!({ "workers": WORKERS, "callers": CALLERS, "durability": "buffered" });
    let plot = Some(plot(&arms));
    let name = "notify";
    Findings { name, about, settings, turns, load, arms, figures, conditions, plot }
}

fn index(name: &str) -> usize {
    ARMS.iter().position(|arm| arm.name == name).expect("every arm that is asked for is there")
}

fn figures(turns: Turns, arms: &[Measured], aside: &[&[f64]]) -> Vec<Figure> {
    let arm = |name: &str| &arms[index(name)];
    let own =
        |name: &str, what: &str| Figure::each(format!("{name}: {what}"), turns, aside[index(name)]);
    let (hand_off, hinted) = (arm("hand_off"), arm("start_hinted"));
    let p50 = Figure::latencies(turns, hinted, hand_off, "p50", |turn| turn.p50);
    let p99 = Figure::latencies(turns, hinted, hand_off, "p99", |turn| turn.p99);
    // Two seconds are the paper's (section 3.2), with the transactions of the observers.
    let faster: Vec<f64> = hinted.turns.iter().map(|turn| 2e9 / turn.p50).collect();
    let faster = Figure::each("2 s / start_hinted p50", turns, &faster);
    // What is left for the way to the worker, its row lock and the reading of the acknowledgement.
    let (commit, read) = (arm("rested_commit"), arm("rested_read"));
    let each = hinted.turns.iter().zip(&commit.turns).zip(&read.turns).zip(&hand_off.turns);
    let parts: Vec<f64> =
        each.map(|(((h, c), r), wake)| h.p50 / (c.p50 + r.p50 + wake.p50)).collect();
    let (across, outside) = (arm("hand_off_across"), arm("start_outside"));
    let mut figures = vec![
        p50.bar(Bar::AtMost(5.0)),
        p99.bar(Bar::AtMost(10.0)),
        faster.bar(Bar::AtLeast(400.0)),
        Figure::latencies(turns, hinted, across, "p50", |turn| turn.p50).bar(Bar::AtMost(5.0)),
        Figure::latencies(turns, outside, hand_off, "p50", |turn| turn.p50),
        Figure::latencies(turns, outside, across, "p50", |turn| turn.p50).bar(Bar::AtMost(5.0)),
        Figure::latencies(turns, commit, hand_off, "p50", |turn| turn.p50),
        Figure::latencies(turns, read, hand_off, "p50", |turn| turn.p50),
        Figure::each("start_hinted p50 / (rested_commit + rested_read + hand_off)", turns, &parts),
    ];
    for ms in [10, 100, 1000] {
        let name = format!("start_scanned_{ms}");
        let scanned = arm(&name);
        for (what, quantile, most) in [("p50", 0.5, 0.75), ("p99", 0.99, 2.0)] {
            let of = |turn: &crate::turns::Turn| {
                (if quantile < 0.9 { turn.p50 } else { turn.p99 }) / (f64::from(ms) * 1e6)
            };
            let values: Vec<f64> = scanned.turns.iter().map(of).collect();
            let figure = Figure::each(format!("{name} {what} / period"), turns, &values);
            figures.push(figure.bar(Bar::AtMost(most)));
        }
    }
    let rates = |above: &str, below: &str| Figure::rates(turns, arm(above), arm(below));
    figures.extend([
        rates("notifications", "transactions").bar(Bar::AtLeast(0.5)),
        own("notifications", "starts in vain").bar(Bar::AtMost(0.02)),
        own("hot_weak", "committed of attempted").bar(Bar::AtLeast(0.9)),
        own("hot_strong", "committed of attempted").bar(Bar::AtMost(0.5)),
        rates("hot_weak", "hot_strong"),
        rates("commission_observed", "commission_conflicting"),
        own("commission_conflicting", "conflicts of attempts"),
        own("commission_observed", "conflicts of attempts").bar(Bar::AtMost(0.01)),
        rates("scanners_jump", "scanners_go_on"),
        own("scanners_jump", "spread"),
        own("scanners_go_on", "spread"),
    ]);
    figures
}

/// How many of a hundred starts took how long.
fn plot(arms: &[Measured]) -> String {
    let series = |(number, name, told): (usize, &str, &str)| {
        let arm = &arms[index(name)];
        let point = |quantile: &f64| {
            let nanos = arm.latencies.value_at_quantile(*quantile) as f64;
            Point::at(100.0 * quantile, nanos / 1e9)
        };
        let role = if number == 0 { Role::Peer(0) } else { Role::Ours(number - 1) };
        Series::line(told, role, QUANTILES.iter().map(point).collect())
    };
    let lines = [
        (0, "hand_off", "a thread wakes another"),
        (1, "start_hinted", "hint"),
        (2, "start_scanned_10", "scan every 10 ms"),
        (3, "start_scanned_100", "scan every 100 ms"),
        (4, "start_scanned_1000", "scan every second"),
    ];
    Chart {
        title: "From commit to the observer's start".into(),
        subtitle: "Embedded store, idle but for one writer. The paper's repository had documents \
                   clustered two seconds after they were crawled."
            .into(),
        x: Axis::linear("share of all starts", Unit::Percent).between(0.0, 100.0),
        y: Axis::log("delay", Unit::Seconds),
        series: lines.into_iter().map(series).collect(),
        references: Vec::new(),
    }
    .svg()
}
