//! What clients were told is what the store's records say (H07, P4).
//!
//! A client that was told a commit timestamp finds its records at it for ever; one that was told
//! "aborted" never finds one. Of one that was told nothing, nothing is demanded here.

use super::facts::Facts;
use super::findings::report;
use super::property;
use crate::history::{Finding, Outcome};

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for known in &facts.txns {
        let s = known.txn.start_ts;
        let first = known.records.first().map(|record| record.commit_ts);
        match (known.txn.outcome, first) {
            // One that wrote nothing, or only notified, leaves no record.
            (Outcome::Committed(_), None) if known.writes.is_empty() => {}
            (Outcome::Committed(told), None) => report(
                findings,
                property::NO_LOST_COMMIT,
                format!("transaction {s} was told to have committed at {told}, and has no record"),
            ),
            (Outcome::Committed(told), Some(stored)) if told != stored => report(
                findings,
                property::NO_LOST_COMMIT,
                format!(
                    "transaction {s} was told {told} as its commit timestamp, stored is {stored}"
                ),
            ),
            (Outcome::Aborted, Some(stored)) => report(
                findings,
                property::NO_FALSE_ABORT,
                format!("transaction {s} was told to have aborted, and has a record at {stored}"),
            ),
            (Outcome::Committed(_) | Outcome::Aborted | Outcome::Unknown, _) => {}
        }
    }
}
