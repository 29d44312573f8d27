//! Checkers: was what the clients saw, and what the store is left with, Percolator's promise?
//!
//! One file per property. The core is a check of snapshot isolation from timestamps: every version
//! that was read names its writer, every transaction its start and commit timestamps, so that one
//! sweep over them in order says what each read had to return, in O(N log N).
//!
//! ```text
//! facts          what became of each transaction, told by the store's records alone
//! findings       how checkers report, and the names of the properties (property)
//! answers        what clients were told is what the records say        (H07; P4)
//! one_commit     one commit timestamp for each transaction             (H20; P5)
//! timestamps     all distinct, start before commit                     (H29, H40 to H46)
//! oracle         never repeats, never goes back                        (H09, H40 to H45)
//! real_time      who begins later reads no less                        (H39)
//! snapshot       reads, scans, own writes, no overlapping writers      (H01 to H38; P1, P2)
//! whole          all cells of a transaction, no lock, no tomb beside   (P3, P5)
//! observers      once for each change, and none lost                   (H47 to H62; P6, P7)
//! list_append    the same isolation level without trusting timestamps  (Elle's rules)
//! ```
//!
//! A version that garbage collection took too early shows as a wrong read: `records` holds every
//! record that ever was. What is not checked here: that the store's values are those written, since
//! a history names versions and not values; and that work ends, which whoever runs the clients
//! sees.

mod answers;
mod facts;
mod findings;
pub mod list_append;
mod observers;
mod one_commit;
mod oracle;
pub mod property;
pub mod raw;
mod real_time;
mod snapshot;
#[cfg(test)]
mod tests;
mod timestamps;
mod whole;

use crate::history::{Finding, History};
use facts::Facts;

/// Checks every property of a run.
pub fn check(history: &History) -> Vec<Finding> {
    let facts = Facts::of(history);
    let mut findings = Vec::new();
    answers::check(&facts, &mut findings);
    one_commit::check(&facts, &mut findings);
    timestamps::check(&facts, &mut findings);
    oracle::check(&facts, &mut findings);
    real_time::check(&facts, &mut findings);
    snapshot::check(&facts, &mut findings);
    whole::check(&facts, &mut findings);
    observers::check(&facts, &mut findings);
    findings
}
