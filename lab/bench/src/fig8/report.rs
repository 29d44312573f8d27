//! Computes the figures of `percolator-bench fig8` with their bars, and the plot in the paper's
//! form.

use percolator_cli::output::grouped;
use serde_json::json;

use super::bed::FEWER_CELLS_MAX;
use super::embedded::CACHE_BYTES;
use super::{Check, Fig8, Outcome};
use crate::micro::bed::{KEY_BYTES, VALUE_BYTES};
use crate::plot::{Axis, Plot, Role, Unit};
use crate::report::{Of, Report, Row, arm, figures, own, rate};
use crate::statistics::Estimate;
use crate::turns::Turn;

/// The paper's Figure 8: Percolator's rate over Bigtable's.
pub(super) const PAPER_READ: f64 = 0.94;
pub(super) const PAPER_WRITE: f64 = 0.23;

/// The rate of one arm over another's, with its bar and the paper's value.
const RATES: [Row; 51] = [
    // The paper's two bars, and the ladder from its form to the default.
    rate("get", "raw_get").at_least(0.90).paper(PAPER_READ),
    rate("snapshot_get", "raw_get"),
    rate("begin_get", "raw_get"),
    rate("paper_faithful_get", "raw_get").paper(PAPER_READ),
    rate("get_many", "raw_get_many").paper(PAPER_READ),
    rate("paper_faithful", "raw_set").at_least(0.15).paper(PAPER_WRITE),
    rate("with_newest_apart", "raw_set"),
    rate("with_memory", "raw_set"),
    rate("two_phases", "raw_set").at_least(0.40).paper(PAPER_WRITE),
    rate("tx", "raw_set").at_least(0.60).paper(PAPER_WRITE),
    rate("paper_faithful", "raw_set_blind").paper(PAPER_WRITE),
    rate("two_phases", "raw_set_blind").paper(PAPER_WRITE),
    rate("tx", "raw_set_blind").paper(PAPER_WRITE),
    // The gain of each step of the ladder.
    rate("with_newest_apart", "paper_faithful"),
    rate("with_memory", "with_newest_apart"),
    rate("two_phases", "with_memory"),
    rate("tx", "two_phases"),
    // The upper limit for two phases.
    rate("two_mutations", "raw_set"),
    rate("two_mutations", "raw_set_blind"),
    rate("two_phases", "two_mutations"),
    rate("raw_set", "raw_set_blind"),
    rate("tx_ten", "raw_set").at_least(0.45),
    rate("tx_ten", "raw_set_blind"),
    rate("tx_many", "raw_set_many"),
    rate("tx_many", "raw_set_blind_many"),
    // With a console's recorder.
    rate("get_recorded", "get").at_least(0.93),
    rate("tx_recorded", "tx").at_least(0.93),
    // With a trace of each transaction, which is written after the commit.
    rate("get_traced", "get"),
    rate("tx_traced", "tx"),
    // Durable.
    rate("tx_sync", "raw_set_sync").at_least(0.80),
    rate("two_phases_sync", "raw_set_sync").at_least(0.45),
    rate("tx_sync_many", "raw_set_sync_many").at_least(0.60),
    rate("tx_sync_many_alone", "tx_sync_many"),
    // Raw operations over the bare engine.
    rate("raw_get", "fjall_get").at_least(0.6),
    rate("raw_set", "fjall_insert").at_least(0.6),
    rate("raw_set_blind", "fjall_insert").at_least(0.6),
    rate("raw_set_sync", "fjall_insert_sync").at_least(0.6),
    // The upper limit for a raw write that carries older versions along.
    rate("fjall_packs", "fjall_insert"),
    rate("raw_set", "fjall_packs"),
    // Over a network.
    rate("server_get", "server_raw_get").paper(PAPER_READ),
    rate("server_tx", "server_raw_set").paper(PAPER_WRITE),
    rate("emulator_get", "emulator_raw_get").paper(PAPER_READ),
    rate("emulator_tx", "emulator_raw_set").paper(PAPER_WRITE),
    // Peers.
    rate("fjall_optimistic", "fjall_insert"),
    rate("fjall_single_writer", "fjall_insert"),
    rate("fjall_optimistic_sync", "fjall_insert_sync"),
    rate("fjall_single_writer_sync", "fjall_insert_sync"),
    rate("get", "postgres_get"),
    rate("tx", "postgres_update"),
    rate("tx_sync", "postgres_update_sync"),
    rate("tx_sync_many", "postgres_update_sync_many"),
];

/// Arms whose system calls and bytes are reported: raw writes, and what transactions make of
/// one.
const WRITERS: [&str; 6] =
    ["fjall_packs", "raw_set_blind", "raw_set", "tx", "two_mutations", "two_phases"];

/// Arms that must find all their data in memory, as in the paper's Figure 8.
const READERS: [&str; 6] =
    ["raw_get", "get", "snapshot_get", "begin_get", "paper_faithful_get", "fjall_get"];
/// Most system calls that read, per read. Data just written out is read once; data that does
/// not fit into memory is read again and again.
const READ_CALLS_MAX: f64 = 0.05;
/// Allowance per turn for the system calls of counting itself.
const READ_CALLS_TO_COUNT: f64 = 10.0;

/// The bars of the plot: the name of each, and the arms that read and write.
const PLOTTED: [(&str, Role, [&str; 2]); 6] = [
    ("raw", Role::Peer(0), ["raw_get", "raw_set"]),
    ("Percolator", Role::Ours(0), ["get", "tx"]),
    ("Percolator in two phases", Role::Ours(1), ["", "two_phases"]),
    ("Percolator in the paper's form", Role::Ours(2), ["paper_faithful_get", "paper_faithful"]),
    (
        "fjall: get, and its optimistic transaction",
        Role::Peer(1),
        ["fjall_get", "fjall_optimistic"],
    ),
    ("PostgreSQL", Role::Peer(2), ["postgres_get", "postgres_update"]),
];

const ASKED: [(&str, [&str; 6], Of); 3] = [
    (": system calls that read, each", READERS, |turn| {
        Some(turn.io?.read_calls as f64 / turn.operations as f64)
    }),
    (": system calls that write, each", WRITERS, |turn| {
        Some(turn.io?.write_calls as f64 / turn.operations as f64)
    }),
    (": bytes written, each", WRITERS, |turn| {
        Some(turn.io?.written_bytes as f64 / turn.operations as f64)
    }),
];

/// True if an arm read from files although its data should be in memory. Half of the turns may,
/// because the engine compacts while readers read.
fn is_uncached(turns: &[Turn]) -> bool {
    let reads_files = |turn: &&Turn| {
        let most = READ_CALLS_TO_COUNT + READ_CALLS_MAX * turn.operations as f64;
        turn.io.is_some_and(|io| io.read_calls as f64 > most)
    };
    turns.iter().filter(reads_files).count() * 2 > turns.len()
}

fn broken(outcome: &Outcome) -> Vec<String> {
    let mut broken = Vec::new();
    if outcome.check.wrong > 0 {
        let wrong = grouped(outcome.check.wrong);
        broken.push(format!("{wrong} cells were not as they were written"));
    }
    let readers = READERS.into_iter().filter_map(|name| arm(&outcome.arms, name));
    for reader in readers.filter(|arm| is_uncached(&arm.turns)) {
        broken.push(format!(
            "{} read files more than {READ_CALLS_MAX} times for each of its reads: its cells are \
             not all in memory",
            reader.name,
        ));
    }
    broken
}

pub(super) fn report(settings: &Fig8, outcome: &Outcome) -> Report {
    let Outcome { turns, arms, .. } = outcome;
    let mut all = figures(*turns, arms, &RATES);
    for (what, names, of) in ASKED {
        let rows = names.map(|name| own(name, what, of));
        all.extend(figures(*turns, arms, &rows));
    }
    let Fig8 { cells, callers, .. } = *settings;
    let about = json!({
        "quick": settings.measure.common.quick,
        "cells": cells,
        "cells_synced_and_remote": cells.min(FEWER_CELLS_MAX),
        "key_bytes": KEY_BYTES,
        "value_bytes": VALUE_BYTES,
        "cache_bytes": CACHE_BYTES,
        "callers": callers,
    });
    let Check { copies, cells: read, wrong } = outcome.check;
    let check = json!({ "copies": copies, "cells": read, "wrong": wrong });
    let help = "the figures are void; measure fewer cells (--cells) where they are not in memory, \
                and report anything else with the settings above";
    let broken = broken(outcome);
    let void = (!broken.is_empty()).then(|| (broken.join("; "), help.to_owned()));
    Report::of_arms("fig8", about, *turns, arms, all)
        .with("ladder", outcome.ladder.iter().map(super::ladder::Step::json).collect())
        .with("left_out", json!(outcome.missing))
        .check(check, void)
        .plot("fig8.svg", plot(cells, outcome))
}

fn plot(cells: usize, outcome: &Outcome) -> String {
    let Outcome { turns, arms, .. } = outcome;
    let rate_of = |name: &str| {
        let arm = arm(arms, name)?;
        Some(arm.operations as f64 / arm.spent.elapsed.as_secs_f64())
    };
    let group = |name: &str, ours, raw| {
        let ratio = figures(*turns, arms, &[rate(ours, raw)]);
        let median = ratio.first().and_then(|figure| figure.estimate).map(|e| e.median);
        let ratio = median.map_or("?".to_owned(), |median| format!("{median:.2}"));
        format!("{name}: {ratio} of raw")
    };
    let share = |name: &str, share: f64| rate_of(name).map(|rate| Estimate::alone(rate * share));
    let rates = |names: [&str; 2]| names.map(|name| share(name, 1.0));
    let subtitle = format!(
        "{} cells of {KEY_BYTES} + {VALUE_BYTES} bytes at random, all cached, one caller, buffered. \
         The paper's bars are its own shares of our raw rates: {PAPER_READ} and {PAPER_WRITE}.",
        grouped(cells as u64)
    );
    let groups = [group("Read/s", "get", "raw_get"), group("Write/s", "tx", "raw_set")];
    let y = Axis::linear("operations a second", Unit::Plain);
    let papers = [share("raw_get", PAPER_READ), share("raw_set", PAPER_WRITE)];
    let mut plot =
        Plot::groups(groups, y, "Figure 8: single cells, transactional and raw", subtitle);
    for (name, role, arms) in PLOTTED {
        plot = plot.bars(name, role, rates(arms));
    }
    plot.bars("the paper's share of raw", Role::Paper(0), papers).svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Io;

    #[test]
    fn readers_may_read_files_now_and_then() {
        let turn = |read_calls| {
            let io = Some(Io { read_calls, ..Io::default() });
            let own = Vec::new();
            Turn { rate: 1.0, cpu_rate: None, operations: 1000, io, p50: 1.0, p99: 1.0, own }
        };
        let (cached, uncached) = (turn(60), turn(61));
        assert!(!is_uncached(&[]) && !is_uncached(&[cached.clone(), uncached.clone()]));
        assert!(is_uncached(&[cached.clone(), uncached.clone(), uncached]));
        let unknown = Turn { io: None, ..cached };
        assert!(!is_uncached(&[unknown]));
    }
}
