//! Runs the conformance suite at both levels of durability, each case on a new store.

use bigtable::conformance;
use bigtable_fjall::{Durability, FjallStore, Options};
use futures::executor::block_on;

use crate::options;

/// Creating a store mostly waits for the disk, so several cases run at the same time.
const CASES_AT_ONCE: usize = 6;

fn conforms(options: &Options) {
    std::thread::scope(|scope| {
        for first in 0..CASES_AT_ONCE {
            scope.spawn(move || {
                for case in conformance::CASES.iter().skip(first).step_by(CASES_AT_ONCE) {
                    let dir = tempfile::tempdir().expect("a temporary directory");
                    let store = FjallStore::open(dir.path(), options.clone());
                    block_on(case.run(&store.expect("a new store")));
                }
            });
        }
    });
}

#[test]
fn buffered() {
    conforms(&options(Durability::Buffered));
}

#[test]
fn synced() {
    conforms(&options(Durability::Sync));
}

#[test]
fn without_memory_of_newest_versions_and_without_groups() {
    let plain = Options { recent_bytes: 0, group_rows_max: 1, ..options(Durability::Buffered) };
    conforms(&plain);
}

#[test]
fn with_packs_of_two_short_versions() {
    let tight =
        Options { pack_versions_max: 2, pack_bytes_max: 40, ..options(Durability::Buffered) };
    conforms(&tight);
}
