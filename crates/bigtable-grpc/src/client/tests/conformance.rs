//! Runs the conformance suite of stores over a connection, to the server of this crate and to
//! Google's emulator.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bigtable::conformance::CASES;
use bigtable::layer::{StoreLayer, TableLayer};
use bigtable::{Store, Table};
use bigtable_fjall::{Durability, Options};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::{ClientOptions, GrpcStore, Server, emulator};

/// The cases that need something which no store behind the API has, each with the reason.
const BEYOND_THE_API: [(&str, &str); 10] = [
    ("floor::refuses_what_is_older", NO_FLOOR),
    ("floor::refuses_glances", NO_FLOOR),
    ("floor::never_goes_back", NO_FLOOR),
    ("floor::not_asked_for", NO_FLOOR),
    ("threads::floor_holds", NO_FLOOR),
    ("threads::glances_miss_nothing", NO_FLOOR),
    ("bounds::refusing", NO_BOUNDS),
    ("bounds::refusing_a_whole_request", NO_BOUNDS),
    ("bounds::refusing_over_all_tables", NO_BOUNDS),
    ("bounds::pressure", NO_BOUNDS),
];
const NO_FLOOR: &str = "the API compares no floor within a row operation";
const NO_BOUNDS: &str = "locality groups, and their bounds, are the server's affair";

/// A store whose futures any thread may poll; the cases with their own threads do.
#[derive(Debug)]
struct Anywhere<T> {
    inner: T,
    runtime: Handle,
}

impl<T> Anywhere<T> {
    async fn within<O>(&self, future: impl Future<Output = O> + Send) -> O {
        let mut future = pin!(future);
        poll_fn(|cx| {
            let _entered = self.runtime.enter();
            future.as_mut().poll(cx)
        })
        .await
    }
}

impl StoreLayer for Anywhere<GrpcStore> {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn through<O: Send>(&self, request: impl Future<Output = O> + Send) -> O {
        self.within(request).await
    }

    fn table(&self, inner: Arc<dyn Table>) -> Arc<dyn Table> {
        Arc::new(Anywhere { inner, runtime: self.runtime.clone() })
    }
}

impl TableLayer for Anywhere<Arc<dyn Table>> {
    fn inner(&self) -> &dyn Table {
        &*self.inner
    }

    async fn through<O: Send>(&self, request: impl Future<Output = O> + Send) -> O {
        self.within(request).await
    }
}

async fn run(address: &str, options: ClientOptions) {
    let address = address.parse().expect("an address");
    let inner = GrpcStore::open(&address, options).await.expect("a connection");
    let store = Anywhere { inner, runtime: Handle::current() };
    for (name, why) in BEYOND_THE_API {
        assert!(CASES.iter().any(|case| case.name() == name), "{name} ({why}) is no case");
    }
    for case in CASES {
        if BEYOND_THE_API.iter().all(|(name, _)| *name != case.name()) {
            case.run(&store).await;
        }
    }
}

/// Runs the suite over the server of this crate.
async fn over_ours(options: ClientOptions) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let durability = Durability::Buffered;
    let server = Server::open(data, Options { durability, ..Options::default() }).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(server.serve(listener, std::future::pending()));
    run(&format!("bigtable://{address}/p/i"), options).await;
    served.abort();
}

/// Delay for gathering requests, in the tests that gather.
const BATCH_DELAY: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_of_this_crate() {
    over_ours(ClientOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_of_this_crate_without_batches() {
    over_ours(ClientOptions { batches: false, ..ClientOptions::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_of_this_crate_with_requests_that_wait_for_each_other() {
    over_ours(ClientOptions { batch_delay: BATCH_DELAY, ..ClientOptions::default() }).await;
}

/// Without batches, reads with the same filter go together, and conditional mutations do not
/// wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_of_this_crate_with_reads_that_wait_and_without_batches() {
    let (batches, batch_delay) = (false, BATCH_DELAY);
    over_ours(ClientOptions { batches, batch_delay, ..ClientOptions::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn googles_emulator() {
    let Some(host) = emulator::address() else { return };
    run(
        &format!("bigtable://{host}/p/{}", emulator::instance("conformance")),
        ClientOptions::default(),
    )
    .await;
}
