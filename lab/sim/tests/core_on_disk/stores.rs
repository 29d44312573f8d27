//! Provides the stores that `percolator-core`'s suite runs on here: directories of the store
//! on disk.
//!
//! These parts of the suite are left out: `hazards`, `leaders`, `limits`, `liveness`,
//! `oracle`, `table_locks` and `unfenced`. They are about clocks, records in ordinary rows,
//! limits of the library, and stores without a floor. They send the store no kind of request
//! that the included tests do not send.

use std::sync::Arc;

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{Limits, Store, Table};
use bigtable_fjall::{Durability, FjallStore, Options};
use futures::executor::block_on;

/// Whether the stores have a floor, so that garbage can be collected.
pub(crate) const FLOOR: bool = true;
/// The number of seeds of storms.
pub(crate) const STORMS: u64 = 20;
/// The scripts that are left out, with the reasons.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[];

/// Creates an empty store. With `locality_groups`, notifications are in the rows that they are
/// about; otherwise they are in tables of their own.
pub(crate) fn store(locality_groups: bool) -> Arc<dyn Store> {
    Arc::new(on_disk(locality_groups))
}

/// Creates an empty store with limits, such as a server of google.bigtable.v2 has that keeps
/// its data in this store.
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
    // Each test creates tables, and each table is a file that is synced, so the files are in
    // memory.
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

/// A store that owns its directory. It answers within the poll that sends the request, because
/// virtual time does not wait for the store's threads.
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

/// A table that answers within the poll that sends the request.
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
