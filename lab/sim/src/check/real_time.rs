//! Order in real time: whoever begins after a commit was acknowledged reads it, and start
//! timestamps follow one another as the calls of `begin` do (H39). With the snapshot check this is
//! strong snapshot isolation.

use bigtable::Timestamp;

use super::facts::Facts;
use super::findings::report;
use super::property;
use crate::history::{Finding, Outcome};

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    // What is known to everybody from a moment on: a commit, or a start timestamp.
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
        // At the same moment is not before.
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
