//! The figures of `percolator-bench large-txn`.

use percolator_cli::output::grouped;
use serde_json::json;

use super::bed::{KEY_BYTES, VALUE_BYTES};
use super::{Memory, Settings};
use crate::findings::{Condition, Findings};
use crate::plot::{Axis, Chart, Point, Role, Series, Unit};
use crate::report::{Bar, Figure};
use crate::statistics::Estimate;
use crate::system::Load;
use crate::turns::Measured;

/// The goal for cells of transactions, compared with raw ones.
const CELLS: f64 = 0.45;
/// Bytes that a transaction before its commit may hold for each byte of its cells.
const BYTES: f64 = 4.0;
/// Bytes of a transaction that waits: what the stack of a thread in the kernel takes on its own.
const WAITING_BYTES: f64 = 16.0 * 1024.0;

pub(super) fn findings(
    settings: Settings,
    load: [Load; 2],
    arms: Vec<Measured>,
    memory: &Memory,
    conditions: Vec<Condition>,
) -> Findings {
    let Settings { turns, cells, transactions } = settings;
    let figures = figures(settings, &arms, memory);
    let plot = Some(plot(settings, &arms));
    let about = format!(
        "transactions of up to {} cells of {KEY_BYTES} + {VALUE_BYTES} bytes, and {} at once; embedded \
         store, durability buffered",
        grouped(cells as u64),
        grouped(transactions as u64),
    );
    let settings = json!({
        "cells": cells,
        "transactions": transactions,
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "durability": "buffered",
        "bytes_per_cell": memory.cell,
        "bytes_per_cell_at_commit": memory.cell_at_commit,
        "bytes_per_waiting_transaction": memory.waiting,
    });
    let name = "large-txn";
    Findings { name, about, settings, turns, load, arms, figures, conditions, plot }
}

/// The arms of this many cells, raw and in transactions.
fn pairs(arms: &[Measured]) -> impl Iterator<Item = (f64, &Measured, &Measured)> {
    arms.chunks(2).filter_map(|pair| {
        let [raw, tx] = pair else { return None };
        let cells = tx.name.strip_prefix("tx_")?.parse().ok()?;
        Some((cells, raw, tx))
    })
}

fn figures(settings: Settings, arms: &[Measured], memory: &Memory) -> Vec<Figure> {
    let turns = settings.turns;
    let mut figures: Vec<Figure> = pairs(arms)
        .map(|(_, raw, tx)| Figure::rates(turns, tx, raw).bar(Bar::AtLeast(CELLS)))
        .collect();
    let arm = |name: &str| arms.iter().find(|arm| arm.name == name);
    if let Some((many, few)) = arm("all_at_once").zip(arm("one_by_one")) {
        figures.push(Figure::rates(turns, many, few).bar(Bar::AtLeast(0.5)));
    }
    let once = |name: &str, value: Option<f64>| Figure::each(name, turns, value.as_slice());
    let payload = (KEY_BYTES + VALUE_BYTES) as f64;
    let of_payload = |bytes: Option<f64>| bytes.map(|bytes| bytes / payload);
    figures.push(
        once("memory of a cell before commit / its bytes", of_payload(memory.cell))
            .bar(Bar::AtMost(BYTES)),
    );
    figures.push(once("the same at most during commit", of_payload(memory.cell_at_commit)));
    figures.push(
        once("memory of a transaction that waits, bytes", memory.waiting)
            .bar(Bar::AtMost(WAITING_BYTES)),
    );
    figures
}

/// Cells a second by the size of a transaction.
fn plot(settings: Settings, arms: &[Measured]) -> String {
    let point = |cells: f64, arm: &Measured| {
        let rates: Vec<f64> = arm.turns.iter().map(|turn| turn.rate).collect();
        let Estimate { median, low, high } = Estimate::of(&rates, settings.turns.seed)?;
        Some(Point::at(cells, median).between(low, high))
    };
    let raw = pairs(arms).filter_map(|(cells, raw, _)| point(cells, raw)).collect();
    let tx = pairs(arms).filter_map(|(cells, _, tx)| point(cells, tx)).collect();
    Chart {
        title: "Cells a second by the size of a transaction".into(),
        subtitle: format!(
            "Embedded store, durability buffered, one caller; cells of {KEY_BYTES} + {VALUE_BYTES} bytes."
        ),
        x: Axis::log("cells of a transaction", Unit::Plain),
        y: Axis::log("cells a second", Unit::Plain),
        series: vec![
            Series::line("transactions", Role::Ours(0), tx),
            Series::dashed("raw, at most 1,000 in a request", Role::Peer(0), raw),
        ],
        references: Vec::new(),
    }
    .svg()
}
