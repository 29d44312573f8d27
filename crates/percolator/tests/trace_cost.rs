//! The cost of a trace: writes of single cells with and without one, in turns in one run.
//!
//! ```text
//! cargo test --release -p percolator --test trace_cost -- --ignored --nocapture
//! ```

#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::Path;
use std::time::Instant;

use percolator::watch::Sampling;
use percolator::{Column, Durability, OpenOptions, Options, Percolator, Table};

const BAL: Column = Column::literal("bal");
/// How many turns each database has, and the transactions of a turn.
const TURNS: usize = 25;
const WRITES: usize = 4_000;
/// The share of the speed without a trace that must be left.
const LEFT_MIN: f64 = 0.8;

async fn open(dir: &Path, trace: Sampling) -> (Percolator, Table) {
    let client = Options { trace, ..Options::default() };
    let options =
        OpenOptions { durability: Durability::Buffered, client, ..OpenOptions::default() };
    let db = Percolator::open_with(dir, options).await.unwrap();
    let table = db.table("accounts").await.unwrap();
    (db, table)
}

/// Writes cells one after the other, and returns how many in a second.
async fn turn((db, table): &(Percolator, Table), turn: usize) -> f64 {
    let begun = Instant::now();
    for n in 0..WRITES {
        let mut tx = db.begin().await.unwrap();
        tx.set(table, format!("account{:06}", (turn * WRITES + n) % 20_011), &BAL, "$10").unwrap();
        tx.commit().await.unwrap();
    }
    WRITES as f64 / begun.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures for half a minute"]
async fn a_trace_of_everything_leaves_most_of_the_speed() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let off = open(dirs[0].path(), Sampling::Off).await;
    let all = open(dirs[1].path(), Sampling::All).await;
    let mut ratios = Vec::new();
    for n in 0..TURNS + 2 {
        // Which of the two comes first changes from turn to turn.
        let (without, with) = if n % 2 == 0 {
            let without = turn(&off, n).await;
            (without, turn(&all, n).await)
        } else {
            let with = turn(&all, n).await;
            (turn(&off, n).await, with)
        };
        // The first two warm up.
        if n >= 2 {
            ratios.push(with / without);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let [low, median, high] = [TURNS / 4, TURNS / 2, TURNS * 3 / 4].map(|at| ratios[at]);
    println!(
        "speed with a trace of everything: {median:.3} of that without ({low:.3} to {high:.3})"
    );
    assert_eq!(all.0.stats().trace_dropped, 0);
    assert!(median >= LEFT_MIN, "{ratios:?}");
}
