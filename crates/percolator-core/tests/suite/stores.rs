//! Names the stores that the suite runs on.
//!
//! The tests of another store include files of this suite, and have a `stores.rs` of their
//! own.

use std::sync::Arc;
use std::time::Duration;

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

/// If this variable is set, the tests run over a store that is like HBase. It has notifications in
/// their rows, and no floor. `percolator-sim mutants --like-hbase` sets it.
const LIKE_HBASE: &str = "PERCOLATOR_LIKE_HBASE";

fn memory(locality_groups: bool) -> MemoryStore {
    if !locality_groups {
        MemoryStore::without_locality_groups()
    } else if std::env::var_os(LIKE_HBASE).is_some() {
        MemoryStore::new().without_floors(Duration::from_secs(1))
    } else {
        MemoryStore::new()
    }
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
