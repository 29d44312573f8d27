//! Percolator over a network: its transactions and observers on tables behind google.bigtable.v2.
//!
//! The suite of `percolator-core` is a part of this one: its golden scripts, its tests of commits,
//! aborts and observers, and its storms, as they are, in virtual time. `stores.rs` says what of it
//! stays out. They run over the server of this crate; `everything_over_googles_emulator` runs them
//! again over that.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod bank;
mod emulator;
mod stores;

#[path = "../../../percolator-core/tests/suite/apart.rs"]
mod apart;
#[path = "../../../percolator-core/tests/suite/commit.rs"]
mod commit;
#[allow(dead_code, reason = "some of it is for tests that are not here")]
#[path = "../../../percolator-core/tests/suite/faults.rs"]
mod faults;
#[path = "../../../percolator-core/tests/suite/hazards.rs"]
mod hazards;
#[path = "../../../percolator-core/tests/suite/notifications.rs"]
mod notifications;
#[path = "../../../percolator-core/tests/suite/observers.rs"]
mod observers;
#[path = "../../../percolator-core/tests/suite/rollback.rs"]
mod rollback;
#[path = "../../../percolator-core/tests/suite/scripts/mod.rs"]
mod scripts;
#[path = "../../../percolator-core/tests/suite/stress.rs"]
mod stress;
#[path = "../../../percolator-core/tests/suite/wide.rs"]
mod wide;
#[allow(dead_code, reason = "some of it is for tests that are not here")]
#[path = "../../../percolator-core/tests/suite/world.rs"]
mod world;

use std::process::Command;

/// The modules of `percolator-core`'s suite.
const SUITE: [&str; 9] = [
    "apart::",
    "commit::",
    "hazards::",
    "notifications::",
    "observers::",
    "rollback::",
    "scripts::",
    "stress::",
    "wide::",
];

/// Not over the emulator: it has no limits, and takes minutes for a row of 50,000 columns.
const AT_THE_LIMITS: [&str; 2] = [
    "wide::h70_a_locked_row_that_is_too_wide_for_one_request_is_repaired_by_its_next_reader",
    "wide::h70_a_row_whose_commit_could_not_be_sent_is_refused_before_it_is_locked",
];

/// Runs them in a process of their own, which finds the emulator by its environment.
#[test]
fn everything_over_googles_emulator() {
    let Some(address) = emulator::address() else { return };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(SUITE)
        .args(AT_THE_LIMITS.iter().flat_map(|test| ["--skip", test]))
        .env(stores::EMULATOR, address)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
}
