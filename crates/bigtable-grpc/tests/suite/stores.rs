//! The stores that `percolator-core`'s suite runs on here: tables behind google.bigtable.v2.
//!
//! The suite runs in virtual time, on one thread, and time jumps when nothing is ready; so no
//! request may be under way while it looks for what is ready. Here each request of the store is
//! sent and answered within one step, which takes no virtual time, as in the in-memory store. The
//! requests themselves are those of [`GrpcStore`], over sockets, one after another.
//!
//! What of the suite is not here, and why:
//!
//! * `gc`, `gc_observed`, and the scripts of [`LEFT_OUT`]: they collect garbage below a floor, and
//!   the API has none; `wide_upkeep` collects without one.
//! * `one_step`: it is about `Store::commit_rows`, which needs a store in this process.
//! * `liveness`, `reads`: hours of heartbeats, and models of every page: tens of thousands of
//!   requests, minutes over sockets.
//! * `leaders`, `oracle`, `registration`, `table_locks`, `batches`, `limits`: they are about
//!   records in ordinary rows, and limits of the library; no request in them is of another kind
//!   than those of the tests that are here.
//! * the simulation (`percolator-sim`): it reorders requests that are under way, which needs them
//!   in its hands.

use std::sync::{Arc, LazyLock};

use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{Limits, Result, Row, RowKey, Selection, Store, Table};
use bigtable_fjall::{Durability, Options};
use bigtable_grpc::{ClientOptions, GrpcStore, Server};
use futures::future::try_join_all;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::emulator;

/// Names the emulator's address to the process that runs the suite over it.
pub(crate) const EMULATOR: &str = "PERCOLATOR_SUITE_EMULATOR";
/// Whether the stores have a floor, so that garbage can be collected.
pub(crate) const FLOOR: bool = false;
/// How many seeds of storms there are.
pub(crate) const STORMS: u64 = 8;
/// Scripts that are not played, and why.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
    ("observers/deletes-and-gc", NO_FLOOR),
    ("observers/roll-forward-notifies", NO_FLOOR),
    ("protocol/evidence-collected", NO_FLOOR),
    ("protocol/explain-past", NO_FLOOR),
    ("protocol/gc", NO_FLOOR),
    ("protocol/late-secondary", NO_FLOOR),
    ("protocol/past-and-too-old", NO_FLOOR),
    ("protocol/prewrite-after-gc", NO_FLOOR),
];
const NO_FLOOR: &str = "it collects garbage, which needs a floor";

/// Most mutations in a request to the emulator. It sorts all names of a family after each new
/// column, so the 50,000 columns that the API takes in one request would take it minutes.
const EMULATOR_MUTATIONS_MAX: usize = 22_000;

/// Sockets live here, in real time.
static SOCKETS: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// An empty store. `locality_groups` is what it says of itself, so that notifications lie in the
/// rows that they are about, or apart.
pub(crate) fn store(locality_groups: bool) -> Arc<dyn Store> {
    let store = match std::env::var(EMULATOR) {
        Ok(address) => {
            let instance = emulator::instance("suite");
            let inner = connect(&address, &instance);
            let limits = Limits { mutations_max: Some(EMULATOR_MUTATIONS_MAX), ..inner.limits() };
            Blocking { inner, limits, locality_groups, server: None }
        }
        Err(_) => {
            // Each test creates tables: that is a file that is synced, and there are many tests.
            let memory = tempfile::tempdir_in("/dev/shm");
            let dir = memory.or_else(|_| tempfile::tempdir()).unwrap();
            let (address, serving) = serve(dir.path());
            let server = Some(Served { serving, _dir: dir });
            let inner = connect(&address, "i");
            Blocking { limits: inner.limits(), inner, locality_groups, server }
        }
    };
    Arc::new(store)
}

/// An empty store: all of them take requests of a limited size.
pub(crate) fn limited(locality_groups: bool) -> Arc<dyn Store> {
    store(locality_groups)
}

fn connect(address: &str, instance: &str) -> GrpcStore {
    let address = format!("bigtable://{address}/p/{instance}").parse().unwrap();
    let options = ClientOptions { connections: 1, ..ClientOptions::default() };
    SOCKETS.block_on(GrpcStore::open(&address, options)).unwrap()
}

fn serve(dir: &std::path::Path) -> (String, JoinHandle<()>) {
    SOCKETS.block_on(async {
        let options = Options { durability: Durability::Buffered, ..Options::default() };
        let server = Server::open(dir.join("data"), options).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = async { server.serve(listener, std::future::pending()).await.unwrap() };
        (address, tokio::spawn(served))
    })
}

/// A server that ends with the store.
#[derive(Debug)]
struct Served {
    serving: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A store whose requests are answered when they are first asked for.
#[derive(Debug)]
struct Blocking {
    inner: GrpcStore,
    limits: Limits,
    locality_groups: bool,
    #[allow(dead_code, reason = "kept until the store is dropped")]
    server: Option<Served>,
}

#[derive(Debug)]
struct BlockingTable(Arc<dyn Table>);

impl StoreLayer for Blocking {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn through<T: Send>(&self, request: impl Future<Output = T> + Send) -> T {
        SOCKETS.block_on(request)
    }

    fn table(&self, table: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(BlockingTable(table))
    }

    fn locality_groups(&self) -> bool {
        self.locality_groups
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl TableLayer for BlockingTable {
    fn inner(&self) -> &dyn Table {
        &*self.0
    }

    async fn through<T: Send>(&self, request: impl Future<Output = T> + Send) -> T {
        SOCKETS.block_on(request)
    }

    /// Each row is a request of its own, and one comes after another.
    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        try_join_all(rows.iter().map(|row| TableLayer::read_row(self, row, select))).await
    }
}
