//! Checks order in real time (H39). A transaction that begins after a commit was acknowledged
//! has a higher start timestamp, so it reads that commit. Start timestamps follow the order of
//! the calls of `begin`. Together with the snapshot check this is strong snapshot isolation.

use bigtable::Timestamp;

use super::facts::Facts;
use super::findings::report;
use super::property;
use crate::history::{Finding, Outcome};

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    // From each of these moments on a timestamp is known: a commit was acknowledged, or
    // `begin` returned.
    let mut known = Vec::with_capacity(2 * facts.txns.len());
    for of in &facts.txns {
        known.push((of.txn.begin_return, of.txn.start_ts));
        if let (Some(returned), Some(c), Outcome::Committed(_)) =
            (of.txn.commit_return, of.committed, of.txn.outcome)
        {
            known.push((returned, c));
        }
    }
    known.sort();
    let mut begins: Vec<_> = facts.txns.iter().map(|of| of.txn).collect();
    begins.sort_by_key(|txn| txn.begin_call);
    let mut known = known.into_iter().peekable();
    let mut highest = Timestamp::ZERO;
    for txn in begins {
        // A reply at the very moment of the call does not count as earlier.
        while let Some((_, timestamp)) = known.next_if(|(moment, _)| *moment < txn.begin_call) {
            highest = highest.max(timestamp);
        }
        let s = txn.start_ts;
        if s < highest {
            let facts = format!("transaction {s} began when {highest} was known already");
            report(findings, property::REAL_TIME, facts);
        }
    }
}
