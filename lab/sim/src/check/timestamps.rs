//! Checks that all start and commit timestamps are distinct, and that each transaction's start
//! comes first (H29).

use super::facts::Facts;
use super::findings::report;
use super::property;
use crate::history::Finding;

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let mut used = Vec::with_capacity(2 * facts.txns.len());
    for known in &facts.txns {
        used.push((known.txn.start_ts, known.txn.start_ts));
    }
    for (known, c) in facts.committed() {
        let s = known.txn.start_ts;
        used.push((c, s));
        if c <= s {
            let facts = format!("transaction {s} committed at {c}, not after its start");
            report(findings, property::TIMESTAMPS, facts);
        }
    }
    used.sort();
    for pair in used.windows(2) {
        let [(a, of), (b, other)] = pair else { continue };
        if a == b {
            let facts = format!("timestamp {a} is used twice, by transactions {of} and {other}");
            report(findings, property::TIMESTAMPS, facts);
        }
    }
}
