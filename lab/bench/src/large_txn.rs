//! Large transactions, and many at once (paper sections 2.2 and 2.5).
//!
//! ```text
//!   raw_N          N cells in rows of their own by Table::check_and_mutate_rows, 1,000 in a
//!                  request
//!   tx_N           begin, N sets in rows of their own, commit
//!   one_by_one     transactions with a slow step in the middle, each straight through: get, set,
//!                  wait, get, set, commit; as few at once as there are workers, and no waiting
//!   all_at_once    thousands of the same at once in one process, all in the slow step together
//! ```
//!
//! Memory is what a process holds more than before: by the cells of one large transaction before
//! its commit, and by transactions that wait. Each is measured in a process that has held nothing
//! else: what was freed would be used again, and nothing would be seen.

mod bed;
mod many;
mod report;
mod slow;

use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::Turns;
use crate::findings::Findings;
use crate::processes::Driver;
use crate::system::Load;
use crate::turns::Measured;

use bed::Bed;
use many::Many;
use percolator_cli::context::Context;

/// Transactions that are under way together in `one_by_one`.
const FEW: usize = 4;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) turns: Turns,
    /// Most cells of a transaction.
    pub(crate) cells: usize,
    /// How many transactions at once.
    pub(crate) transactions: usize,
}

/// What is done over and over in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Raw(usize),
    Tx(usize),
    OneByOne,
    AllAtOnce,
}

/// All arms, in the order they are reported in, with what one operation does.
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

/// What was held in memory, in bytes.
#[derive(Debug, Default)]
struct Memory {
    /// For each cell of the largest transaction before its commit, and at most during it.
    cell: Option<f64>,
    cell_at_commit: Option<f64>,
    /// For each of the transactions that wait.
    waiting: Option<f64>,
}

/// What [`memory`] finds in another process.
fn memory_apart(settings: Settings, dir: &Path) -> anyhow::Result<(Option<f64>, Option<f64>)> {
    let (cells, seed) = (settings.cells.to_string(), settings.turns.seed.to_string());
    let data = dir.to_string_lossy();
    let arguments = ["--cells", &cells, "--seed", &seed, "--data", &data];
    let told = Driver::start("large-txn-memory", arguments, &[])?.answer()?;
    Ok((told["cell"].as_f64(), told["cell_at_commit"].as_f64()))
}

/// Tells what a transaction of so many cells takes of this process's memory, as a line of JSON.
pub(crate) async fn memory(dir: &Path, cells: usize, seed: u64) -> anyhow::Result<()> {
    let (cell, cell_at_commit) = Bed::create(dir, cells, seed).await?.memory().await?;
    let told = json!({ "cell": cell, "cell_at_commit": cell_at_commit });
    Ok(writeln!(std::io::stdout(), "{told}")?)
}

/// Measures; `None` after Ctrl-C.
pub(crate) async fn run(context: &Context, settings: Settings) -> anyhow::Result<Option<Findings>> {
    let Settings { turns, .. } = settings;
    let before = Load::now();
    let arms: Vec<_> = ARMS
        .into_iter()
        .filter(|(_, work, _)| match work {
            Work::Raw(cells) | Work::Tx(cells) => *cells <= settings.cells,
            Work::OneByOne | Work::AllAtOnce => true,
        })
        .collect();
    let progress = turns.progress(context, arms.len());
    progress.say(0, "how much memory a transaction takes");
    let dir = tempfile::Builder::new().prefix("percolator-bench-").tempdir()?;
    let (cell, cell_at_commit) = memory_apart(settings, &dir.path().join("memory"))?;
    let mut many = Many::create(&dir.path().join("many"), settings.transactions).await?;
    many.block(settings.transactions).await?;
    let mut bed = Bed::create(&dir.path().join("large"), settings.cells, turns.seed).await?;
    let memory = Memory { cell, cell_at_commit, waiting: many.waiting_bytes };
    progress.say(0, "a slow commit that is kept alive");
    let slow = slow::run(&dir.path().join("slow"), settings.cells).await?;
    let mut measured: Vec<Measured> =
        arms.iter().map(|(name, _, operation)| Measured::new(name, operation)).collect();
    let turn = async |at: usize| match arms[at].1 {
        Work::Raw(cells) => bed.raw(cells, turns.block()).await,
        Work::Tx(cells) => bed.tx(cells, turns.block()).await,
        Work::OneByOne => many.block(FEW).await,
        Work::AllAtOnce => many.block(settings.transactions).await,
    };
    if !turns.take(context, &progress, &mut measured, turn).await? {
        return Ok(None);
    }
    let load = [before, Load::now()];
    let mut conditions = bed.conditions().await?;
    conditions.extend(many.conditions().await?);
    conditions.push(slow);
    Ok(Some(report::findings(settings, load, measured, &memory, conditions)))
}
