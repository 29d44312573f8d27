//! The conformance suite, at both levels of durability, each case on a store of its own.

use bigtable::conformance;
use bigtable_fjall::{Durability, FjallStore};
use futures::executor::block_on;

use crate::options;

/// Creating a store mostly waits for the disk, so several cases run at once.
const CASES_AT_ONCE: usize = 6;

fn conforms(durability: Durability) {
    std::thread::scope(|scope| {
        for first in 0..CASES_AT_ONCE {
            scope.spawn(move || {
                for case in conformance::CASES.iter().skip(first).step_by(CASES_AT_ONCE) {
                    let dir = tempfile::tempdir().expect("a temporary directory");
                    let store = FjallStore::open(dir.path(), options(durability));
                    block_on(case.run(&store.expect("a new store")));
                }
            });
        }
    });
}

#[test]
fn buffered() {
    conforms(Durability::Buffered);
}

#[test]
fn synced() {
    conforms(Durability::Sync);
}
