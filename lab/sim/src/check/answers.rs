//! Checks that every outcome that a client received agrees with the store's records (P4, H07).
//!
//! A transaction whose client received a commit timestamp has its records at that timestamp. A
//! transaction whose client received "aborted" has none. A transaction whose client received
//! nothing may have either: this check demands nothing of it.

use super::facts::Facts;
use super::findings::report;
use super::property;
use crate::history::{Finding, Outcome};

pub(super) fn check(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for known in &facts.txns {
        let s = known.txn.start_ts;
        let first = known.records.first().map(|record| record.commit_ts);
        match (known.txn.outcome, first) {
            // A transaction that wrote nothing, or only sent notifications, leaves no record.
            (Outcome::Committed(_), None) if known.writes.is_empty() => {}
            (Outcome::Committed(told), None) => report(
                findings,
                property::NO_LOST_COMMIT,
                format!("transaction {s} was reported as committed at {told}, but has no record"),
            ),
            (Outcome::Committed(told), Some(stored)) if told != stored => report(
                findings,
                property::NO_LOST_COMMIT,
                format!(
                    "transaction {s} was reported as committed at {told}, but the stored commit \
                     timestamp is {stored}"
                ),
            ),
            (Outcome::Aborted, Some(stored)) => report(
                findings,
                property::NO_FALSE_ABORT,
                format!("transaction {s} was reported as aborted, but has a record at {stored}"),
            ),
            (Outcome::Committed(_) | Outcome::Aborted | Outcome::Unknown, _) => {}
        }
    }
}
