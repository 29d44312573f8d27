//! The stores that `percolator-core`'s suite runs on here: directories of the store on disk.
//!
//! These parts of the suite are not here: `hazards`, `leaders`, `limits`, `liveness`, `oracle`,
//! `table_locks` and `unfenced`. They are about clocks, records in ordinary rows, limits of the
//! library, and stores without a floor. No request in them is of another kind than those of the
//! tests that are here.

use std::sync::Arc;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{Limits, Store, Table};
use bigtable_fjall::{Durability, FjallStore, Options};
use futures::executor::block_on;

/// Whether the stores have a floor, so that garbage can be collected.
pub(crate) const FLOOR: bool = true;
/// How many seeds of storms there are.
pub(crate) const STORMS: u64 = 20;
/// Scripts that are not played, and why.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[];

/// An empty store. `locality_groups` is what it says of itself, so that notifications lie in the
/// rows that they are about, or apart.
pub(crate) fn store(locality_groups: bool) -> Arc<dyn Store> {
    Arc::new(on_disk(locality_groups))
}

/// An empty store that states limits, as a server behind google.bigtable.v2 does that has its data
/// here.
pub(crate) fn limited(locality_groups: bool) -> Arc<dyn Store> {
    let limits = Limits {
        mutations_max: Some(20_000),
        request_bytes_max: Some(4 << 20),
        predicate_bytes_max: Some(4096),
        ..Limits::default()
    };
    Arc::new(OnDisk { limits, ..on_disk(locality_groups) })
}

fn on_disk(locality_groups: bool) -> OnDisk {
    // Each test creates tables: that is a file that is synced, and there are many tests.
    let memory = tempfile::tempdir_in("/dev/shm");
    let directory = memory.or_else(|_| tempfile::tempdir()).unwrap();
    let options = Options {
        durability: Durability::Buffered,
        write_buffer_bytes: 64 << 10,
        ..Options::default()
    };
    let inner = FjallStore::open(directory.path(), options).unwrap();
    let limits = inner.limits();
    OnDisk { inner, limits, locality_groups, _directory: directory }
}

/// A store whose directory goes with it. It answers within the poll that asks: in virtual time
/// nobody waits for the threads of the store.
#[derive(Debug)]
struct OnDisk {
    inner: FjallStore,
    limits: Limits,
    locality_groups: bool,
    _directory: tempfile::TempDir,
}

impl StoreLayer for OnDisk {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn through<T: Send>(&self, request: impl Future<Output = T> + Send) -> T {
        block_on(request)
    }

    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(OneStep(table))
    }

    fn locality_groups(&self) -> bool {
        self.locality_groups
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

/// A table that answers within the poll that asks.
#[derive(Debug)]
struct OneStep(Arc<dyn Table>);

impl TableLayer for OneStep {
    fn inner(&self) -> &dyn Table {
        &*self.0
    }

    async fn through<T: Send>(&self, request: impl Future<Output = T> + Send) -> T {
        block_on(request)
    }
}
