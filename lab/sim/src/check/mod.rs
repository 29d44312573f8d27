//! Checkers: was what the clients saw, and what the store is left with, Percolator's promise?
//!
//! One file per property. The core is a check of snapshot isolation from timestamps: every version
//! that was read names its writer, every transaction its start and commit timestamps, so that one
//! sweep over them in order says what each read had to return, in O(N log N).
//!
//! ```text
//! facts          what became of each transaction, told by the store's records alone
//! told           what clients were told is what the records say        (H07; P4)
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

mod facts;
pub mod list_append;
mod observers;
mod one_commit;
mod oracle;
pub mod raw;
mod real_time;
mod snapshot;
#[cfg(test)]
mod tests;
mod timestamps;
mod told;
mod whole;

use crate::history::{Cell, Finding, History};
use facts::Facts;

/// The names of the properties, as findings carry them.
pub mod property {
    /// A read returns the newest version committed at or before its start timestamp.
    pub const SNAPSHOT_READ: &str = "snapshot read";
    /// A scan returns exactly the live cells of its range.
    pub const SNAPSHOT_SCAN: &str = "snapshot scan";
    /// A transaction sees its own writes.
    pub const OWN_WRITES: &str = "own writes";
    /// No two committed writers of a cell overlap.
    pub const NO_CONFLICT: &str = "no overlapping writers";
    /// A transaction that began after another had ended follows it.
    pub const REAL_TIME: &str = "real-time order";
    /// What was told to have committed has its records, at that timestamp.
    pub const NO_LOST_COMMIT: &str = "no lost commit";
    /// What was told to have aborted has no record.
    pub const NO_FALSE_ABORT: &str = "no false abort";
    /// A transaction has one commit timestamp, and a version one writer.
    pub const ONE_COMMIT: &str = "one commit";
    /// Start and commit timestamps are distinct and ordered.
    pub const TIMESTAMPS: &str = "distinct timestamps";
    /// The oracle never repeats a timestamp and never goes back.
    pub const ORACLE: &str = "oracle order";
    /// All cells of a transaction commit, or none.
    pub const WHOLE: &str = "whole transactions";
    /// No lock is left when everything has been resolved.
    pub const NO_LOCK_LEFT: &str = "no lock left";
    /// A transaction never has both a tomb and a record, or both a lock and a record.
    pub const TOMB_OR_RECORD: &str = "tomb or record";
    /// Every record that points at a value has it.
    pub const DATA: &str = "data of a record";
    /// After garbage collection a cell has one version at most below the safe point, and none that
    /// was dropped comes again.
    pub const COLLECTED: &str = "collected";
    /// An observer's run commits at most once for each change.
    pub const OBSERVED_ONCE: &str = "observed once";
    /// Every change is handled, or still notified.
    pub const OBSERVED: &str = "observed";
    /// What `explain` says of a read is what the read comes to.
    pub const EXPLAINED: &str = "explained";
    /// Everything comes to rest once nothing goes wrong any more.
    pub const LIVENESS: &str = "liveness";
    /// A world gets as far as its storm.
    pub const SET_UP: &str = "set-up";
}

/// Checks every property of a run.
pub fn check(history: &History) -> Vec<Finding> {
    let facts = Facts::of(history);
    let mut findings = Vec::new();
    told::check(&facts, &mut findings);
    one_commit::check(&facts, &mut findings);
    timestamps::check(&facts, &mut findings);
    oracle::check(&facts, &mut findings);
    real_time::check(&facts, &mut findings);
    snapshot::check(&facts, &mut findings);
    whole::check(&facts, &mut findings);
    observers::check(&facts, &mut findings);
    findings
}

/// A cell in words.
fn name(cell: &Cell) -> String {
    format!("{}/{}/{}", cell.table, cell.row, cell.column)
}

fn report(findings: &mut Vec<Finding>, property: &'static str, facts: String) {
    findings.push(Finding { property, facts });
}
