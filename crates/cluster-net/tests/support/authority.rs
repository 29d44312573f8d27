//! Implements a certificate authority for the tests of this crate and of those that use it.

use cluster_net::{Role, Tls};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate and a key for these names, valid until the end of a year. Its subject
    /// is the first name.
    pub(crate) fn issue(&self, names: &[&str], last_year: i32) -> (String, String) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let subject = names.first().cloned().unwrap_or_default();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, subject);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    pub(crate) fn tls(&self, roles: &[Role]) -> Tls {
        self.tls_until(roles, 2090)
    }

    pub(crate) fn tls_until(&self, roles: &[Role], last_year: i32) -> Tls {
        let names: Vec<&str> = roles.iter().map(|role| role.name()).collect();
        let (certificate, key) = self.issue(&names, last_year);
        Tls::from_pem(&self.pem(), &certificate, &key).unwrap()
    }

    /// Settings that trust this authority, and show a certificate of another.
    pub(crate) fn tls_of_another(&self, other: &Authority, role: Role) -> Tls {
        let (certificate, key) = other.issue(&[role.name()], 2090);
        Tls::from_pem(&self.pem(), &certificate, &key).unwrap()
    }
}
