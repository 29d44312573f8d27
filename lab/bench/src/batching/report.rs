//! The figures of `percolator-bench batching`.

use percolator_cli::output::grouped;
use serde_json::json;

use super::{ARMS, Arm, Settings};
use crate::findings::{Condition, Findings};
use crate::plot::{self, Axis, BarSeries, Bars, Role, Unit};
use crate::report::{Bar, Figure};
use crate::statistics::Estimate;
use crate::system::Load;
use crate::turns::Measured;

/// Requests with a delay of 10 ms, compared with none. If reads did not go together it would be a
/// third at least.
const REQUESTS: f64 = 0.25;

pub(super) fn findings(
    settings: Settings,
    load: [Load; 2],
    arms: Vec<Measured>,
    clients: &[Arm],
    conditions: Vec<Condition>,
) -> Findings {
    let Settings { turns, callers, cells } = settings;
    let figures = figures(settings, &arms, clients);
    let plot = Some(plot(settings, clients));
    let about = format!(
        "delayed reads and lock requests over loopback: {callers} callers of one client, {} cells, durability \
         buffered; a table server, and a client with its oracle",
        grouped(cells as u64),
    );
    let settings = json!({
        "callers": callers,
        "cells": cells,
        "durability": "buffered",
        "processes": "one table server, one client with its oracle",
    });
    let name = "batching";
    Findings { name, about, settings, turns, load, arms, figures, conditions, plot }
}

fn figures(settings: Settings, arms: &[Measured], clients: &[Arm]) -> Vec<Figure> {
    let turns = settings.turns;
    let mut figures = Vec::new();
    for (at, (name, ms, _)) in ARMS.iter().enumerate() {
        let requests = turns.counted(&clients[at].requests);
        let conflicts = turns.counted(&clients[at].conflicts);
        let requests_name = format!("{name}: requests for a transaction");
        figures.push(Figure::each(requests_name, turns, requests));
        for (what, of) in [("reads", &clients[at].reads), ("mutations", &clients[at].mutations)] {
            let name = format!("{name}: {what} for a transaction");
            figures.push(Figure::each(name, turns, turns.counted(of)));
        }
        figures.push(Figure::each(format!("{name}: conflicts of attempts"), turns, conflicts));
        if *ms == 0 {
            continue;
        }
        let without = turns.counted(&clients[0].requests);
        let ratios: Vec<f64> = requests.iter().zip(without).map(|(a, b)| a / b).collect();
        let ratio = Figure::each(format!("{name} / delay_0 requests"), turns, &ratios);
        figures.push(if *ms == 10 { ratio.bar(Bar::AtMost(REQUESTS)) } else { ratio });
        figures.push(Figure::rates(turns, &arms[at], &arms[0]));
        figures.push(Figure::latencies(turns, &arms[at], &arms[0], "p50", |turn| turn.p50));
    }
    figures
}

/// Requests for a transaction by the delay, reads and mutations apart.
fn plot(settings: Settings, clients: &[Arm]) -> String {
    let turns = settings.turns;
    let bar = |of: &[f64]| Estimate::of(turns.counted(of), turns.seed).map(plot::Bar::from);
    let series = |name: &str, number, of: fn(&Arm) -> &[f64]| BarSeries {
        name: name.into(),
        role: Role::Ours(number),
        values: clients.iter().map(|arm| bar(of(arm))).collect(),
    };
    Bars {
        title: "Requests for a transaction on one cell, by how long each waits for others".into(),
        subtitle: format!(
            "Over loopback, {} callers of one client. The read, the prewrite and the commit each go with those \
             of other transactions.",
            settings.callers
        ),
        y: Axis::linear("requests", Unit::Plain),
        groups: ARMS.iter().map(|(_, ms, _)| format!("{ms} ms")).collect(),
        series: vec![
            series("reads", 0, |arm| &arm.reads),
            series("prewrites and commits", 1, |arm| &arm.mutations),
        ],
        references: Vec::new(),
    }
    .svg()
}
