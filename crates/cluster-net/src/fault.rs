//! Names the fault of a connection that one of its ends refuses: a certificate, a role, encryption.
//!
//! Such a fault stays until a person acts, so clients do not repeat the connection.

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use crate::certificate::Facts;

/// The reason why a client cannot use a server until a person acts.
///
/// ```
/// use cluster_net::Fault;
/// let error = std::io::Error::other("the cable is out");
/// assert!(Fault::find(&error).is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {remedy}")]
pub struct Fault {
    what: String,
    remedy: String,
}

impl Fault {
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Fault { what: what.into(), remedy: remedy.into() }
    }

    /// Returns the fault among an error and its causes, if there is one.
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Fault> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(fault) = error.downcast_ref() {
                return Some(fault);
            }
            next = error.source();
        }
        None
    }

    /// The fault of a server without TLS, for a client that has certificates.
    fn not_encrypted(server: &str, plain: &str) -> Self {
        Fault::new(
            format!("{server} does not speak TLS, and this client has certificates"),
            format!("check the address; start the server with certificates, or {plain}"),
        )
    }

    /// The fault of a client without certificates, at a server that demands TLS.
    pub(crate) fn encrypted(server: &str) -> Self {
        Fault::new(
            format!("{server} demands TLS, and this client has no certificate"),
            "give the client its certificate, its key and the cluster's authority (`tls` in the settings)",
        )
    }
}

/// The two ends of a failed connection, as the client knows them.
#[derive(Debug)]
pub(crate) struct Ends<'a> {
    /// The server, with its address.
    pub(crate) server: &'a str,
    /// The name that the server's certificate must have.
    pub(crate) name: &'a str,
    /// The certificate that the server showed.
    pub(crate) shown: Option<&'a Facts>,
    /// The client's own certificate.
    pub(crate) own: &'a Facts,
    /// How to have the client speak plain text.
    pub(crate) plain: &'a str,
}

/// How to have a client of this project's servers speak plain text.
pub(crate) const PLAIN: &str = "remove `tls` from the settings";
/// How to have a client of a server that its address names speak plain text.
pub(crate) const PLAIN_TO_HOST: &str = "remove `tls=true` from the address";

impl Ends<'_> {
    /// Returns the fault that the client found in the server, or that the server's alert names.
    /// Returns `None` for an error that may pass, such as a broken connection.
    pub(crate) fn fault(&self, error: &io::Error) -> Option<Fault> {
        match of_tls(error)? {
            rustls::Error::InvalidCertificate(error) => Some(self.of_the_server(error)),
            rustls::Error::AlertReceived(alert) => self.of_the_client(*alert),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                Some(Fault::not_encrypted(self.server, self.plain))
            }
            _ => None,
        }
    }

    /// The fault of the server's certificate, which the client does not accept.
    fn of_the_server(&self, error: &CertificateError) -> Fault {
        let Ends { server, name, .. } = self;
        let shown = self.shown.map(|shown| format!(" ({shown})")).unwrap_or_default();
        let certificate = format!("the certificate{shown} of {server}");
        match Flaw::of(error) {
            Flaw::Expired => Fault::new(
                format!("{certificate} expired on {}", end(self.shown)),
                "give that server a renewed certificate",
            ),
            Flaw::NotYetValid => Fault::new(
                format!("{certificate} is valid only from {}", begin(self.shown)),
                "check the clocks of both machines",
            ),
            Flaw::Foreign => Fault::new(
                format!("{certificate} is not signed by an authority that this client trusts"),
                "check the address, and `tls.authority` of both",
            ),
            Flaw::WrongName => Fault::new(
                format!("{certificate} does not name {name}"),
                "check the address, or give that server a certificate with this name",
            ),
            Flaw::Other => Fault::new(
                format!("{certificate} is not accepted: {error}"),
                "give that server a certificate made as docs/security.md says",
            ),
        }
    }

    /// The fault of the client's certificate, which the server does not accept.
    fn of_the_client(&self, alert: AlertDescription) -> Option<Fault> {
        let Ends { server, own, .. } = self;
        let certificate = format!("this client's certificate ({own})");
        let fault = match alert {
            AlertDescription::CertificateExpired if own.has_expired() => Fault::new(
                format!("{certificate} expired on {}, and {server} refuses it", own.end()),
                "put a renewed certificate in its place",
            ),
            AlertDescription::CertificateExpired => Fault::new(
                format!(
                    "{server} takes {certificate} for expired or not yet valid; it is valid from \
                     {} to {}",
                    own.begin(),
                    own.end()
                ),
                "check the clocks of both machines",
            ),
            AlertDescription::UnknownCA | AlertDescription::DecryptError => Fault::new(
                format!("{certificate} is not signed by an authority that {server} trusts"),
                "give the client a certificate of the cluster's authority",
            ),
            AlertDescription::CertificateRequired => Fault::encrypted(server),
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied => Fault::new(
                format!("{server} refuses {certificate} ({alert:?})"),
                "give the client a certificate made as docs/security.md says; the server's log says more",
            ),
            _ => return None,
        };
        Some(fault)
    }
}

fn end(shown: Option<&Facts>) -> String {
    shown.map_or_else(|| "an unknown time".to_owned(), Facts::end)
}

fn begin(shown: Option<&Facts>) -> String {
    shown.map_or_else(|| "an unknown time".to_owned(), Facts::begin)
}

/// The TLS error in an error of a connection.
pub(crate) fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The flaw of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    Expired,
    NotYetValid,
    /// Another authority has signed the certificate.
    Foreign,
    WrongName,
    Other,
}

impl Flaw {
    pub(crate) fn of(error: &CertificateError) -> Flaw {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Flaw::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Flaw::NotYetValid
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Flaw::Foreign,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Flaw::WrongName
            }
            _ => Flaw::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;

    use super::*;
    use crate::Role;
    use crate::authority::Authority;

    fn fault(error: rustls::Error) -> Option<String> {
        let (certificate, _) = Authority::new().issue(&[Role::Client.name()], 2090);
        let own = Facts::of(&CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap());
        let ends = Ends {
            server: "the oracle at h:1",
            name: Role::Oracle.name(),
            shown: None,
            own: &own,
            plain: PLAIN,
        };
        let error = io::Error::new(io::ErrorKind::InvalidData, error);
        ends.fault(&error).map(|fault| fault.to_string())
    }

    #[test]
    fn clocks_that_differ_are_named() {
        let alert = rustls::Error::AlertReceived(AlertDescription::CertificateExpired);
        let fault = fault(alert).unwrap();
        let parts = ["the oracle at h:1 takes this", "to 2090-12-31", "check the clocks"];
        assert!(parts.iter().all(|part| fault.contains(part)), "{fault}");
    }

    #[test]
    fn every_flaw_of_the_servers_certificate_has_a_text_without_the_certificate() {
        for (error, part) in [
            (CertificateError::Expired, "expired on an unknown time"),
            (CertificateError::NotValidYet, "is valid only from an unknown time"),
            (CertificateError::UnknownIssuer, "an authority that this client trusts"),
            (CertificateError::NotValidForName, "does not name oracle.percolator.internal"),
            (CertificateError::Revoked, "is not accepted"),
        ] {
            let fault = fault(rustls::Error::InvalidCertificate(error)).unwrap();
            assert!(fault.starts_with("the certificate of the oracle at h:1"), "{fault}");
            assert!(fault.contains(part), "{fault}");
        }
    }

    #[test]
    fn a_broken_connection_is_no_fault() {
        assert_eq!(fault(rustls::Error::DecryptError), None);
        assert_eq!(fault(rustls::Error::AlertReceived(AlertDescription::InternalError)), None);
    }
}
