//! Defines the error for a wrong setting, with its remedy.

/// A wrong setting, with its remedy.
///
/// ```
/// let error = cluster_net::Tls::from_pem("", "", "").unwrap_err();
/// assert_eq!(error.what, "the authority's certificate is not in PEM");
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{what}: {remedy}")]
pub struct Error {
    /// The fault.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

impl Error {
    pub(crate) fn settings(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Error { what: what.into(), remedy: remedy.into() }
    }
}
