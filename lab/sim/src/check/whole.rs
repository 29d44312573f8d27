//! Checks that transactions are whole (P3, P5). Either all cells of a transaction have a record or
//! none has. No tomb stands beside a record, and no lock is left once all locks were resolved.

use std::collections::BTreeSet;

use super::facts::{Facts, TxnFacts};
use super::findings::{name, report};
use super::property;
use crate::history::Finding;

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    // An observer's run also writes its acknowledgement, in a cell that its own steps do not name.
    let runs: BTreeSet<_> = facts.history.runs.iter().map(|run| run.start_ts).collect();
    for known in &facts.txns {
        compare(known, runs.contains(&known.txn.start_ts), findings);
    }
    for record in facts.strays.iter().filter(|record| !runs.contains(&record.start_ts)) {
        let (cell, s) = (name(&record.cell), record.start_ts);
        let facts = format!("the record of {cell} points at {s}, where no transaction began");
        report(findings, property::WHOLE, facts);
    }
    for (cell, s) in &facts.history.locks {
        let facts = format!("the lock of transaction {s} on {} is left", name(cell));
        report(findings, property::NO_LOCK_LEFT, facts);
    }
    for (cell, s) in &facts.history.locked_again {
        let cell = name(cell);
        let facts =
            format!("transaction {s} locked {cell} after its record or tomb was written there");
        report(findings, property::TOMB_OR_RECORD, facts);
    }
    for (cell, s) in &facts.history.revived {
        let facts = format!(
            "the record of transaction {s} in {} was written again after its collection",
            name(cell)
        );
        report(findings, property::COLLECTED, facts);
    }
    let committed: BTreeSet<_> = facts.records.iter().map(|record| record.start_ts).collect();
    let tombs: BTreeSet<_> = facts.history.tombs.iter().collect();
    for (cell, s) in tombs.into_iter().filter(|(_, s)| committed.contains(s)) {
        let facts = format!("transaction {s} has records, and a tomb on {}", name(cell));
        report(findings, property::TOMB_OR_RECORD, facts);
    }
}

/// Compares the records of a transaction with its writes.
fn compare(known: &TxnFacts<'_>, acknowledges: bool, findings: &mut Vec<Finding>) {
    if known.records.is_empty() {
        return;
    }
    let s = known.txn.start_ts;
    let recorded: BTreeSet<_> = known.records.iter().map(|r| (r.cell, r.delete)).collect();
    for (cell, delete) in &known.writes {
        if !recorded.contains(&(*cell, *delete)) {
            let (cell, n, of) = (name(cell), known.records.len(), known.writes.len());
            let facts =
                format!("transaction {s} has {n} records for {of} writes, and none for {cell}");
            report(findings, property::WHOLE, facts);
        }
    }
    for (cell, delete) in recorded {
        if !acknowledges && known.writes.get(&cell) != Some(&delete) {
            let facts = format!("transaction {s} has a record of {} it did not write", name(&cell));
            report(findings, property::WHOLE, facts);
        }
    }
}
