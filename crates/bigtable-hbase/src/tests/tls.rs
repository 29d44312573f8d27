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
    /// HBase speaks TLS 1.2 by default.
    fn server(&self, name: &str) -> TlsAcceptor {
        self.server_of(name, &rustls::version::TLS12)
    }

    /// The same with another version of TLS.
    fn server_of(
        &self,
        name: &str,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> TlsAcceptor {
        let (certificate, key) = self.issue(name);
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
        let mut roots = RootCertStore::empty();
        roots.add(der(&self.0.pem())).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let of_clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
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
        Err(Error::Refused(why)) => why,
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
        refusal(fake.connect_with("tls=true", client).await)
    };
    let own = authority.client(&authority);
    let why = connect(authority.server("other.example"), own.clone()).await;
    assert!(why.contains("does not name 127.0.0.1"), "{why}");
    let why = connect(other.server("127.0.0.1"), own).await;
    assert!(why.contains("not signed by an authority that this client trusts"), "{why}");
    // In TLS 1.2 a refused client fails in its handshake, and in TLS 1.3 after it.
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let server = authority.server_of("127.0.0.1", version);
        let why = connect(server, authority.client(&other)).await;
        assert!(why.contains("this client's certificate"), "{why}");
    }
}

#[tokio::test]
async fn a_refusal_by_one_address_of_two_may_pass() {
    let authority = Authority::new();
    let fake = Fake::start_with(Some(authority.server("other.example"))).await;
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let of_gone = gone.local_addr().expect("an address");
    drop(gone);
    let connect = async |servers: String| {
        let address = format!("hbase://{servers}/fake?tls=true&deadline=1s");
        let address = address.parse().expect("an address");
        HbaseStore::connect(&address, authority.client(&authority)).await
    };
    for servers in
        [format!("{},{of_gone}", fake.address()), format!("{of_gone},{}", fake.address())]
    {
        let Err(Error::Unavailable { why }) = connect(servers).await else { panic!("no failure") };
        assert!(why.contains("does not name 127.0.0.1"), "{why}");
        assert!(why.contains(&format!("connecting to {of_gone}")), "{why}");
    }
}

#[tokio::test]
async fn an_end_without_tls_is_named() {
    let authority = Authority::new();
    let fake = Fake::start().await;
    let Err(Error::InvalidRequest(why)) = fake.connect("tls=true").await else {
        panic!("there are no certificates")
    };
    assert!(why.contains("there are no certificates"), "{why}");
    let why = refusal(fake.connect_with("tls=true", authority.client(&authority)).await);
    assert!(why.contains("does not speak TLS"), "{why}");
    assert!(why.contains("remove `tls=true` from the address"), "{why}");

    // Certificates alone do not change the address: other connections of a cluster use them.
    let plain = fake.connect_with("", authority.client(&authority)).await;
    assert!(plain.expect("plain text").table_names().await.expect("names").is_empty());

    let fake = Fake::start_with(Some(authority.server("127.0.0.1"))).await;
    let plain = fake.connect("deadline=1s").await;
    let Err(Error::Unavailable { why }) = plain else { panic!("{plain:?}") };
    assert!(why.contains("give tls=true in the address"), "{why}");

    // HBase's own server sends no alert, but closes.
    let closing = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = format!("hbase://{}/fake?deadline=1s", closing.local_addr().expect("one"));
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = closing.accept().await {
            let _ = tokio::io::AsyncReadExt::read_u8(&mut stream).await;
        }
    });
    let plain = address.parse().expect("an address");
    let plain = HbaseStore::connect(&plain, HbaseOptions::default()).await;
    let Err(Error::Unavailable { why }) = plain else { panic!("{plain:?}") };
    assert!(why.contains("give tls=true in the address"), "{why}");
    serving.abort();
}
