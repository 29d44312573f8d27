//! Tests Percolator over a network: its transactions and observers on tables behind
//! google.bigtable.v2.
//!
//! The suite of `percolator-core` is a part of this one: golden scripts, commits, aborts,
//! observers and storms, unchanged and in virtual time. `stores.rs` lists the parts that are
//! left out. They run over the server of this crate. `everything_over_googles_emulator` repeats
//! them over the emulator.

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
#[path = "../../../percolator-core/tests/suite/wide_upkeep.rs"]
mod wide_upkeep;
#[allow(dead_code, reason = "some of it is for tests that are not here")]
#[path = "../../../percolator-core/tests/suite/world.rs"]
mod world;

use std::process::Command;

/// The modules of `percolator-core`'s suite.
const SUITE: [&str; 10] = [
    "apart::",
    "commit::",
    "hazards::",
    "notifications::",
    "observers::",
    "rollback::",
    "scripts::",
    "stress::",
    "wide::",
    "wide_upkeep::",
];

/// Runs the modules in a process of their own, which gets the emulator's address by its
/// environment.
#[test]
fn everything_over_googles_emulator() {
    let Some(address) = emulator::address() else { return };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(SUITE)
        .env(stores::EMULATOR, address)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
}
