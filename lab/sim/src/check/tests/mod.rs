//! Tests the checkers on hand-made histories, good and bad, and on random ones with one random
//! defect.

mod bad;
mod good;
mod random;

use std::time::Duration;

use bigtable::Timestamp;

use super::check;
use crate::history::{Cell, Finding, History, Op, Outcome, Record, Run, Txn};

/// Two cells in two rows.
const X: Cell = Cell { table: 0, row: 1, column: 0 };
const Y: Cell = Cell { table: 0, row: 2, column: 0 };

fn ts(number: u64) -> Timestamp {
    Timestamp::new(number).unwrap()
}

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn read(cell: Cell, writer: u64) -> Op {
    Op::Read { cell, writer: Some(ts(writer)) }
}

fn read_absent(cell: Cell) -> Op {
    Op::Read { cell, writer: None }
}

fn write(cell: Cell) -> Op {
    Op::Write { cell, delete: false }
}

fn delete(cell: Cell) -> Op {
    Op::Write { cell, delete: true }
}

fn scan(from: u16, to: u16, limit: usize, found: &[(Cell, u64)]) -> Op {
    let found = found.iter().map(|(cell, writer)| (*cell, ts(*writer))).collect();
    Op::Scan { from: Cell { table: 0, row: from, column: 0 }, to, limit, found }
}

/// Returns a transaction whose calls happen at the virtual times of its timestamps.
fn txn(start_ts: u64, outcome: Outcome, ops: &[Op]) -> Txn {
    let commit_return = match outcome {
        Outcome::Committed(c) => ms(c.as_u64()),
        Outcome::Aborted | Outcome::Unknown => ms(start_ts + 1),
    };
    Txn {
        start_ts: ts(start_ts),
        begin_call: ms(start_ts),
        begin_return: ms(start_ts),
        commit_return: Some(commit_return),
        ops: ops.to_vec(),
        outcome,
    }
}

/// A transaction by its timestamps and its steps.
type Steps<'a> = (u64, Option<u64>, &'a [Op]);

/// Builds a history with correct records and stamps from `(s, c, steps)`. A transaction
/// without `c` aborted, or only read.
fn history(txns: &[Steps<'_>]) -> History {
    let mut history = History::default();
    for (s, c, ops) in txns {
        let outcome = c.map_or(Outcome::Aborted, |c| Outcome::Committed(ts(c)));
        add(&mut history, txn(*s, outcome, ops));
    }
    history
}

/// Adds a transaction with its records and stamps.
fn add(history: &mut History, txn: Txn) {
    let stamp = |at: Timestamp| (at, ms(at.as_u64()), ms(at.as_u64()));
    history.stamps.push(stamp(txn.start_ts));
    if let Outcome::Committed(commit_ts) = txn.outcome {
        history.stamps.push(stamp(commit_ts));
        let mut writes = std::collections::BTreeMap::new();
        for op in &txn.ops {
            if let Op::Write { cell, delete } = op {
                writes.insert(*cell, *delete);
            }
        }
        for (cell, delete) in writes {
            history.records.push(Record { cell, commit_ts, start_ts: txn.start_ts, delete });
        }
    }
    history.txns.push(txn);
}

fn properties(findings: &[Finding]) -> Vec<&'static str> {
    let mut properties: Vec<_> = findings.iter().map(|finding| finding.property).collect();
    properties.sort_unstable();
    properties.dedup();
    properties
}

#[track_caller]
fn accepts(history: &History) {
    let findings = check(history);
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Asserts that exactly these properties reject the history.
#[track_caller]
fn rejects(history: &History, by: &[&'static str]) {
    let findings = check(history);
    let mut by = by.to_vec();
    by.sort_unstable();
    assert_eq!(properties(&findings), by, "{findings:#?}");
}

/// Returns a history of one observed cell: a committed write for each of `commits`, and runs
/// at `runs`. The last run is the acknowledged one.
fn observed(commits: &[(u64, u64)], runs: &[u64]) -> History {
    let mut history = History::default();
    for (s, c) in commits {
        add(&mut history, txn(*s, Outcome::Committed(ts(*c)), &[write(X)]));
    }
    for s in runs {
        let run = Run { observer: 1, cell: X, start_ts: ts(*s) };
        history.runs.push(run);
        // The acknowledgement lies in a cell that no step of the transaction names.
        let ack = Cell { column: 9, ..X };
        let (commit_ts, start_ts) = (ts(s + 1), ts(*s));
        let outcome = Outcome::Committed(commit_ts);
        add(&mut history, txn(*s, outcome, &[]));
        history.records.push(Record { cell: ack, commit_ts, start_ts, delete: false });
    }
    history.observed = vec![(1, X, runs.last().map(|s| ts(*s)))];
    history
}
