//! The options of a client.

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
    /// Connections to the server. Default: 4 connections.
    pub connections: usize,
    /// How long a request may take, each time that it is sent. Default: 20 s.
    pub deadline: Duration,
    /// The application profile that requests are routed by, if the address names none. It must
    /// route to a single cluster and allow transactions on rows. Default: `"default"`.
    pub app_profile: String,
    /// Certificates that this client and the server show each other: the server's must name
    /// `table.percolator.internal`, the client's what the server wants. Where they are given,
    /// nothing is sent in plain text. Cloud Bigtable itself has certificates of public authorities,
    /// and takes tokens: there these are not used. Default: `None`.
    pub tls: Option<Tls>,
    /// Allows plain text to another machine. Without it only a server that `BIGTABLE_EMULATOR_HOST`
    /// names, or that is on this machine, is spoken to without `tls`. Default: `false`.
    pub plaintext_beyond_loopback: bool,
    /// Whether several conditional mutations, or several reads of rows, go in one request to a
    /// server that takes them so, which the server of this crate does. Default: `true`.
    pub batches: bool,
    /// How long a conditional mutation or a read of a row waits for others of its table, of
    /// whatever callers, to go in one request with them; fewer requests for a higher latency (paper
    /// section 2.5). Zero sends each at once. One that is a second late, because the process stood
    /// still, is refused instead of being sent.
    ///
    /// To a server that takes no batches, conditional mutations go at once all the same. Reads
    /// wait, and those by the same selection go together: those of one transaction, because each
    /// reads at its own timestamp. Reads of several rows, which are batches already, and scans
    /// never wait. Default: 0 s.
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
