//! Tests what oracle processes answer to gRPC's health protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bigtable::MemoryStore;
use percolator_rpc::health::{HealthListener, serves};
use tokio::net::TcpListener;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::world::{Process, start};

const ORACLE: &str = "percolator.oracle.v1.Oracle";
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;

/// Whether the process serves as a whole, and whether it serves timestamps.
async fn health(process: &Process) -> (bool, bool) {
    let address = process.server.address();
    (serves(address, "").await.unwrap(), serves(address, ORACLE).await.unwrap())
}

async fn becomes(process: &Process, wanted: (bool, bool)) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while health(process).await != wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("the health never becomes {wanted:?}"));
}

#[tokio::test]
async fn only_the_leader_serves_timestamps_and_a_standby_is_well() {
    let store = Arc::new(MemoryStore::new());
    let first = start(&store).await;
    first.leads().await;
    assert_eq!(health(&first).await, (true, true));
    let second = start(&store).await;
    becomes(&second, (true, false)).await;
    // The leader loses the store: its lease runs out, and the standby takes over.
    first.cut.store(true, Ordering::SeqCst);
    second.leads().await;
    assert_eq!(health(&second).await, (true, true));
    becomes(&first, (false, false)).await;
    first.cut.store(false, Ordering::SeqCst);
    becomes(&first, (true, false)).await;
    assert!(serves(first.server.address(), "other").await.is_err());
}

#[tokio::test]
async fn a_watcher_sees_each_change() {
    let serving = Arc::new(AtomicBool::new(true));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let looked = serving.clone();
    let listening = HealthListener::start(listener, move || {
        let looked = looked.clone();
        async move { looked.load(Ordering::SeqCst) }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let question = |service: &str| HealthCheckRequest { service: service.to_owned() };
    let mut whole = client.watch(question("")).await.unwrap().into_inner();
    for status in [SERVING, NOT_SERVING, SERVING] {
        let seen = whole.message().await.unwrap().unwrap();
        assert_eq!(seen.status, status);
        serving.store(status == NOT_SERVING, Ordering::SeqCst);
    }
    let mut other = client.watch(question("other")).await.unwrap().into_inner();
    assert_eq!(other.message().await.unwrap().unwrap().status, SERVICE_UNKNOWN);
    let unknown = client.check(question("other")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    drop(listening);
    assert!(serves(address, "").await.is_err());
}
