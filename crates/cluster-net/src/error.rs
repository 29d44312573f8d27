//! Settings that cannot be.

/// A setting is wrong: what is, and what to do about it.
///
/// ```
/// let error = cluster_net::Tls::from_pem("", "", "").unwrap_err();
/// assert_eq!(error.what, "the authority's certificate is not in PEM");
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{what}: {remedy}")]
pub struct Error {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Error {
    pub(crate) fn settings(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Error { what: what.into(), remedy: remedy.into() }
    }
}
