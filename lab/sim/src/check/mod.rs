//! Checks that Percolator kept its promises: to each client in each answer, and in what the
//! store holds at the end.
//!
//! There is one file for each property. The core checks snapshot isolation from timestamps:
//! every version that was read names its writer, and every transaction has its start and
//! commit timestamps. One sweep over the timestamps in order yields the result that each read
//! had to return, in O(N log N).
//!
//! ```text
//! facts          what became of each transaction, told by the store's records alone
//! findings       how checkers report, and the names of the properties (property)
//! answers        clients got the outcome that the records show         (H07; P4)
//! one_commit     one commit timestamp for each transaction             (H20; P5)
//! timestamps     all distinct, start before commit                     (H29, H40 to H46)
//! oracle         never repeats, never goes back                        (H09, H40 to H45)
//! real_time      a later transaction reads at least as much            (H39)
//! snapshot       reads, scans, own writes, no overlapping writers      (H01 to H38; P1, P2)
//! whole          all cells of a transaction, no lock, no tomb beside   (P3, P5)
//! observers      once for each change, and none lost                   (H47 to H62; P6, P7)
//! ```
//!
//! P1 to P7 are what Percolator promises to its users; a hazard (H) is a way to break a promise:
//!
//! ```text
//! P1   a transaction reads one snapshot, and its own writes
//! P2   of two transactions that overlap and write one cell, at most one commits
//! P3   a transaction commits all of its cells or none
//! P4   the outcome that a client receives is the outcome in the store
//! P5   the store's records agree: one commit timestamp for each transaction, no lock or tomb
//!      beside a record, and a value for each record that needs one
//! P6   at most one run of a strong observer commits for each change
//! P7   no change is lost: an observer handles it, or its notification is left
//! ```
//!
//! A version that garbage collection took too early shows as a wrong read, because `records`
//! holds every record that ever existed. Two things are not checked here. A history names
//! versions and not values, so a wrong value under the right version goes unseen. The runner
//! of the clients checks that work ends.

mod answers;
mod facts;
mod findings;
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
