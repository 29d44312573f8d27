//! Runs the suite of `percolator-core` on the store on disk, unchanged and in virtual time.
//! `stores.rs` lists the parts of the suite that are left out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stores;

#[path = "../../../../crates/percolator-core/tests/suite/apart.rs"]
mod apart;
#[path = "../../../../crates/percolator-core/tests/suite/batches.rs"]
mod batches;
#[path = "../../../../crates/percolator-core/tests/suite/commit.rs"]
mod commit;
#[allow(dead_code, reason = "some of it is for tests that are not here")]
#[path = "../../../../crates/percolator-core/tests/suite/faults.rs"]
mod faults;
#[path = "../../../../crates/percolator-core/tests/suite/gc.rs"]
mod gc;
#[path = "../../../../crates/percolator-core/tests/suite/gc_observed.rs"]
mod gc_observed;
#[path = "../../../../crates/percolator-core/tests/suite/notifications.rs"]
mod notifications;
#[path = "../../../../crates/percolator-core/tests/suite/observers.rs"]
mod observers;
#[path = "../../../../crates/percolator-core/tests/suite/one_step.rs"]
mod one_step;
#[path = "../../../../crates/percolator-core/tests/suite/read_ahead.rs"]
mod read_ahead;
#[path = "../../../../crates/percolator-core/tests/suite/reads.rs"]
mod reads;
#[path = "../../../../crates/percolator-core/tests/suite/registration.rs"]
mod registration;
#[path = "../../../../crates/percolator-core/tests/suite/rollback.rs"]
mod rollback;
#[path = "../../../../crates/percolator-core/tests/suite/scripts/mod.rs"]
mod scripts;
#[path = "../../../../crates/percolator-core/tests/suite/stress.rs"]
mod stress;
#[path = "../../../../crates/percolator-core/tests/suite/wide.rs"]
mod wide;
#[path = "../../../../crates/percolator-core/tests/suite/wide_upkeep.rs"]
mod wide_upkeep;
#[allow(dead_code, reason = "some of it is for tests that are not here")]
#[path = "../../../../crates/percolator-core/tests/suite/world.rs"]
mod world;
