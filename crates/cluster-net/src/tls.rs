//! Sets up mutual TLS, and derives from a certificate which role its holder may have.
//!
//! One authority signs all certificates of a cluster. A certificate names *roles*, as DNS names
//! in its subject alternative names: `client.percolator.internal`,
//! `oracle.percolator.internal`, `table.percolator.internal`, `admin.percolator.internal`. A
//! server accepts only clients of the roles that it serves. A client accepts only servers of the
//! role that it looks for, on any host. So a leader may run anywhere, and the holder of a client's
//! certificate cannot pose as the oracle.
//!
//! ADR-19 says what this design costs, and what would change it.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, ServerName};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};
use tonic::{Request, Status};
use webpki::EndEntityCert;

use crate::Error;

/// Largest file of certificates or keys, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Longest time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The role of a certificate's holder.
///
/// ```
/// assert_eq!(cluster_net::Role::Oracle.name(), "oracle.percolator.internal");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A client of the oracle and of tables.
    Client,
    /// An oracle process.
    Oracle,
    /// A server of tables.
    Table,
    /// An administrator, who may do what a client may, and may ask for backups.
    Admin,
}

impl Role {
    /// The DNS name of the role in a certificate.
    pub fn name(self) -> &'static str {
        match self {
            Role::Client => "client.percolator.internal",
            Role::Oracle => "oracle.percolator.internal",
            Role::Table => "table.percolator.internal",
            Role::Admin => "admin.percolator.internal",
        }
    }
}

/// The authority of a cluster, and this process's own certificate and key.
///
/// ```
/// use cluster_net::Tls;
/// assert!(Tls::from_pem("no authority", "no certificate", "no key").is_err());
/// ```
#[derive(Clone)]
pub struct Tls {
    authority: Certificate,
    identity: Identity,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key must never appear.
        f.write_str("Tls")
    }
}

impl Tls {
    /// Builds the settings from texts in PEM.
    ///
    /// # Errors
    /// [`Error`] if a text contains nothing of its kind. This does not check that the texts
    /// belong together; if they do not, connections fail later.
    pub fn from_pem(authority: &str, certificate: &str, key: &str) -> Result<Self, Error> {
        let check = |what, text: &str, kind: &str| {
            let begins = text.lines().any(|line| {
                line.strip_prefix("-----BEGIN ").is_some_and(|rest| rest.contains(kind))
            });
            if begins {
                Ok(())
            } else {
                Err(Error::settings(
                    format!("the {what} is not in PEM"),
                    format!("give a file with a line `-----BEGIN ... {kind}-----`"),
                ))
            }
        };
        check("authority's certificate", authority, "CERTIFICATE")?;
        check("certificate", certificate, "CERTIFICATE")?;
        check("key", key, "PRIVATE KEY")?;
        let (authority, identity) =
            (Certificate::from_pem(authority), Identity::from_pem(certificate, key));
        Ok(Tls { authority, identity })
    }

    /// Reads the settings from files in PEM.
    ///
    /// # Errors
    /// [`Error`] names a file that cannot be read, is larger than 1 MiB, or contains nothing of
    /// its kind.
    pub fn read(authority: &Path, certificate: &Path, key: &Path) -> Result<Self, Error> {
        let read = |path: &Path| {
            let bad = |why: String| {
                Error::settings(format!("{}: {why}", path.display()), "name a file in PEM")
            };
            let bytes = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?.len();
            if bytes > PEM_BYTES_MAX {
                return Err(bad(format!(
                    "the file has {bytes} bytes, at most {PEM_BYTES_MAX} are allowed"
                )));
            }
            std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))
        };
        Tls::from_pem(&read(authority)?, &read(certificate)?, &read(key)?)
    }

    /// The configuration of a listener: clients must show a certificate of the authority. Call
    /// [`check_peer`] for their role.
    pub fn for_server(&self) -> ServerTlsConfig {
        ServerTlsConfig::new()
            .identity(self.identity.clone())
            .client_ca_root(self.authority.clone())
            .timeout(HANDSHAKE)
    }

    /// The configuration for servers that are identified by their hosts, such as etcd's. Their
    /// certificates name hosts, not roles.
    pub fn for_client_of_host(&self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .identity(self.identity.clone())
            .ca_certificate(self.authority.clone())
            .timeout(HANDSHAKE)
    }

    /// The configuration for servers of this role.
    pub fn for_client_of(&self, role: Role) -> ClientTlsConfig {
        self.for_client_of_host().domain_name(role.name())
    }
}

/// Checks that the sender of a request has shown a certificate of one of these roles. The
/// handshake has already checked the authority.
///
/// # Errors
/// `Unauthenticated` without a certificate, `PermissionDenied` for one of another role.
pub fn check_peer<T>(request: &Request<T>, roles: &[Role]) -> Result<(), Status> {
    let certificates = request.peer_certs();
    check_certificate(certificates.as_ref().and_then(|certificates| certificates.first()), roles)
}

fn check_certificate(first: Option<&CertificateDer<'_>>, roles: &[Role]) -> Result<(), Status> {
    let Some(first) = first else {
        return Err(Status::unauthenticated(
            "the client showed no certificate: show one that the cluster's authority has signed",
        ));
    };
    let certificate = EndEntityCert::try_from(first)
        .map_err(|_| Status::unauthenticated("the certificate is damaged"))?;
    let names = |role: &&Role| {
        let name = ServerName::try_from(role.name()).expect("names of roles are DNS names");
        certificate.verify_is_valid_for_subject_name(&name).is_ok()
    };
    if roles.iter().any(|role| names(&role)) {
        return Ok(());
    }
    let names: Vec<_> = roles.iter().map(|role| role.name()).collect();
    let wanted = names.join(" or ");
    Err(Status::permission_denied(format!("the certificate does not name {wanted}")))
}

/// Checks that an address for plain text is on the loopback interface.
///
/// # Errors
/// [`Error`] for an address that other machines can reach.
pub fn check_plaintext(address: SocketAddr) -> Result<(), Error> {
    if address.ip().is_loopback() {
        Ok(())
    } else {
        Err(Error::settings(
            format!(
                "the server would accept plain text on {address}, which other machines can reach"
            ),
            "give certificates, listen on 127.0.0.1, or allow it (`--insecure`) in a network you trust",
        ))
    }
}
