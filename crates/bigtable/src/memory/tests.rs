//! Runs the conformance suite on the in-memory store.

use futures::executor::block_on;

use crate::{MemoryStore, conformance};

#[test]
fn conforms_case_by_case() {
    for case in conformance::CASES {
        block_on(case.run(&MemoryStore::new()));
    }
}

#[test]
fn conforms_as_a_whole() {
    block_on(conformance::run(&MemoryStore::new()));
}
