//! Tests who is accepted, and who is refused with which reason at both ends.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::Service;

use super::*;
use crate::authority::Authority;
use crate::recorded::Recorded;
use crate::{Dialed, Dialer, Fault, Role};

async fn listen(connections_max: usize, tls: Option<Tls>) -> (Incoming, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (Incoming::new(listener, connections_max, tls), address)
}

/// Serves the first bytes of HTTP/2 to everybody that is let in, as hyper does. Returns the
/// connections that were let in.
async fn serve(mut incoming: Incoming) {
    let mut kept = Vec::new();
    while let Some(Ok(mut connection)) = incoming.next().await {
        // An empty frame of settings.
        let greeted = connection.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        let mut preface = [0; 24];
        if greeted.is_ok()
            && connection.flush().await.is_ok()
            && connection.read_exact(&mut preface).await.is_ok()
        {
            assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
            kept.push(connection);
        }
    }
}

async fn dial(
    address: SocketAddr,
    role: Role,
    tls: Option<Tls>,
) -> Result<Dialed, Box<dyn std::error::Error + Send + Sync>> {
    let uri = format!("http://{address}").parse().unwrap();
    Ok(Dialer::to(role, tls).call(uri).await?.into_inner())
}

/// The fault that a client of a table server gets, and the lines of the server's log.
async fn refused(server: Option<Tls>, client: Option<Tls>) -> (String, Vec<String>) {
    let (log, _recording) = Recorded::begin();
    let (incoming, address) = listen(10, server).await;
    let serving = tokio::spawn(serve(incoming));
    let error = dial(address, Role::Table, client).await.expect_err("refused");
    let fault = Fault::find(&*error).unwrap_or_else(|| panic!("no fault: {error:?}")).to_string();
    // The server logs after it has answered.
    for _ in 0..1000 {
        if log.count("refused") > 0 {
            break;
        }
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    serving.abort();
    let lines = log.lines().into_iter().filter(|line| line.contains("refused")).collect();
    (fault, lines)
}

/// Asserts the parts of the fault and of the only line about it.
#[track_caller]
fn assert_named((fault, lines): (String, Vec<String>), in_fault: &[&str], in_line: &[&str]) {
    assert!(in_fault.iter().all(|part| fault.contains(part)), "{fault}");
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(in_line.iter().all(|part| line.contains(part)), "{line}");
    assert!(line.contains("WARN") && line.contains("refused 127.0.0.1:"), "{line}");
}

#[tokio::test]
async fn connections_are_counted_and_those_beyond_the_limit_are_logged() {
    let (log, _recording) = Recorded::begin();
    let (mut incoming, address) = listen(1, None).await;
    let _client = TcpStream::connect(address).await.unwrap();
    let first = incoming.next().await.unwrap().unwrap();
    let mut beyond = TcpStream::connect(address).await.unwrap();
    let mut taken = Box::pin(incoming.next());
    // The listener closes this connection without reading from it.
    let mut byte = [0];
    tokio::select! {
        _ = &mut taken => panic!("accepted beyond the limit"),
        read = beyond.read(&mut byte) => assert!(matches!(read, Ok(0) | Err(_))),
    }
    assert_eq!(log.count("refused"), 1);
    assert!(log.lines()[0].contains("all 1 connections of the server are in use"));
    drop(first);
    let _third = TcpStream::connect(address).await.unwrap();
    taken.await.unwrap().unwrap();
}

#[tokio::test]
async fn holders_of_certificates_are_let_in_with_their_roles() {
    let ours = Authority::new();
    let (mut incoming, address) = listen(1, Some(ours.tls(&[Role::Table]))).await;
    let client = ours.tls(&[Role::Client, Role::Admin]);
    let dialing = tokio::spawn(dial(address, Role::Table, Some(client)));
    let mut connection = incoming.next().await.unwrap().unwrap();
    connection.write_all(b"hello").await.unwrap();
    connection.flush().await.unwrap();
    let mut dialed = dialing.await.unwrap().unwrap();
    let mut hello = [0; 5];
    dialed.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    let peer = tonic::transport::server::Connected::connect_info(&connection);
    let mut request = tonic::Request::new(());
    assert_eq!(
        crate::check_peer(&request, &[Role::Client]).unwrap_err().code(),
        tonic::Code::Unauthenticated
    );
    request.extensions_mut().insert(peer);
    crate::check_peer(&request, &[Role::Client]).unwrap();
    crate::check_peer(&request, &[Role::Oracle, Role::Admin]).unwrap();
    let (log, _recording) = Recorded::begin();
    let status = crate::check_peer(&request, &[Role::Table, Role::Oracle]).unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    let wanted = "does not name table.percolator.internal or oracle.percolator.internal";
    assert!(status.message().contains(wanted), "{status}");
    assert_eq!(log.count("refused"), 1);
    assert!(
        log.lines()[0].contains("names client.percolator.internal, admin"),
        "{:?}",
        log.lines()
    );
}

#[tokio::test]
async fn an_expired_certificate_is_named_at_both_ends() {
    let ours = Authority::new();
    let (table, client) = (ours.tls(&[Role::Table]), ours.tls_until(&[Role::Client], 2020));
    assert_named(
        refused(Some(table), Some(client)).await,
        &[
            "this client's certificate (CN=client.percolator.internal) expired on 2020-12-31",
            "the table server at 127.0.0.1:",
            "put a renewed certificate in its place",
        ],
        &[
            "certificate_expired",
            "its certificate (CN=client.percolator.internal) expired on 2020-12-31",
        ],
    );
    let (table, client) = (ours.tls_until(&[Role::Table], 2021), ours.tls(&[Role::Client]));
    assert_named(
        refused(Some(table), Some(client)).await,
        &[
            "the certificate (CN=table.percolator.internal) of the table server at 127.0.0.1:",
            "expired on 2021-12-31",
        ],
        &["server_not_trusted", "the certificate of this server (CN=table", "2021-12-31"],
    );
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_named_at_both_ends() {
    let (ours, other) = (Authority::new(), Authority::new());
    let client = ours.tls_of_another(&other, Role::Client);
    assert_named(
        refused(Some(ours.tls(&[Role::Table])), Some(client)).await,
        &["this client's certificate (CN=client", "is not signed by an authority that the table"],
        &["foreign_authority", "another authority has signed its certificate (CN=client"],
    );
    assert_named(
        refused(Some(ours.tls(&[Role::Table])), Some(other.tls(&[Role::Client]))).await,
        &["the certificate (CN=table", "is not signed by an authority that this client trusts"],
        &["server_not_trusted", "the certificate of this server (CN=table"],
    );
}

#[tokio::test]
async fn a_server_of_another_role_is_not_believed() {
    let ours = Authority::new();
    assert_named(
        refused(Some(ours.tls(&[Role::Oracle])), Some(ours.tls(&[Role::Client]))).await,
        &["the certificate (CN=oracle", "does not name table.percolator.internal"],
        &["server_not_trusted", "(CN=oracle.percolator.internal): BadCertificate"],
    );
}

#[tokio::test]
async fn tls_and_plain_text_do_not_meet() {
    let ours = Authority::new();
    assert_named(
        refused(Some(ours.tls(&[Role::Table])), None).await,
        &["demands TLS, and this client has no certificate", "`tls` in the settings"],
        &["plain_text", "it sends plain text, and this server demands TLS"],
    );
    assert_named(
        refused(None, Some(ours.tls(&[Role::Client]))).await,
        &["does not speak TLS, and this client has certificates"],
        &["encrypted", "it sends TLS, and this server has no certificate"],
    );
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused_and_logged() {
    let ours = Authority::new();
    let (log, _recording) = Recorded::begin();
    let (incoming, address) = listen(10, Some(ours.tls(&[Role::Table]))).await;
    let serving = tokio::spawn(serve(incoming));
    let mut roots = rustls::RootCertStore::empty();
    let authority: rustls_pki_types::CertificateDer<'static> =
        rustls_pki_types::pem::PemObject::from_pem_slice(ours.pem().as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = rustls_pki_types::ServerName::try_from(Role::Table.name()).unwrap();
    let tcp = TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, tcp).await.unwrap();
    let error = stream.read(&mut [0]).await.unwrap_err();
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
    serving.abort();
    assert_eq!(log.count("refused"), 1, "{:?}", log.lines());
    assert!(log.lines()[0].contains("it shows no certificate"), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn peers_that_say_nothing_are_logged() {
    let (log, _recording) = Recorded::begin();
    let (mut incoming, address) = listen(10, Some(Authority::new().tls(&[Role::Table]))).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut byte = [0];
    tokio::select! {
        _ = incoming.next() => panic!("it was let in"),
        read = silent.read(&mut byte) => assert!(matches!(read, Ok(0) | Err(_)), "{read:?}"),
    }
    assert!(log.lines()[0].contains("its TLS handshake took longer than 5 s"), "{:?}", log.lines());
    let (mut incoming, address) = listen(10, None).await;
    let _silent = TcpStream::connect(address).await.unwrap();
    let mut connection = incoming.next().await.unwrap().unwrap();
    connection.read(&mut [0]).await.unwrap_err();
    assert!(log.lines()[1].contains("first bytes within 10 s"), "{:?}", log.lines());
}

/// Probes of load balancers connect and close.
#[tokio::test]
async fn peers_that_go_away_are_not_logged() {
    let (log, _recording) = Recorded::begin();
    let ours = Authority::new();
    for tls in [None, Some(ours.tls(&[Role::Table]))] {
        let (incoming, address) = listen(1, tls.clone()).await;
        let serving = tokio::spawn(serve(incoming));
        let client = tls.map(|_| ours.tls(&[Role::Client]));
        for _ in 0..3 {
            drop(TcpStream::connect(address).await.unwrap());
        }
        // The only place is free again.
        while dial(address, Role::Table, client.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        serving.abort();
    }
    let others = log.lines().into_iter().filter(|line| !line.contains("connections_max"));
    assert_eq!(others.count(), 0, "{:?}", log.lines());
}

/// Renewed files are used by new connections, and the old connection lives.
#[tokio::test]
async fn both_ends_pick_up_renewed_files() {
    let (ours, dir) = (Authority::new(), tempfile::tempdir().unwrap());
    let put = |role: Role, last_year| {
        let (certificate, key) = ours.issue(&[role.name()], last_year);
        std::fs::write(dir.path().join("ca"), ours.pem()).unwrap();
        let path = |kind: &str| dir.path().join(format!("{}-{kind}", role.name()));
        std::fs::write(path("certificate"), certificate).unwrap();
        std::fs::write(path("key"), key).unwrap();
        Tls::read(&dir.path().join("ca"), &path("certificate"), &path("key")).unwrap()
    };
    let (table, client) = (put(Role::Table, 2090), put(Role::Client, 2020));
    let (incoming, address) = listen(10, Some(table.clone())).await;
    let serving = tokio::spawn(serve(incoming));
    dial(address, Role::Table, Some(client.clone())).await.unwrap_err();
    put(Role::Client, 2090);
    client.renew();
    let first = dial(address, Role::Table, Some(client.clone())).await.unwrap();
    put(Role::Table, 2020);
    table.renew();
    let error = dial(address, Role::Table, Some(client.clone())).await.unwrap_err();
    assert!(error.to_string().contains("expired on 2020-12-31"), "{error}");
    put(Role::Table, 2091);
    table.renew();
    dial(address, Role::Table, Some(client)).await.unwrap();
    drop(first);
    serving.abort();
}
