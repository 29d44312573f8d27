//! The figures of `percolator-bench fig8`: as JSON, as tables, and as the paper's plot.

use percolator_cli::output::{self, Out, grouped};
use serde_json::{Value, json};

use super::bed::FEWER_CELLS_MAX;
use super::cells::{KEY_BYTES, VALUE_BYTES};
use super::embedded::CACHE_BYTES;
use super::{Outcome, Settings};
use crate::plot::{Axis, Bar as Column, BarSeries, Bars, Role, Unit};
use crate::report::{Bar, Figure, Report};
use crate::system::Io;
use crate::turns::{Measured, Turn};

/// The paper's Figure 8: Percolator's rate over Bigtable's.
const PAPER_READ: f64 = 0.94;
const PAPER_WRITE: f64 = 0.23;

/// One arm's rate over another's, with its bar and what the paper has.
type Ratio = (&'static str, &'static str, Option<f64>, Option<f64>);

const RATIOS: [Ratio; 47] = [
    // The paper's two bars, and the ladder between its form and the default.
    ("get", "raw_get", Some(0.90), Some(PAPER_READ)),
    ("snapshot_get", "raw_get", None, None),
    ("begin_get", "raw_get", None, None),
    ("paper_faithful_get", "raw_get", None, Some(PAPER_READ)),
    ("get_many", "raw_get_many", None, Some(PAPER_READ)),
    ("paper_faithful", "raw_set", Some(0.15), Some(PAPER_WRITE)),
    ("with_newest_apart", "raw_set", None, None),
    ("with_memory", "raw_set", None, None),
    ("two_phases", "raw_set", Some(0.40), Some(PAPER_WRITE)),
    ("tx", "raw_set", Some(0.60), Some(PAPER_WRITE)),
    ("paper_faithful", "raw_set_blind", None, Some(PAPER_WRITE)),
    ("two_phases", "raw_set_blind", None, Some(PAPER_WRITE)),
    ("tx", "raw_set_blind", None, Some(PAPER_WRITE)),
    // What each step of the ladder is worth.
    ("with_newest_apart", "paper_faithful", None, None),
    ("with_memory", "with_newest_apart", None, None),
    ("two_phases", "with_memory", None, None),
    ("tx", "two_phases", None, None),
    // What two phases come to at most.
    ("two_mutations", "raw_set", None, None),
    ("two_mutations", "raw_set_blind", None, None),
    ("two_phases", "two_mutations", None, None),
    ("raw_set", "raw_set_blind", None, None),
    ("tx_ten", "raw_set", Some(0.45), None),
    ("tx_ten", "raw_set_blind", None, None),
    ("tx_many", "raw_set_many", None, None),
    ("tx_many", "raw_set_blind_many", None, None),
    // Durable.
    ("tx_sync", "raw_set_sync", Some(0.80), None),
    ("two_phases_sync", "raw_set_sync", Some(0.45), None),
    ("tx_sync_many", "raw_set_sync_many", Some(0.60), None),
    ("tx_sync_many_alone", "tx_sync_many", None, None),
    // Raw itself.
    ("raw_get", "fjall_get", Some(0.6), None),
    ("raw_set", "fjall_insert", Some(0.6), None),
    ("raw_set_blind", "fjall_insert", Some(0.6), None),
    ("raw_set_sync", "fjall_insert_sync", Some(0.6), None),
    // What a raw write comes to at most, where it takes older versions along.
    ("fjall_packs", "fjall_insert", None, None),
    ("raw_set", "fjall_packs", None, None),
    // Over a network.
    ("server_get", "server_raw_get", None, Some(PAPER_READ)),
    ("server_tx", "server_raw_set", None, Some(PAPER_WRITE)),
    ("emulator_get", "emulator_raw_get", None, Some(PAPER_READ)),
    ("emulator_tx", "emulator_raw_set", None, Some(PAPER_WRITE)),
    // Peers.
    ("fjall_optimistic", "fjall_insert", None, None),
    ("fjall_single_writer", "fjall_insert", None, None),
    ("fjall_optimistic_sync", "fjall_insert_sync", None, None),
    ("fjall_single_writer_sync", "fjall_insert_sync", None, None),
    ("get", "postgres_get", None, None),
    ("tx", "postgres_update", None, None),
    ("tx_sync", "postgres_update_sync", None, None),
    ("tx_sync_many", "postgres_update_sync_many", None, None),
];

/// Whose system calls and bytes are told: raw writes, and what transactions make of one.
const WRITERS: [&str; 6] =
    ["fjall_packs", "raw_set_blind", "raw_set", "tx", "two_mutations", "two_phases"];

/// Which must find all they read in memory, as the paper's Figure 8 has it.
const READERS: [&str; 6] =
    ["raw_get", "get", "snapshot_get", "begin_get", "paper_faithful_get", "fjall_get"];
/// Most system calls that read, for each read of theirs. What was just written out is read once;
/// what does not fit into memory, again and again.
const READ_CALLS_MAX: f64 = 0.05;
/// So many more in a turn: to count them takes some.
const READ_CALLS_TO_COUNT: f64 = 10.0;

/// What an arm asked of files for each operation, turn by turn.
fn each(arm: &Measured, of: fn(Io) -> u64) -> Vec<f64> {
    let each = |turn: &Turn| Some(of(turn.io?) as f64 / turn.operations as f64);
    arm.turns.iter().filter_map(each).collect()
}

/// Whether an arm read from files what it should have had in memory. Half of the turns may: the
/// engine compacts while readers read.
fn is_uncached(turns: &[Turn]) -> bool {
    let reads_files = |turn: &&Turn| {
        let most = READ_CALLS_TO_COUNT + READ_CALLS_MAX * turn.operations as f64;
        turn.io.is_some_and(|io| io.read_calls as f64 > most)
    };
    turns.iter().filter(reads_files).count() * 2 > turns.len()
}

/// Why the figures are void.
pub(crate) fn broken(result: &Outcome) -> Vec<String> {
    let mut broken = Vec::new();
    if result.check.wrong > 0 {
        let wrong = grouped(result.check.wrong);
        broken.push(format!("{wrong} cells were not as they were written"));
    }
    let readers = READERS.into_iter().filter_map(|name| arm(result, name));
    for Measured { name, .. } in readers.filter(|arm| is_uncached(&arm.turns)) {
        broken.push(format!(
            "{name} read files more than {READ_CALLS_MAX} times for each of its reads: its cells are not all \
             in memory"
        ));
    }
    broken
}

fn arm<'a>(result: &'a Outcome, name: &str) -> Option<&'a Measured> {
    result.arms.iter().find(|arm| arm.name == name)
}

/// A figure; `None` of an arm that was left out.
fn figure(
    settings: &Settings,
    result: &Outcome,
    (above, below, bar, paper): Ratio,
) -> Option<Figure> {
    let figure = Figure::rates(settings.turns, arm(result, above)?, arm(result, below)?);
    Some(Figure { bar: bar.map(Bar::AtLeast), paper, ..figure })
}

fn report<'a>(settings: &Settings, result: &'a Outcome) -> Report<'a> {
    let mut figures: Vec<Figure> =
        RATIOS.iter().filter_map(|ratio| figure(settings, result, *ratio)).collect();
    let mut io = |arms: &[&str], what, of| {
        for arm in arms.iter().filter_map(|name| arm(result, name)) {
            let name = format!("{}: {what}", arm.name);
            figures.push(Figure::each(name, settings.turns, &each(arm, of)));
        }
    };
    io(&READERS, "system calls that read, each", |io| io.read_calls);
    io(&WRITERS, "system calls that write, each", |io| io.write_calls);
    io(&WRITERS, "bytes written, each", |io| io.written_bytes);
    let (turns, load) = (settings.turns, result.load);
    Report { benchmark: "fig8", turns, load, arms: &result.arms, figures }
}

/// The settings and figures in JSON.
pub(crate) fn json(settings: &Settings, result: &Outcome) -> Value {
    let about = json!({
        "quick": settings.quick,
        "cells": settings.cells,
        "cells_synced_and_remote": settings.cells.min(FEWER_CELLS_MAX),
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "cache_bytes": CACHE_BYTES,
        "callers": settings.callers,
    });
    let check = json!({
        "copies": result.check.copies,
        "cells": result.check.cells,
        "wrong": result.check.wrong,
    });
    let is_ok = broken(result).is_empty();
    let mut json = report(settings, result).json(about, check, is_ok);
    json["ladder"] = result.ladder.iter().map(super::ladder::Step::json).collect();
    json["left_out"] = json!(result.missing);
    json
}

/// Prints the settings and figures as tables.
pub(crate) fn print(out: Out, settings: &Settings, result: &Outcome) -> std::io::Result<()> {
    let about = format!(
        "single cells at random: {} cells of {KEY_BYTES} + {VALUE_BYTES} bytes in each copy ({} where \
         synced or remote), cached, buffered if not said otherwise; one caller, and {}; data in {}",
        grouped(settings.cells as u64),
        grouped(settings.cells.min(FEWER_CELLS_MAX) as u64),
        settings.callers,
        settings.dir.display(),
    );
    let check = format!(
        "{} cells read in {} copies, {} wrong",
        grouped(result.check.cells as u64),
        result.check.copies,
        grouped(result.check.wrong)
    );
    report(settings, result).print(out, &about, &check)?;
    out.line("")?;
    let mut header = vec![output::Column::left("a write of one cell")];
    header.extend(["reads", "writes", "conditions", "cells changed"].map(output::Column::right));
    header.push(output::Column::left("beyond the line above"));
    out.table(&header, result.ladder.iter().map(super::ladder::Step::row).collect())
}

/// The plot, in the paper's form.
pub(crate) fn plot(settings: &Settings, result: &Outcome) -> String {
    let rate = |name| {
        let arm = arm(result, name)?;
        Some(arm.operations as f64 / arm.spent.elapsed.as_secs_f64())
    };
    let group = |name: &str, ours, raw| {
        let ratio = figure(settings, result, (ours, raw, None, None));
        let median = ratio.and_then(|figure| figure.estimate).map(|estimate| estimate.median);
        let ratio = median.map_or("?".to_owned(), |median| format!("{median:.2}"));
        format!("{name}: {ratio} of raw")
    };
    let bar = |value: Option<f64>| value.map(Column::of);
    let of_raw = |raw, share: f64| rate(raw).map(|rate| rate * share);
    let series = |name: &str, role, values| BarSeries { name: name.to_owned(), role, values };
    Bars {
        title: "Figure 8: single cells, transactional and raw".into(),
        subtitle: format!(
            "{} cells of {KEY_BYTES} + {VALUE_BYTES} bytes at random, all cached, one caller, buffered. \
             The paper's bars are its own shares of our raw rates: {PAPER_READ} and {PAPER_WRITE}.",
            grouped(settings.cells as u64)
        ),
        y: Axis::linear("operations a second", Unit::Plain),
        groups: vec![group("Read/s", "get", "raw_get"), group("Write/s", "tx", "raw_set")],
        series: vec![
            series("raw", Role::Peer(0), vec![bar(rate("raw_get")), bar(rate("raw_set"))]),
            series("Percolator", Role::Ours(0), vec![bar(rate("get")), bar(rate("tx"))]),
            series(
                "Percolator in two phases",
                Role::Ours(1),
                vec![None, bar(rate("two_phases"))],
            ),
            series(
                "Percolator in the paper's form",
                Role::Ours(2),
                vec![bar(rate("paper_faithful_get")), bar(rate("paper_faithful"))],
            ),
            series(
                "fjall: get, and its optimistic transaction",
                Role::Peer(1),
                vec![bar(rate("fjall_get")), bar(rate("fjall_optimistic"))],
            ),
            series(
                "PostgreSQL",
                Role::Peer(2),
                vec![bar(rate("postgres_get")), bar(rate("postgres_update"))],
            ),
            series(
                "the paper's share of raw",
                Role::Paper(0),
                vec![bar(of_raw("raw_get", PAPER_READ)), bar(of_raw("raw_set", PAPER_WRITE))],
            ),
        ],
        references: Vec::new(),
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_may_read_files_now_and_then() {
        let turn = |read_calls| {
            let io = Some(Io { read_calls, ..Io::default() });
            Turn { rate: 1.0, cpu_rate: None, operations: 1000, io, p50: 1.0, p99: 1.0 }
        };
        let (cached, uncached) = (turn(60), turn(61));
        assert!(!is_uncached(&[]) && !is_uncached(&[cached, uncached]));
        assert!(is_uncached(&[cached, uncached, uncached]));
        let unknown = Turn { io: None, ..cached };
        assert!(!is_uncached(&[unknown]));
    }
}
