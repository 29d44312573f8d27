//! Tests a machine that sleeps while a request waits. The request must not be applied
//! afterwards, because its sender has long given up. Timers stood still, and would report that
//! hardly any time has passed.
//!
//! The simulated clock is shared by the whole process, so everything is in one test.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::sync::Arc;
use std::time::Duration;

use bigtable::{ConditionalMutation, Error, Family, Layout, LocalityGroup, Mutation, RowKey};
use bigtable::{Selection, Store, Table, TableSchema, TimeRange, Timestamp};
use bigtable_fjall::{Durability, Options};
use bigtable_grpc::{ClientOptions, GrpcStore, Server};
use bytes::Bytes;
use cluster_net::Moment;
use futures::poll;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

const FAMILY: Family = Family::from_static("f");
const AN_HOUR: u64 = 3600;
/// The time that a client allows for its request.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The needed fields of `google.bigtable.v2.MutateRowRequest`.
#[derive(Clone, PartialEq, Message)]
struct MutateRow {
    #[prost(string, tag = "1")]
    table_name: String,
    #[prost(bytes = "bytes", tag = "2")]
    row_key: Bytes,
    #[prost(message, repeated, tag = "3")]
    mutations: Vec<Change>,
}

#[derive(Clone, PartialEq, Message)]
struct Change {
    #[prost(message, optional, tag = "1")]
    set_cell: Option<SetCell>,
}

#[derive(Clone, PartialEq, Message)]
struct SetCell {
    #[prost(string, tag = "1")]
    family_name: String,
    #[prost(bytes = "bytes", tag = "2")]
    column_qualifier: Bytes,
    #[prost(int64, tag = "3")]
    timestamp_micros: i64,
    #[prost(bytes = "bytes", tag = "4")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

async fn table(address: &str, batch_delay: Duration) -> Arc<dyn Table> {
    let options = ClientOptions { batch_delay, ..ClientOptions::default() };
    let address = format!("bigtable://{address}/p/i").parse().unwrap();
    let store = GrpcStore::open(&address, options).await.unwrap();
    let groups = vec![LocalityGroup::on_disk("f", Layout::Versions)];
    store.open_table("t", &TableSchema { groups }).await.unwrap()
}

async fn is_there(table: &dyn Table, row: &str) -> bool {
    let select = Selection::default().column(FAMILY, "q", TimeRange::ALL, 1);
    !table.read_row(&RowKey::from(row), &select).await.unwrap().cells.is_empty()
}

/// Sends a request that gathers in its client while the machine sleeps.
async fn in_the_client(address: &str, row: &str, seconds: u64) -> Result<bool, Error> {
    let table = table(address, Duration::from_millis(20)).await;
    let cell = Mutation::set(FAMILY, "q", Timestamp::new(1).unwrap(), "v");
    let request = ConditionalMutation { otherwise: vec![cell], ..ConditionalMutation::new(row) };
    let mut sent = std::pin::pin!(table.check_and_mutate_row(request));
    assert!(poll!(&mut sent).is_pending(), "it waits for others");
    Moment::sleep_machine(seconds);
    sent.await
}

/// Sends a request whose headers arrive at the server before the sleep, and its body after.
async fn in_the_server(channel: &Channel, row: &str, seconds: u64) -> Result<(), Status> {
    let (body, came) = oneshot::channel();
    let path = PathAndQuery::from_static("/google.bigtable.v2.Bigtable/MutateRow");
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let mut request =
        Request::new(futures::stream::once(async { came.await.expect("the body is sent") }));
    request.set_timeout(TIMEOUT);
    let codec = ProstCodec::<MutateRow, Nothing>::default();
    let mut answer = std::pin::pin!(client.client_streaming(request, path, codec));
    assert!(poll!(&mut answer).is_pending(), "its body is missing");
    // A later request on the same connection gets an answer, so the headers have arrived.
    let path = PathAndQuery::from_static("/google.bigtable.v2.Bigtable/PingAndWarm");
    let mut other = Grpc::new(channel.clone());
    other.ready().await.unwrap();
    let codec = ProstCodec::<Nothing, Nothing>::default();
    // Any answer will do.
    let _ = other.unary(Request::new(Nothing {}), path, codec).await;
    Moment::sleep_machine(seconds);
    let set_cell = SetCell {
        family_name: "f".to_owned(),
        column_qualifier: "q".into(),
        timestamp_micros: 1000,
        value: "v".into(),
    };
    let row = MutateRow {
        table_name: "projects/p/instances/i/tables/t".to_owned(),
        row_key: Bytes::copy_from_slice(row.as_bytes()),
        mutations: vec![Change { set_cell: Some(set_cell) }],
    };
    body.send(row).expect("it is waited for");
    answer.await.map(drop)
}

#[tokio::test]
async fn a_request_that_slept_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Buffered, ..Options::default() };
    let server = Server::open(dir.path().join("data"), options).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.serve(listener, async { drop(stopped.await) }));
    let found = table(&address, Duration::ZERO).await;

    assert!(!in_the_client(&address, "client awake", 0).await.unwrap());
    assert!(is_there(&*found, "client awake").await);
    let error = in_the_client(&address, "client slept", AN_HOUR).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("did not run for"), "{error}");
    assert!(!is_there(&*found, "client slept").await);

    let channel =
        Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    in_the_server(&channel, "server awake", 0).await.unwrap();
    assert!(is_there(&*found, "server awake").await);
    let refused = in_the_server(&channel, "server slept", AN_HOUR).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("the deadline passed"), "{refused}");
    assert!(!is_there(&*found, "server slept").await);
    drop((stop, channel, found));
    served.await.unwrap().unwrap();
}
