//! Checks the oracle. It hands out no timestamp twice, and each timestamp is higher than all
//! that had arrived when it was requested (H09, H40 to H45). Every timestamp that a
//! transaction used was handed out (H21).

use std::collections::BTreeSet;
use std::time::Duration;

use bigtable::Timestamp;

use super::facts::Facts;
use super::findings::report;
use super::property;
use crate::history::Finding;

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let stamps = &facts.history.stamps;
    if stamps.is_empty() {
        return;
    }
    let mut issued = BTreeSet::new();
    for (timestamp, ..) in stamps {
        if !issued.insert(*timestamp) {
            let facts = format!("timestamp {timestamp} was handed out twice");
            report(findings, property::ORACLE, facts);
        }
    }
    for (timestamp, earlier) in out_of_order(stamps) {
        let facts = format!("{timestamp} was asked for after {earlier} had arrived");
        report(findings, property::ORACLE, facts);
    }
    for (known, c) in facts.committed() {
        for ts in [known.txn.start_ts, c] {
            if !issued.contains(&ts) {
                let s = known.txn.start_ts;
                let facts = format!("transaction {s} used {ts}, which was never handed out");
                report(findings, property::ORACLE, facts);
            }
        }
    }
}

/// Returns each timestamp that is below one whose reply had arrived before the request, with
/// the highest such one.
fn out_of_order(stamps: &[(Timestamp, Duration, Duration)]) -> Vec<(Timestamp, Timestamp)> {
    let mut by_call = stamps.to_vec();
    by_call.sort_by_key(|(_, call, _)| *call);
    let mut by_return = stamps.to_vec();
    by_return.sort_by_key(|(.., returned)| *returned);
    let mut arrived = by_return.into_iter().peekable();
    let mut highest = Timestamp::ZERO;
    let mut found = Vec::new();
    for (timestamp, call, _) in by_call {
        // A reply at the very moment of the request does not count as earlier.
        while let Some((earlier, ..)) = arrived.next_if(|(.., returned)| *returned < call) {
            highest = highest.max(earlier);
        }
        if timestamp < highest {
            found.push((timestamp, highest));
        }
    }
    found
}
