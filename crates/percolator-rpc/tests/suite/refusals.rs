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
use percolator_rpc::{Address, Error, Role, Tls};
use tokio::net::TcpListener;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::refusals::authority::Authority;
use crate::world::{Process, start_with};

async fn server(tls: Tls) -> Process {
    let options = OracleServerOptions { tls: Some(tls), ..OracleServerOptions::default() };
    start_with(&Arc::new(MemoryStore::new()), options).await
}

/// Requests a timestamp, and returns the reason of a refusal. The client must not wait for its
/// deadline.
async fn ask(server: &Process, tls: Option<Tls>) -> Result<(), String> {
    ask_one_of(vec![server.address()], tls).await
}

async fn ask_one_of(addresses: Vec<Address>, tls: Option<Tls>) -> Result<(), String> {
    let patient = RemoteOracleOptions { tls, ..RemoteOracleOptions::default() };
    let options = RemoteOracleOptions { deadline: Duration::from_secs(600), ..patient };
    let oracle = RemoteOracle::new(addresses, options).unwrap();
    match oracle.timestamp().await {
        Ok(_) => Ok(()),
        Err(percolator::Error::Refused(why)) => Err(why),
        Err(other) => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_says(refused: Result<(), String>, parts: &[&str]) {
    let why = refused.expect_err("it is refused");
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
}

#[tokio::test]
async fn only_clients_of_the_authority_and_of_the_role_are_served() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = server(authority.tls(&[Role::Oracle])).await;
    server.leads().await;
    ask(&server, Some(authority.tls(&[Role::Client]))).await.unwrap();
    ask(&server, Some(authority.tls(&[Role::Table, Role::Client]))).await.unwrap();

    let wrong_role = ask(&server, Some(authority.tls(&[Role::Table]))).await;
    assert_says(wrong_role, &["CN=table", "does not name client.percolator.internal"]);
    let untrusted = ask(&server, Some(stranger.tls(&[Role::Client]))).await;
    assert_says(untrusted, &["of the oracle at 127.0.0.1:", "that this client trusts"]);
    // The client trusts the server, but the server does not trust the client.
    let foreign = ask(&server, Some(authority.tls_of_another(&stranger, Role::Client))).await;
    assert_says(foreign, &["this client's certificate (CN=client", "is not signed by"]);
    let expired = ask(&server, Some(authority.tls_until(&[Role::Client], 2020))).await;
    assert_says(expired, &["this client's certificate (CN=client", "expired on 2020-12-31"]);
    assert_says(ask(&server, None).await, &["demands TLS"]);
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
    let refused = ask(&posing, client()).await;
    assert_says(refused, &["(CN=client", "does not name oracle.percolator.internal"]);
    let expired = authority.tls_until(&[Role::Oracle], 2020);
    let refused = ask(&server(expired).await, client()).await;
    assert_says(refused, &["of the oracle at", "expired on 2020-12-31"]);
}

/// A process that refuses, or is refused, does not hide another one that answers.
#[tokio::test]
async fn all_addresses_are_tried_before_a_refusal_is_final() {
    let authority = Authority::new();
    let client = || Some(authority.tls(&[Role::Client]));
    let expired = server(authority.tls_until(&[Role::Oracle], 2020)).await;
    let good = server(authority.tls(&[Role::Oracle])).await;
    good.leads().await;
    ask_one_of(vec![expired.address(), good.address()], client()).await.unwrap();
    // Nobody listens at the second address.
    let nobody = "127.0.0.1:1".parse().unwrap();
    let refused = ask_one_of(vec![expired.address(), nobody], client()).await;
    assert_says(refused, &["of the oracle at", "expired on 2020-12-31"]);
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
    let (_, other) = authority.issue(&[Role::Client.name()], 2090);
    let error = Tls::from_pem(&authority.pem(), &certificate, &other).unwrap_err().to_string();
    assert!(error.contains("the key does not belong to the certificate"), "{error}");
    assert_eq!(format!("{:?}", authority.tls(&[Role::Client])), "Tls", "no key in any output");
}
