//! Names the stores that the suite runs on.
//!
//! The tests of another store include files of this suite, and have a `stores.rs` of their
//! own.

use std::sync::Arc;

use bigtable::{Limits, MemoryStore, Store};

/// Whether the stores have a floor, so that garbage can be collected.
pub(crate) const FLOOR: bool = true;
/// How many seeds of storms there are.
pub(crate) const STORMS: u64 = 200;
/// Scripts that are left out, and why.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[];

/// An empty store.
pub(crate) fn store(locality_groups: bool) -> Arc<dyn Store> {
    Arc::new(memory(locality_groups))
}

fn memory(locality_groups: bool) -> MemoryStore {
    if locality_groups { MemoryStore::new() } else { MemoryStore::without_locality_groups() }
}

/// An empty store that accepts only requests of a limited size, as stores behind
/// google.bigtable.v2 do.
pub(crate) fn limited(locality_groups: bool) -> Arc<dyn Store> {
    let limits = Limits {
        mutations_max: Some(20_000),
        request_bytes_max: Some(4 << 20),
        predicate_bytes_max: Some(4096),
        ..Limits::default()
    };
    Arc::new(memory(locality_groups).with_limits(limits))
}
