//! Tests peers that the server refuses: strangers, expired certificates, other roles, no
//! certificate, and plain text that others could read.

use bigtable::Error;
use tonic::transport::{Certificate, ClientTlsConfig};

use super::authority::Authority;
use super::*;

async fn guarded(dir: &Path, tls: Tls) -> SocketAddr {
    start(dir, ServeOptions { tls: Some(tls), ..ServeOptions::default() }).await
}

#[tokio::test]
async fn those_of_another_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new(), Authority::new());
    let address = guarded(dir.path(), ours.tls(&[Role::Table])).await;
    ask(address, Some(ours.tls(&[Role::Client]))).await.unwrap();
    // In the first case neither trusts the other; in the second only the client trusts the
    // server.
    for tls in [other.tls(&[Role::Client]), ours.tls_of_another(&other, Role::Client)] {
        let refused = ask(address, Some(tls)).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    }
}

#[tokio::test]
async fn the_expired() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new();
    let address = guarded(dir.path(), ours.tls(&[Role::Table])).await;
    let refused = ask(address, Some(ours.tls_until(&[Role::Client], 2020))).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    let dir = tempfile::tempdir().unwrap();
    let expired = guarded(dir.path(), ours.tls_until(&[Role::Table], 2020)).await;
    let refused = ask(expired, Some(ours.tls(&[Role::Client]))).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
}

#[tokio::test]
async fn those_of_other_roles() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new();
    let address = guarded(dir.path(), ours.tls(&[Role::Table])).await;
    for roles in
        [&[Role::Client][..], &[Role::Oracle], &[Role::Admin], &[Role::Table, Role::Client]]
    {
        ask(address, Some(ours.tls(roles))).await.unwrap();
    }
    let refused = ask(address, Some(ours.tls(&[Role::Table]))).await.unwrap_err();
    assert!(matches!(refused, Error::InvalidRequest(_)), "{refused}");
    assert!(refused.to_string().contains("does not name client.percolator.internal"), "{refused}");
    // A client poses as a server.
    let dir = tempfile::tempdir().unwrap();
    let posing = guarded(dir.path(), ours.tls(&[Role::Client, Role::Oracle])).await;
    let refused = ask(posing, Some(ours.tls(&[Role::Client]))).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
}

#[tokio::test]
async fn those_without_a_certificate_and_those_in_plain_text() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new();
    let address = guarded(dir.path(), ours.tls(&[Role::Table])).await;
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ours.pem()))
        .domain_name(Role::Table.name());
    let endpoint = Channel::from_shared(format!("https://{address}")).unwrap();
    let channel = endpoint.tls_config(config).unwrap().connect_lazy();
    let request =
        crate::proto::data::PingAndWarmRequest { name: INSTANCE.to_owned(), ..Default::default() };
    BigtableClient::new(channel).ping_and_warm(request).await.unwrap_err();
    let refused = ask(address, None).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    // A client with certificates does not speak to a server without.
    let dir = tempfile::tempdir().unwrap();
    let open = start(dir.path(), ServeOptions::default()).await;
    let refused = ask(open, Some(ours.tls(&[Role::Client]))).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
}

#[tokio::test]
async fn plain_text_beyond_this_machine() {
    let serve = async |options| {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::open(dir.path().join("data"), Options::default()).await.unwrap();
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        server.serve_with(listener, options, async {}).await
    };
    let refused = serve(ServeOptions::default()).await.unwrap_err();
    assert!(matches!(refused, ServeError::Settings(_)), "{refused}");
    assert!(refused.to_string().contains("--insecure"), "{refused}");
    serve(ServeOptions { plaintext_beyond_loopback: true, ..Default::default() }).await.unwrap();
    let tls = Some(Authority::new().tls(&[Role::Table]));
    serve(ServeOptions { tls, ..Default::default() }).await.unwrap();
}
