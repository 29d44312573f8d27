//! The conformance suite, at both levels of durability, each case on a store of its own.

use bigtable::conformance;
use bigtable_fjall::{Durability, FjallStore};
use futures::executor::block_on;

use crate::options;

fn conforms(durability: Durability) {
    for case in conformance::CASES {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = FjallStore::open(dir.path(), options(durability)).expect("a new store");
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
