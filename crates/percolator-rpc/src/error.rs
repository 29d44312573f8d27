//! Defines the errors of starting a service and of making a client.

use std::net::SocketAddr;

/// The reason why a service did not start, or a client could not be made.
///
/// ```
/// use percolator_rpc::Address;
/// let error = "nowhere".parse::<Address>().unwrap_err();
/// assert!(error.to_string().contains("host:port"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is wrong.
    #[error("{what}: {remedy}")]
    Settings {
        /// The fault.
        what: String,
        /// The remedy.
        remedy: String,
    },
    /// The process cannot listen on the address.
    #[error("cannot listen on {address} ({why}): choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        why: std::io::Error,
    },
    /// The transport failed.
    #[error("the transport failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

impl Error {
    pub(crate) fn settings(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Error::Settings { what: what.into(), remedy: remedy.into() }
    }
}

impl From<cluster_net::Error> for Error {
    fn from(error: cluster_net::Error) -> Self {
        Error::Settings { what: error.what, remedy: error.remedy }
    }
}
