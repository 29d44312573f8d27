//! The stores that `percolator-core`'s suite runs on here: directories of the store on disk.
//!
//! These parts of the suite are not here: `hazards`, `leaders`, `limits`, `liveness`, `oracle`,
//! `table_locks` and `unfenced`. They are about clocks, records in ordinary rows, limits of the
//! library, and stores without a floor. No request in them is of another kind than those of the
//! tests that are here.

use std::sync::Arc;

use bigtable::{
    CommitRows, ConditionalMutation, Glance, Glanced, Limits, Page, PageLimit, Result, Row, RowKey,
    RowMutation, RowRange, RowsOutcome, Selection, Store, Table, TableSchema, Timestamp,
};
use bigtable_fjall::{Durability, FjallStore, Options};
use futures::executor::block_on;
use percolator_core::async_trait;

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

#[async_trait]
impl Store for OnDisk {
    async fn open_table(&self, name: &str, schema: &TableSchema) -> Result<Arc<dyn Table>> {
        Ok(Arc::new(OneStep(block_on(self.inner.open_table(name, schema))?)))
    }

    async fn table_names(&self) -> Result<Vec<String>> {
        block_on(self.inner.table_names())
    }

    fn floor(&self) -> Timestamp {
        self.inner.floor()
    }

    async fn raise_floor(&self, floor: Timestamp) -> Result<()> {
        block_on(self.inner.raise_floor(floor))
    }

    async fn reclaim(&self) -> Result<()> {
        block_on(self.inner.reclaim())
    }

    fn locality_groups(&self) -> bool {
        self.locality_groups
    }

    fn commits_rows(&self) -> bool {
        self.inner.commits_rows()
    }

    async fn commit_rows(&self, request: CommitRows) -> Result<RowsOutcome> {
        block_on(self.inner.commit_rows(request))
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn pressure(&self) -> f64 {
        self.inner.pressure()
    }
}

/// A table that answers within the poll that asks.
#[derive(Debug)]
struct OneStep(Arc<dyn Table>);

#[async_trait]
impl Table for OneStep {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn read_row(&self, row: &RowKey, select: &Selection) -> Result<Row> {
        block_on(self.0.read_row(row, select))
    }

    fn glance(&self, at: Glance<'_>) -> Result<Glanced> {
        self.0.glance(at)
    }

    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        block_on(self.0.read_rows(rows, select))
    }

    async fn scan(&self, range: &RowRange, select: &Selection, limit: PageLimit) -> Result<Page> {
        block_on(self.0.scan(range, select, limit))
    }

    async fn mutate_row(&self, request: RowMutation) -> Result<()> {
        block_on(self.0.mutate_row(request))
    }

    async fn check_and_mutate_row(&self, request: ConditionalMutation) -> Result<bool> {
        block_on(self.0.check_and_mutate_row(request))
    }

    async fn check_and_mutate_rows(&self, requests: Vec<ConditionalMutation>) -> Vec<Result<bool>> {
        block_on(self.0.check_and_mutate_rows(requests))
    }
}
