//! Tests connections with mutual TLS, and what one end says when it refuses the other.

use std::sync::Arc;

use bigtable::{Error, Result, Store};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::conformance;
use super::fake::Fake;
use crate::{HbaseOptions, HbaseStore, Tls};

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// A certificate for a name and its key, in PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// A server that shows a certificate for this name, and trusts clients of this authority.
    fn server(&self, name: &str) -> TlsAcceptor {
        let (certificate, key) = self.issue(name);
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
        let mut roots = RootCertStore::empty();
        roots.add(der(&self.0.pem())).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let of_clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
        // HBase speaks TLS 1.2 by default. There, a refused client fails in its handshake.
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .expect("a version")
            .with_client_cert_verifier(of_clients.build().expect("a verifier"))
            .with_single_cert(vec![der(&certificate)], key)
            .expect("a certificate and its key");
        TlsAcceptor::from(Arc::new(config))
    }

    /// The settings of a client that trusts this authority, with a certificate of `issuer`.
    fn client(&self, issuer: &Authority) -> HbaseOptions {
        let (certificate, key) = issuer.issue("client");
        let tls = Tls::from_pem(&self.0.pem(), &certificate, &key).expect("certificates");
        HbaseOptions { tls: Some(tls), ..HbaseOptions::default() }
    }
}

fn refusal(connected: Result<HbaseStore>) -> String {
    match connected {
        Err(Error::InvalidRequest(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_passes_over_tls() {
    let authority = Authority::new();
    let fake = Fake::start_with(Some(authority.server("127.0.0.1"))).await;
    let store = fake.connect_with("tls=true", authority.client(&authority)).await;
    conformance::run_some(store.expect("a connection"), &["write::", "scan::", "model::"]).await;
}

#[tokio::test]
async fn a_server_with_another_name_or_authority_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let connect = async |server: TlsAcceptor, client: HbaseOptions| {
        let fake = Fake::start_with(Some(server)).await;
        refusal(fake.connect_with("tls=true&deadline=1s", client).await)
    };
    let own = authority.client(&authority);
    let why = connect(authority.server("other.example"), own.clone()).await;
    assert!(why.contains("does not name 127.0.0.1"), "{why}");
    let why = connect(other.server("127.0.0.1"), own).await;
    assert!(why.contains("not signed by an authority that this client trusts"), "{why}");
    let why = connect(authority.server("127.0.0.1"), authority.client(&other)).await;
    assert!(why.contains("this client's certificate"), "{why}");
}

#[tokio::test]
async fn an_end_without_tls_is_named() {
    let authority = Authority::new();
    let fake = Fake::start().await;
    let why = refusal(fake.connect("tls=true").await);
    assert!(why.contains("there are no certificates"), "{why}");

    // Certificates alone do not change the address: other connections of a cluster use them.
    let plain = fake.connect_with("", authority.client(&authority)).await;
    assert!(plain.expect("plain text").table_names().await.expect("names").is_empty());

    let fake = Fake::start_with(Some(authority.server("127.0.0.1"))).await;
    let plain = fake.connect("deadline=1s").await;
    let Err(Error::Unavailable { why }) = plain else { panic!("{plain:?}") };
    assert!(why.contains("give tls=true in the address"), "{why}");
}
