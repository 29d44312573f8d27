//! Defines the options of a client.

use std::time::Duration;

use cluster_net::Tls;

/// Options of a [`GrpcStore`](crate::GrpcStore).
///
/// ```
/// let options = bigtable_grpc::ClientOptions::default();
/// assert_eq!(options.app_profile, "default");
/// ```
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Number of connections to the server. Default: 4 connections.
    pub connections: usize,
    /// Longest time for a request, for each attempt. Default: 20 s.
    pub deadline: Duration,
    /// The application profile that routes requests, unless the address names one. It must
    /// route to a single cluster and allow single-row transactions. Default: `"default"`.
    pub app_profile: String,
    /// Certificates for mutual TLS. The server's certificate must name
    /// `table.percolator.internal`; the client's must satisfy the server. With certificates the
    /// client sends nothing in plain text. Cloud Bigtable does not use them: it has
    /// certificates of public authorities and takes tokens. Default: `None`.
    pub tls: Option<Tls>,
    /// Allows plain text to another machine. Otherwise the client needs `tls`, except for a
    /// server on this machine or one that `BIGTABLE_EMULATOR_HOST` names. Default: `false`.
    pub plaintext_beyond_loopback: bool,
    /// Combines several conditional mutations, or several reads of rows and short scans, in one
    /// request, if the server supports it. The server of this crate does. Default: `true`.
    pub batches: bool,
    /// Time that a conditional mutation, a read of one row or a short scan waits for others. A
    /// short scan has at most 64 rows between two bounds. The others may come from any caller and
    /// be of any table, and go in one request with it. A delay means fewer requests and a higher
    /// latency (paper section 2.5). While an earlier request is not answered, they wait up to 10 ms
    /// longer. Zero sends each at once. A request that is over a second late, because the process
    /// stood still, is refused instead of being sent.
    ///
    /// If the server supports no batches, conditional mutations and scans do not wait. Reads still
    /// wait, and reads with the same selection go together. Those belong to one transaction,
    /// because each transaction reads at its own timestamp. Longer scans never wait, nor do reads
    /// of several rows, which are batches already. Default: 0 s.
    pub batch_delay: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            connections: 4,
            deadline: Duration::from_secs(20),
            app_profile: "default".to_owned(),
            tls: None,
            plaintext_beyond_loopback: false,
            batches: true,
            batch_delay: Duration::ZERO,
        }
    }
}
