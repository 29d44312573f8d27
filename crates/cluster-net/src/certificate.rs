//! Reads the facts of a certificate that logs and errors name: its subject, its roles, its dates.
//!
//! Nothing here decides whether a certificate is good: rustls does that. A certificate that cannot
//! be read has facts all the same, which say so.

use std::fmt;

use rustls_pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

use crate::Role;

/// Longest subject that a message contains, in characters.
const SUBJECT_MAX: usize = 200;
/// Most DNS names that a message contains.
const NAMES_MAX: usize = 8;

/// The facts of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The distinguished name of the holder, such as `CN=table`.
    subject: String,
    /// The DNS names of the holder.
    names: Vec<String>,
    roles: Vec<Role>,
    /// The first and the last second of the certificate, since 1970. `None` if it cannot be read.
    validity: Option<(i64, i64)>,
}

impl Facts {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Facts {
        let parsed = X509Certificate::from_der(certificate).ok().map(|(_, parsed)| parsed);
        let subject = parsed.as_ref().map(|parsed| printable(&parsed.subject().to_string()));
        let validity = parsed.as_ref().map(|parsed| {
            let validity = parsed.validity();
            (validity.not_before.timestamp(), validity.not_after.timestamp())
        });
        let holder = EndEntityCert::try_from(certificate).ok();
        let names = holder.iter().flat_map(|holder| holder.valid_dns_names());
        let names = names.take(NAMES_MAX).map(printable).collect();
        let has = |role: &Role| {
            let name = ServerName::try_from(role.name()).expect("names of roles are DNS names");
            holder
                .as_ref()
                .is_some_and(|holder| holder.verify_is_valid_for_subject_name(&name).is_ok())
        };
        let roles = Role::ALL.into_iter().filter(has).collect();
        let subject = subject.unwrap_or_else(|| "a certificate that cannot be read".to_owned());
        Facts { subject, names, roles, validity }
    }

    pub(crate) fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// True if the certificate has expired by the clock of this machine.
    pub(crate) fn has_expired(&self) -> bool {
        self.validity.is_some_and(|(_, last)| last < ASN1Time::now().timestamp())
    }

    /// The end of the certificate, as text.
    pub(crate) fn end(&self) -> String {
        self.validity.map_or_else(unknown, |(_, last)| time(last))
    }

    /// The begin of the certificate, as text.
    pub(crate) fn begin(&self) -> String {
        self.validity.map_or_else(unknown, |(first, _)| time(first))
    }

    /// The DNS names of the holder, as text.
    pub(crate) fn names(&self) -> String {
        match self.names.as_slice() {
            [] => "no name".to_owned(),
            names => names.join(", "),
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)
    }
}

fn unknown() -> String {
    "an unknown time".to_owned()
}

/// A time in UTC.
fn time(seconds: i64) -> String {
    let Ok(time) = ASN1Time::from_timestamp(seconds) else { return unknown() };
    let time = time.to_datetime();
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A text of a stranger as one short line of a log.
fn printable(text: &str) -> String {
    text.chars().take(SUBJECT_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::pem::PemObject;

    use super::*;
    use crate::authority::Authority;

    fn facts(names: &[&str], last_year: i32) -> Facts {
        let (certificate, _) = Authority::new().issue(names, last_year);
        Facts::of(&CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap())
    }

    #[test]
    fn the_facts_are_those_of_the_certificate() {
        let names = [Role::Client.name(), Role::Admin.name(), "host.example"];
        let old = facts(&names, 2020);
        assert_eq!(old.roles(), [Role::Client, Role::Admin]);
        assert_eq!(old.names(), names.join(", "));
        assert_eq!(old.end(), "2020-12-31T00:00:00Z");
        assert_eq!(old.begin(), "2000-01-01T00:00:00Z");
        assert!(old.has_expired() && !facts(&names, 2090).has_expired());
        assert_eq!(old.to_string(), format!("CN={}", names[0]));
    }

    #[test]
    fn garbage_has_facts_that_say_so() {
        let facts = Facts::of(&CertificateDer::from(vec![0x30, 0x03, 1, 2, 3]));
        assert_eq!(facts.to_string(), "a certificate that cannot be read");
        assert!(facts.roles().is_empty() && !facts.has_expired());
        assert_eq!((facts.names(), facts.end()), ("no name".into(), "an unknown time".into()));
        assert_eq!(printable("a\nb\u{1b}[31m"), "a?b?[31m");
    }
}
