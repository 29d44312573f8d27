//! Provides the stores on which `percolator-core`'s suite runs here: tables behind
//! google.bigtable.v2.
//!
//! The suite runs on one thread in virtual time, which jumps when no task is ready. So no
//! request may be in flight when the runtime looks for a ready task. Each request is therefore
//! sent and answered within one step, which takes no virtual time, as in the in-memory store.
//! The requests themselves are those of [`GrpcStore`], over sockets, one after another.
//!
//! These parts of the suite are left out:
//!
//! * `gc`, `gc_observed`, and the scripts of [`LEFT_OUT`]: they collect garbage below a floor,
//!   and the API has none. `wide_upkeep` collects without one.
//! * `one_step`: it tests `Store::commit_rows`, which needs a store in this process.
//! * `liveness`, `reads`: they take hours of heartbeats, and models of every page. That is tens
//!   of thousands of requests, and minutes over sockets.
//! * `leaders`, `oracle`, `registration`, `table_locks`, `batches`, `limits`: they test records
//!   in ordinary rows, and limits of the library. Their requests are of the same kinds as in
//!   the tests that run here.
//! * The simulation (`percolator-sim`): it reorders requests in flight, so it must hold them
//!   itself.

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

/// Environment variable with the emulator's address, for the process that runs the suite over
/// it.
pub(crate) const EMULATOR: &str = "PERCOLATOR_SUITE_EMULATOR";
/// True if the stores have a floor, so that garbage can be collected.
pub(crate) const FLOOR: bool = false;
/// Number of seeds for storms.
pub(crate) const STORMS: u64 = 8;
/// Scripts that are not played, each with the reason.
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
/// column. The 50,000 columns that the API takes in one request would take it minutes.
const EMULATOR_MUTATIONS_MAX: usize = 22_000;

/// The runtime of the sockets, in real time.
static SOCKETS: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// An empty store. `locality_groups` is the store's answer to that question. It decides whether
/// notifications lie in the rows that they are about, or apart.
pub(crate) fn store(locality_groups: bool) -> Arc<dyn Store> {
    let store = match std::env::var(EMULATOR) {
        Ok(address) => {
            let instance = emulator::instance("suite");
            let inner = connect(&address, &instance);
            let limits = Limits { mutations_max: Some(EMULATOR_MUTATIONS_MAX), ..inner.limits() };
            Blocking { inner, limits, locality_groups, server: None }
        }
        Err(_) => {
            // In memory, because each test creates tables, which syncs a file, and there are
            // many tests.
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

/// An empty store. Every store behind the API bounds the size of requests.
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

/// A server that ends with its store.
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

/// A store that answers each request at its first poll.
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

    /// Sends one request for each row, one after another.
    async fn read_rows(&self, rows: &[RowKey], select: &Selection) -> Result<Vec<Row>> {
        try_join_all(rows.iter().map(|row| TableLayer::read_row(self, row, select))).await
    }
}
