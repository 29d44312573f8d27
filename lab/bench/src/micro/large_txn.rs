//! Measures large transactions, and many at once (paper sections 2.2 and 2.5).
//!
//! ```text
//!   raw_N          N cells in rows of their own by Table::check_and_mutate_rows, 1,000 in a
//!                  request
//!   tx_N           begin, N sets in rows of their own, commit
//!   one_by_one     transactions with a slow step in the middle: get, set, slow step, get, set,
//!                  commit; as few at once as there are workers, so that hardly any time is spent
//!                  in the slow step
//!   all_at_once    thousands of such transactions at once in one process, all in the slow step
//!                  together
//! ```
//!
//! Memory is the growth of a process: by the cells of one large transaction before its commit,
//! and by waiting transactions. Each is measured in a process that has held nothing else.
//! Otherwise freed memory would be reused, and no growth would show.

mod large;
mod many;
mod slow;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use percolator_cli::context::Context;
use serde_json::json;

use super::bed::{KEY_BYTES, VALUE_BYTES};
use crate::Turns;
use crate::flags::{Measure, Place, within};
use crate::plot::{Axis, Plot, Point, Role, Unit};
use crate::processes::Driver;
use crate::report::{Bar, Figure, PLEASE_REPORT, Report, Row, arm, figures, rate};
use crate::turns::Measured;

use large::Large;
use many::Many;

/// Transactions in flight together in `one_by_one`.
const FEW: usize = 4;
/// Least rate of cells in transactions, compared with raw cells.
const CELLS: f64 = 0.45;
/// Most bytes that a transaction may hold before its commit, per byte of its cells.
const BYTES: f64 = 4.0;
/// Most bytes of a waiting transaction: the size of a thread's stack in the kernel alone.
const WAITING_BYTES: f64 = 16.0 * 1024.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Raw(usize),
    Tx(usize),
    OneByOne,
    AllAtOnce,
}

/// All arms in the order of the report, each with its operation.
const ARMS: [(&str, Work, &str); 10] = [
    ("raw_10", Work::Raw(10), "a cell; 10 in a request"),
    ("tx_10", Work::Tx(10), "a cell; 10 in a transaction"),
    ("raw_1000", Work::Raw(1_000), "a cell; 1,000 in a request"),
    ("tx_1000", Work::Tx(1_000), "a cell; 1,000 in a transaction"),
    ("raw_10000", Work::Raw(10_000), "a cell; 1,000 in a request"),
    ("tx_10000", Work::Tx(10_000), "a cell; 10,000 in a transaction"),
    ("raw_100000", Work::Raw(100_000), "a cell; 1,000 in a request"),
    ("tx_100000", Work::Tx(100_000), "a cell; 100,000 in a transaction"),
    ("one_by_one", Work::OneByOne, "get, set, get, set, commit; four at once"),
    ("all_at_once", Work::AllAtOnce, "the same, all waiting together in the middle"),
];

const ROWS: [Row; 5] = [
    rate("tx_10", "raw_10").at_least(CELLS),
    rate("tx_1000", "raw_1000").at_least(CELLS),
    rate("tx_10000", "raw_10000").at_least(CELLS),
    rate("tx_100000", "raw_100000").at_least(CELLS),
    rate("all_at_once", "one_by_one").at_least(0.5),
];

/// Large transactions, and thousands at once: cells a second, and memory.
///
/// The benchmark runs on the embedded store, and compares with the same cells written without
/// transactions. The arms take turns in ten blocks or more, in an order drawn from the seed. The
/// exit status is 3 if a cell is not as it was written. It is also 3 if a slow commit was rolled
/// back although its owner lives.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  percolator-bench micro large-txn --quick --out results
  percolator-bench micro large-txn --transactions 100000 --json")]
pub(crate) struct LargeTxn {
    #[command(flatten)]
    pub(crate) measure: Measure,
    /// Cells of the largest transaction.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    cells: usize,
    /// The number of transactions at the same time.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    transactions: usize,
}

/// Measure the memory of a large transaction, in a process that does nothing else.
#[derive(Debug, Args)]
pub(crate) struct LargeTxnMemory {
    #[arg(long)]
    cells: usize,
    #[arg(long)]
    seed: u64,
    /// An empty directory.
    #[arg(long)]
    data: PathBuf,
}

impl LargeTxnMemory {
    /// Prints, as a line of JSON, the memory that a transaction of this many cells takes.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let mut large = Large::create(&self.data, self.cells, self.seed).await?;
        let (cell, cell_at_commit) = large.memory().await?;
        let told = json!({ "cell": cell, "cell_at_commit": cell_at_commit });
        Ok(writeln!(std::io::stdout(), "{told}")?)
    }
}

/// Memory in use, in bytes.
#[derive(Debug, Default)]
struct Memory {
    /// Per cell of the largest transaction: before its commit, and at most during it.
    cell: Option<f64>,
    cell_at_commit: Option<f64>,
    /// Per waiting transaction.
    waiting: Option<f64>,
}

impl Memory {
    /// Measures a large transaction in a process of its own.
    fn apart(cells: usize, seed: u64, dir: &Path) -> anyhow::Result<Self> {
        let (cells, seed) = (cells.to_string(), seed.to_string());
        let data = dir.to_string_lossy();
        let arguments = ["--cells", &cells, "--seed", &seed, "--data", &data];
        let told = Driver::start("large-txn-memory", arguments, &[])?.answer()?;
        let [cell, cell_at_commit] = ["cell", "cell_at_commit"].map(|name| told[name].as_f64());
        Ok(Memory { cell, cell_at_commit, waiting: None })
    }

    fn figures(&self) -> [Figure; 3] {
        let payload = |bytes: f64| bytes / (KEY_BYTES + VALUE_BYTES) as f64;
        let before = self.cell.map(payload);
        let waiting = Figure::alone("memory of a transaction that waits, bytes", self.waiting);
        [
            Figure::alone("memory of a cell before commit/its bytes", before)
                .bar(Bar::AtMost(BYTES)),
            Figure::alone("the same at most during commit", self.cell_at_commit.map(payload)),
            waiting.bar(Bar::AtMost(WAITING_BYTES)),
        ]
    }
}

impl LargeTxn {
    pub(crate) async fn measure(&self, context: &Context) -> anyhow::Result<Report> {
        let LargeTxn { cells, transactions, .. } = *self;
        within("cells", cells, 1_000..=100_000)?;
        within("transactions", transactions, 1..=1_000_000)?;
        let turns = self.measure.turns(10.0)?;
        let place = Place::temporary()?;
        let mut memory = Memory::apart(cells, turns.seed, &place.join("memory"))?;
        let mut many = Many::create(&place.join("many"), transactions).await?;
        many.block(transactions).await?;
        memory.waiting = many.waiting_bytes;
        let mut large = Large::create(&place.join("large"), cells, turns.seed).await?;
        let slow = slow::run(&place.join("slow"), cells).await?;
        let arms = ARMS.into_iter().filter(|(_, work, _)| match work {
            Work::Raw(count) | Work::Tx(count) => *count <= cells,
            Work::OneByOne | Work::AllAtOnce => true,
        });
        let arms: Vec<_> = arms.collect();
        let turn = async |at: usize| match arms[at].1 {
            Work::Raw(cells) => large.raw(cells, turns.block()).await,
            Work::Tx(cells) => large.tx(cells, turns.block()).await,
            Work::OneByOne => many.block(FEW).await,
            Work::AllAtOnce => many.block(transactions).await,
        };
        let named = arms.iter().map(|(name, _, operation)| (*name, *operation));
        let arms = turns.measure(context, named, turn).await?;
        let mut conditions = large.conditions().await?;
        conditions.extend(many.conditions().await?);
        conditions.push(slow);
        let mut figures = figures(turns, &arms, &ROWS);
        figures.extend(memory.figures());
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
        let report = Report::of_arms("large-txn", settings, turns, &arms, figures);
        let report = report.conditions(&conditions, PLEASE_REPORT);
        Ok(report.plot("large-txn.svg", plot(turns, &arms)))
    }
}

fn plot(turns: Turns, arms: &[Measured]) -> String {
    let points = |kind: &str| {
        let point = |cells: f64| {
            let rate = turns.rate(arm(arms, &format!("{kind}_{cells}"))?)?;
            Some(Point::of(cells, rate))
        };
        [10.0, 1_000.0, 10_000.0, 100_000.0].into_iter().filter_map(point).collect()
    };
    let subtitle = format!(
        "Embedded store, durability buffered, one caller; cells of {KEY_BYTES} + {VALUE_BYTES} bytes."
    );
    let x = Axis::log("cells of a transaction", Unit::Plain);
    let y = Axis::log("cells a second", Unit::Plain);
    Plot::over(x, y, "Cells a second by the size of a transaction", subtitle)
        .line("transactions", Role::Ours(0), points("tx"))
        .dashed("raw, at most 1,000 in a request", Role::Peer(0), points("raw"))
        .svg()
}
