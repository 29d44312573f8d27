//! Takes the certificates of a server from the command line, or its permission to serve without.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use percolator_rpc::{Error, Tls, check_plaintext};

use crate::log::SERVICE;

/// Certificates that both sides of a connection show.
#[derive(Debug, Args)]
#[command(next_help_heading = "Mutual TLS")]
pub(crate) struct TlsArgs {
    /// The certificate of the authority that signs all others of the cluster, in PEM.
    #[arg(long, value_name = "FILE", requires_all = ["tls_certificate", "tls_key"])]
    tls_authority: Option<PathBuf>,
    /// The certificate of this process. It names the role, such as oracle.percolator.internal or
    /// table.percolator.internal. Renewed files are read before the next connection, and on SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls_authority")]
    tls_certificate: Option<PathBuf>,
    /// The private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_authority")]
    tls_key: Option<PathBuf>,
    /// Listen in plain text beyond this machine: anyone who reaches the port can do what a client
    /// can.
    #[arg(long, conflicts_with = "tls_authority")]
    pub(crate) insecure: bool,
}

impl TlsArgs {
    /// Reads the certificates, if there are any. Without certificates the address must be on this
    /// machine, unless `--insecure` allows any address.
    pub(crate) fn for_listener(&self, address: SocketAddr) -> Result<Option<Tls>, Error> {
        let files = (&self.tls_authority, &self.tls_certificate, &self.tls_key);
        if let (Some(authority), Some(certificate), Some(key)) = files {
            return Ok(Some(Tls::read(authority, certificate, key)?));
        }
        if !self.insecure {
            check_plaintext(address)?;
        }
        Ok(None)
    }
}

/// Reads the files of certificates again at each SIGHUP, and never completes. Without certificates
/// the signal is logged, and does not end the process.
#[cfg(unix)]
pub(super) fn renewing(tls: Option<Tls>) -> io::Result<impl Future<Output = Infallible>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut asked = signal(SignalKind::hangup())?;
    Ok(async move {
        while asked.recv().await.is_some() {
            match &tls {
                Some(tls) => tls.renew(),
                None => tracing::info!(
                    target: SERVICE, event = "nothing_to_renew",
                    "SIGHUP: this server has no certificates to read again"
                ),
            }
        }
        std::future::pending().await
    })
}

/// Never completes: this system has no such signal.
#[cfg(not(unix))]
pub(super) fn renewing(_: Option<Tls>) -> io::Result<impl Future<Output = Infallible>> {
    Ok(std::future::pending())
}
