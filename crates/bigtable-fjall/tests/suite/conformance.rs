//! The conformance suite, at both levels of durability, each case on a store of its own.

use bigtable::conformance;
use bigtable_fjall::{Durability, FjallStore};
use futures::executor::block_on;

use crate::options;

fn conforms(durability: Durability) {
    for case in conformance::CASES {
        let dir = tempfile::tempdir().unwrap();
        let store = FjallStore::open(dir.path(), options(durability)).unwrap();
        block_on(case.run(&store));
    }
}

#[test]
fn buffered() {
    conforms(Durability::Buffered);
}

#[test]
fn synced() {
    conforms(Durability::Sync);
}

#[test]
fn as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = FjallStore::open(dir.path(), options(Durability::Buffered)).unwrap();
    block_on(conformance::run(&store));
}
