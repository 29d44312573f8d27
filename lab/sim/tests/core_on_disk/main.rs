//! Runs the suite of `percolator-core` on the store on disk, unchanged and in virtual time.
//! `stores.rs` lists the parts of the suite that are left out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stores;

#[path = "../../../../crates/percolator-core/tests/suite"]
mod suite {
    pub(crate) mod apart;
    pub(crate) mod batches;
    pub(crate) mod commit;
    #[allow(dead_code, reason = "some of it is for tests that are not here")]
    pub(crate) mod faults;
    pub(crate) mod gc;
    pub(crate) mod gc_observed;
    pub(crate) mod notifications;
    pub(crate) mod observers;
    pub(crate) mod one_step;
    pub(crate) mod read_ahead;
    pub(crate) mod reads;
    pub(crate) mod registration;
    pub(crate) mod rollback;
    pub(crate) mod scripts;
    pub(crate) mod stress;
    pub(crate) mod wide;
    pub(crate) mod wide_upkeep;
    #[allow(dead_code, reason = "some of it is for tests that are not here")]
    pub(crate) mod world;
}

// The suite's files name each other from the root of its own crate.
use suite::*;
