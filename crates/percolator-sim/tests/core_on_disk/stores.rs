//! The stores that `percolator-core`'s suite runs on here: directories of the store on disk.
//!
//! What of the suite is not here, and why: `hazards`, `leaders`, `limits`, `liveness`, `oracle`, `table_locks`
//! and `unfenced` are about clocks, records in ordinary rows, limits of the library, and stores without a
//! floor. No request in them is of another kind than those of the tests that are here.

use std::sync::Arc;

use bigtable::{CommitRows, Result, RowsOutcome, Store, Table, TableSchema, Timestamp};
use bigtable_fjall::{Durability, FjallStore, Options};
use percolator_core::async_trait;

/// Whether the stores have a floor, so that garbage can be collected.
pub(crate) const FLOOR: bool = true;
/// How many seeds of storms there are.
pub(crate) const STORMS: u64 = 20;
/// Scripts that are not played, and why.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[];

/// An empty store. `locality_groups` is what it says of itself, so that notifications lie in the rows that
/// they are about, or apart.
pub(crate) fn store(locality_groups: bool) -> Arc<dyn Store> {
    // Each test creates tables: that is a file that is synced, and there are many tests.
    let memory = tempfile::tempdir_in("/dev/shm");
    let directory = memory.or_else(|_| tempfile::tempdir()).unwrap();
    let options = Options {
        durability: Durability::Buffered,
        write_buffer_bytes: 64 << 10,
        ..Options::default()
    };
    let inner = FjallStore::open(directory.path(), options).unwrap();
    Arc::new(OnDisk { inner, locality_groups, _directory: directory })
}

/// An empty store. Only stores behind a network limit what one request holds.
pub(crate) fn limited() -> Arc<dyn Store> {
    store(false)
}

/// A store whose directory goes with it.
#[derive(Debug)]
struct OnDisk {
    inner: FjallStore,
    locality_groups: bool,
    _directory: tempfile::TempDir,
}

#[async_trait]
impl Store for OnDisk {
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        self.inner.open_table(name, schema).await
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        self.inner.table_names().await
    }

    fn floor(&self) -> Timestamp {
        self.inner.floor()
    }

    async fn raise_floor(&self, floor: Timestamp) -> Result<()> {
        self.inner.raise_floor(floor).await
    }

    async fn reclaim(&self) -> Result<()> {
        self.inner.reclaim().await
    }

    fn locality_groups(&self) -> bool {
        self.locality_groups
    }

    fn commits_rows(&self) -> bool {
        self.inner.commits_rows()
    }

    async fn commit_rows(&self, request: CommitRows) -> Result<RowsOutcome> {
        self.inner.commit_rows(request).await
    }

    fn pressure(&self) -> f64 {
        self.inner.pressure()
    }
}
