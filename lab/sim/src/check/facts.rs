//! Works out the fate of each transaction, and arranges the history for the checkers.
//!
//! The store's records decide, not the outcome that the client received. A transaction whose
//! client did not learn the outcome has committed if and only if a record points at its start
//! timestamp.

use std::collections::{BTreeMap, BTreeSet};

use bigtable::Timestamp;

use crate::history::{Cell, History, Op, Outcome, Record, Txn};

/// A history, by transaction.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) history: &'a History,
    pub(super) txns: Vec<TxnFacts<'a>>,
    /// Records that point at a start timestamp of no known transaction.
    pub(super) strays: Vec<Record>,
    /// All records, each once, by cell and commit timestamp.
    pub(super) records: BTreeSet<Record>,
}

/// A transaction with the store's records of it.
#[derive(Debug)]
pub(super) struct TxnFacts<'a> {
    pub(super) txn: &'a Txn,
    /// The last write to each cell, and whether that write is a delete.
    pub(super) writes: BTreeMap<Cell, bool>,
    pub(super) records: Vec<Record>,
    /// The commit timestamp: that of its records, else the one that its client received.
    pub(super) committed: Option<Timestamp>,
}

impl<'a> Facts<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let records: BTreeSet<Record> = history.records.iter().copied().collect();
        let mut pointers: BTreeMap<Timestamp, Vec<Record>> = BTreeMap::new();
        for record in &records {
            pointers.entry(record.start_ts).or_default().push(*record);
        }
        let mut txns = Vec::with_capacity(history.txns.len());
        for txn in &history.txns {
            let records = pointers.remove(&txn.start_ts).unwrap_or_default();
            txns.push(TxnFacts::of(txn, records));
        }
        let strays = pointers.into_values().flatten().collect();
        Facts { history, txns, strays, records }
    }

    /// Returns the committed transactions, with their commit timestamps.
    pub(super) fn committed(&self) -> impl Iterator<Item = (&TxnFacts<'a>, Timestamp)> {
        self.txns.iter().filter_map(|txn| Some((txn, txn.committed?)))
    }
}

impl<'a> TxnFacts<'a> {
    fn of(txn: &'a Txn, records: Vec<Record>) -> Self {
        let mut writes = BTreeMap::new();
        for op in &txn.ops {
            if let Op::Write { cell, delete } = op {
                writes.insert(*cell, *delete);
            }
        }
        let recorded = records.iter().map(|record| record.commit_ts).min();
        let told = match txn.outcome {
            Outcome::Committed(commit_ts) if !writes.is_empty() => Some(commit_ts),
            _ => None,
        };
        TxnFacts { txn, writes, records, committed: recorded.or(told) }
    }
}
