//! Parses one set of certificates, and makes the configurations of TLS connections from it.
//!
//! Each connection has a configuration of its own, which remembers the peer's certificate. So no
//! session is resumed: every connection checks the certificates of both ends anew.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::Error;
use crate::certificate::Facts;
use crate::verify::{Remembering, Shown};

/// The protocol that both ends must offer.
const ALPN_H2: &[u8] = b"h2";

/// Three texts in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The authority of a cluster, and this process's own certificate and key.
pub(crate) struct Loaded {
    texts: Texts,
    provider: Arc<CryptoProvider>,
    of_clients: Arc<dyn ClientCertVerifier>,
    of_servers: Arc<dyn ServerCertVerifier>,
    own: Arc<SingleCertAndKey>,
    facts: Facts,
}

impl Loaded {
    /// Parses the texts, and checks that the key belongs to the certificate.
    pub(crate) fn new(texts: Texts) -> Result<Loaded, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots(&texts.authority)?);
        let chain = certificates("certificate", &texts.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(texts.key.as_bytes())
            .map_err(|_| not_pem("key", "PRIVATE KEY"))?;
        let facts = Facts::of(&chain[0]);
        let own = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => Error::settings(
                format!("the key does not belong to the certificate ({facts})"),
                "give the key for which the certificate was made",
            ),
            error => Error::settings(
                format!("the certificate ({facts}) and its key cannot be used: {error}"),
                "make them as docs/security.md says",
            ),
        })?;
        let unusable = |error: &dyn std::error::Error| {
            Error::settings(
                format!("the authority's certificate cannot be used: {error}"),
                "give the certificate of the authority that signs all others",
            )
        };
        let of_clients =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
                .build()
                .map_err(|error| unusable(&error))?;
        let of_servers = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| unusable(&error))?;
        let own = Arc::new(SingleCertAndKey::from(own));
        Ok(Loaded { texts, provider, of_clients, of_servers, own, facts })
    }

    pub(crate) fn texts(&self) -> &Texts {
        &self.texts
    }

    /// The facts of this process's own certificate.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The configuration of one accepted connection, and the certificate that its client shows.
    pub(crate) fn for_server(&self) -> Result<(Arc<ServerConfig>, Shown), rustls::Error> {
        let shown = Shown::default();
        let verifier = Remembering { verifier: self.of_clients.clone(), shown: shown.clone() };
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(self.own.clone());
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok((Arc::new(config), shown))
    }

    /// The configuration of one connection to a server of HTTP/2, and the certificate that the
    /// server shows.
    pub(crate) fn for_client(&self) -> Result<(Arc<ClientConfig>, Shown), rustls::Error> {
        self.for_client_with(vec![ALPN_H2.to_vec()])
    }

    /// As [`for_client`](Loaded::for_client), for a server that names no protocol.
    pub(crate) fn for_client_of_any(&self) -> Result<(Arc<ClientConfig>, Shown), rustls::Error> {
        self.for_client_with(Vec::new())
    }

    fn for_client_with(
        &self,
        protocols: Vec<Vec<u8>>,
    ) -> Result<(Arc<ClientConfig>, Shown), rustls::Error> {
        let shown = Shown::default();
        let verifier = Remembering { verifier: self.of_servers.clone(), shown: shown.clone() };
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(self.own.clone());
        config.alpn_protocols = protocols;
        config.resumption = Resumption::disabled();
        Ok((Arc::new(config), shown))
    }

    /// The configuration for servers that are identified by their hosts.
    pub(crate) fn for_client_of_host(&self) -> ClientTlsConfig {
        let Texts { authority, certificate, key } = &self.texts;
        ClientTlsConfig::new()
            .identity(Identity::from_pem(certificate, key))
            .ca_certificate(Certificate::from_pem(authority))
    }
}

fn roots(authority: &str) -> Result<RootCertStore, Error> {
    let what = "authority's certificate";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, authority)? {
        roots.add(certificate).map_err(|error| {
            Error::settings(
                format!("the {what} cannot be used: {error}"),
                "give the certificate of the authority that signs all others",
            )
        })?;
    }
    Ok(roots)
}

/// The certificates of a text, at least one.
fn certificates(what: &str, text: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    parsed.ok().filter(|parsed| !parsed.is_empty()).ok_or_else(|| not_pem(what, "CERTIFICATE"))
}

fn not_pem(what: &str, kind: &str) -> Error {
    Error::settings(
        format!("the {what} is not in PEM"),
        format!("give a file with a line `-----BEGIN ... {kind}-----`"),
    )
}
