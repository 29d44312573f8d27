//! Tests peers that the server refuses: strangers, expired certificates, other roles, no
//! certificate, and plain text that others could read.

use bigtable::Error;
use tonic::transport::{Certificate, ClientTlsConfig};

use super::authority::Authority;
use super::*;

async fn guarded(dir: &Path, tls: Tls) -> SocketAddr {
    start(dir, ServeOptions { tls: Some(tls), ..ServeOptions::default() }).await
}

/// The reason of a refusal, which comes at once: the client does not repeat its request.
async fn refusal(address: SocketAddr, tls: Option<Tls>) -> String {
    let begun = std::time::Instant::now();
    let refused = ask(address, tls).await.unwrap_err();
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    match refused {
        Error::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn those_of_another_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new(), Authority::new());
    let address = guarded(dir.path(), ours.tls(&[Role::Table])).await;
    ask(address, Some(ours.tls(&[Role::Client]))).await.unwrap();
    // In the first case neither trusts the other; in the second only the client trusts the
    // server.
    for (tls, whose) in [
        (other.tls(&[Role::Client]), "the certificate (CN=table"),
        (ours.tls_of_another(&other, Role::Client), "this client's certificate (CN=client"),
    ] {
        let why = refusal(address, Some(tls)).await;
        assert!(why.contains(whose) && why.contains("is not signed by an authority"), "{why}");
    }
}

#[tokio::test]
async fn the_expired() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new();
    let address = guarded(dir.path(), ours.tls(&[Role::Table])).await;
    let why = refusal(address, Some(ours.tls_until(&[Role::Client], 2020))).await;
    assert!(why.contains("this client's certificate") && why.contains("2020-12-31"), "{why}");
    let dir = tempfile::tempdir().unwrap();
    let expired = guarded(dir.path(), ours.tls_until(&[Role::Table], 2020)).await;
    let why = refusal(expired, Some(ours.tls(&[Role::Client]))).await;
    assert!(why.contains("of the table server at 127.0.0.1") && why.contains("expired"), "{why}");
}

/// A certificate that expires while the client runs is named by the next connection, and the
/// client goes on once the file is renewed.
#[tokio::test]
async fn a_renewed_certificate_ends_the_refusal() {
    let (dir, ours) = (tempfile::tempdir().unwrap(), Authority::new());
    let put = |last_year| {
        let (certificate, key) = ours.issue(&[Role::Client.name()], last_year);
        let texts = [("ca", ours.pem()), ("certificate", certificate), ("key", key)];
        let paths = texts.map(|(name, text)| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        });
        Tls::read(&paths[0], &paths[1], &paths[2]).unwrap()
    };
    let address = guarded(dir.path(), ours.tls(&[Role::Table])).await;
    let tls = put(2020);
    refusal(address, Some(tls.clone())).await;
    put(2090);
    tls.renew();
    ask(address, Some(tls)).await.unwrap();
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
    let why = refusal(address, Some(ours.tls(&[Role::Table]))).await;
    assert!(why.contains("does not name client.percolator.internal"), "{why}");
    // A client poses as a server.
    let dir = tempfile::tempdir().unwrap();
    let posing = guarded(dir.path(), ours.tls(&[Role::Client, Role::Oracle])).await;
    let why = refusal(posing, Some(ours.tls(&[Role::Client]))).await;
    assert!(why.contains("does not name table.percolator.internal"), "{why}");
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
    let why = refusal(address, None).await;
    assert!(why.contains("demands TLS, and this client has no certificate"), "{why}");
    // A client with certificates does not speak to a server without.
    let dir = tempfile::tempdir().unwrap();
    let open = start(dir.path(), ServeOptions::default()).await;
    let why = refusal(open, Some(ours.tls(&[Role::Client]))).await;
    assert!(why.contains("does not speak TLS"), "{why}");
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
