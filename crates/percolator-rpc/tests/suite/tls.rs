//! Who is refused: strangers, the expired, those of other roles, those without a certificate, and plain
//! text where others could listen.

use std::sync::Arc;
use std::time::Duration;

use bigtable::MemoryStore;
use percolator::{Oracle, OracleNode, OracleOptions, TokioRuntime};
use percolator_rpc::oracle::{
    OracleServer, OracleServerOptions, RemoteOracle, RemoteOracleOptions,
};
use percolator_rpc::{Error, Role, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tokio::net::TcpListener;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::world::{Process, start_with};

/// An authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Certificate and key for these names, valid up to the end of a year.
    fn issue(&self, names: &[&str], last_year: i32) -> (String, String) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn tls(&self, roles: &[Role]) -> Tls {
        let names: Vec<&str> = roles.iter().map(|role| role.name()).collect();
        let (certificate, key) = self.issue(&names, 2090);
        Tls::from_pem(&self.pem(), &certificate, &key).unwrap()
    }
}

async fn server(tls: Tls) -> Process {
    let options = OracleServerOptions { tls: Some(tls), ..OracleServerOptions::default() };
    start_with(&Arc::new(MemoryStore::new()), options).await
}

/// Asks for a timestamp; the error if it is refused.
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
    ask(&server, Some(authority.tls(&[Role::Store, Role::Client]))).await.unwrap();

    let wrong_role = ask(&server, Some(authority.tls(&[Role::Store]))).await.unwrap_err();
    assert!(wrong_role.contains("does not name client.percolator.internal"), "{wrong_role}");
    ask(&server, Some(stranger.tls(&[Role::Client]))).await.unwrap_err();
    // It trusts the server, but the server does not trust it.
    let (certificate, key) = stranger.issue(&[Role::Client.name()], 2090);
    let foreign = Tls::from_pem(&authority.pem(), &certificate, &key).unwrap();
    ask(&server, Some(foreign)).await.unwrap_err();
    let (certificate, key) = authority.issue(&[Role::Client.name()], 2020);
    let expired = Tls::from_pem(&authority.pem(), &certificate, &key).unwrap();
    ask(&server, Some(expired)).await.unwrap_err();
    ask(&server, None).await.unwrap_err();
    // The refused disturb nobody.
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
    // Its own part of the handshake is done before the server has looked.
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
    let posing = server(authority.tls(&[Role::Client, Role::Store])).await;
    posing.leads().await;
    ask(&posing, client()).await.unwrap_err();
    let (certificate, key) = authority.issue(&[Role::Oracle.name()], 2020);
    let expired = Tls::from_pem(&authority.pem(), &certificate, &key).unwrap();
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
