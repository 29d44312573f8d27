//! Tests peers that are refused: strangers, expired certificates, other roles, no certificate,
//! and plain text that others could read.

#[path = "../../../cluster-net/tests/support/authority.rs"]
pub(crate) mod authority;
mod logs;
mod senders;

use std::sync::Arc;
use std::time::Duration;

use bigtable::MemoryStore;
use percolator::cluster::{Oracle, OracleNode, OracleOptions};
use percolator::runtime::TokioRuntime;
use percolator_rpc::oracle::{
    OracleServer, OracleServerOptions, RemoteOracle, RemoteOracleOptions,
};
use percolator_rpc::{Error, Role, Tls};
use tokio::net::TcpListener;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::refusals::authority::Authority;
use crate::world::{Process, start_with};

async fn server(tls: Tls) -> Process {
    let options = OracleServerOptions { tls: Some(tls), ..OracleServerOptions::default() };
    start_with(&Arc::new(MemoryStore::new()), options).await
}

/// Requests a timestamp, and returns the error of a refusal.
async fn ask(server: &Process, tls: Option<Tls>) -> Result<(), String> {
    let patient = RemoteOracleOptions { tls, ..RemoteOracleOptions::default() };
    let options = RemoteOracleOptions { deadline: Duration::from_millis(50), ..patient };
    let oracle = RemoteOracle::new(vec![server.address()], options).unwrap();
    oracle.timestamp().await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn only_clients_of_the_authority_and_of_the_role_are_served() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = server(authority.tls(&[Role::Oracle])).await;
    server.leads().await;
    ask(&server, Some(authority.tls(&[Role::Client]))).await.unwrap();
    ask(&server, Some(authority.tls(&[Role::Table, Role::Client]))).await.unwrap();

    let wrong_role = ask(&server, Some(authority.tls(&[Role::Table]))).await.unwrap_err();
    assert!(wrong_role.contains("does not name client.percolator.internal"), "{wrong_role}");
    ask(&server, Some(stranger.tls(&[Role::Client]))).await.unwrap_err();
    // The client trusts the server, but the server does not trust the client.
    let foreign = authority.tls_of_another(&stranger, Role::Client);
    ask(&server, Some(foreign)).await.unwrap_err();
    ask(&server, Some(authority.tls_until(&[Role::Client], 2020))).await.unwrap_err();
    ask(&server, None).await.unwrap_err();
    // Refused clients do not disturb the others.
    ask(&server, Some(authority.tls(&[Role::Client]))).await.unwrap();
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let authority = Authority::new();
    let server = server(authority.tls(&[Role::Oracle])).await;
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority.pem()))
        .domain_name(Role::Oracle.name());
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address())).unwrap();
    let Ok(channel) = endpoint.tls_config(config).unwrap().connect().await else { return };
    // The client's part of the handshake ends before the server has checked the certificate.
    let mut client = tonic::client::Grpc::new(channel);
    if client.ready().await.is_err() {
        return;
    }
    let path =
        tonic::codegen::http::uri::PathAndQuery::from_static("/percolator.oracle.v1.Oracle/Serve");
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let refused = client.unary(tonic::Request::new(()), path, codec).await.unwrap_err();
    assert_ne!(refused.code(), tonic::Code::Ok);
    assert!(refused.message().contains("transport") || refused.message().contains("certificate"));
}

#[tokio::test]
async fn a_server_that_is_no_oracle_or_has_expired_is_not_believed() {
    let authority = Authority::new();
    let client = || Some(authority.tls(&[Role::Client]));
    let posing = server(authority.tls(&[Role::Client, Role::Table])).await;
    posing.leads().await;
    ask(&posing, client()).await.unwrap_err();
    let expired = authority.tls_until(&[Role::Oracle], 2020);
    ask(&server(expired).await, client()).await.unwrap_err();
}

#[tokio::test]
async fn plain_text_beyond_this_machine_must_be_allowed() {
    let start = async |plaintext_beyond_loopback, tls| {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let store = Arc::new(MemoryStore::new());
        let runtime = Arc::new(TokioRuntime::current());
        let node = OracleNode::new(store, runtime, OracleOptions::default()).unwrap();
        let options = OracleServerOptions {
            plaintext_beyond_loopback,
            tls,
            ..OracleServerOptions::default()
        };
        OracleServer::start(Arc::new(node), listener, options)
    };
    let refused = start(false, None).await.unwrap_err();
    assert!(matches!(refused, Error::Settings { .. }), "{refused}");
    start(true, None).await.unwrap();
    start(false, Some(Authority::new().tls(&[Role::Oracle]))).await.unwrap();
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let missing = std::path::Path::new("/nonexistent/ca.pem");
    let error = Tls::read(missing, missing, missing).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/ca.pem"), "{error}");
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&[Role::Client.name()], 2090);
    let error = Tls::from_pem(&authority.pem(), &key, &certificate).unwrap_err().to_string();
    assert!(error.contains("the certificate is not in PEM"), "{error}");
    assert_eq!(format!("{:?}", authority.tls(&[Role::Client])), "Tls", "no key in any output");
}
