//! Implements an oracle process: it listens, stands by and leads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cluster_net::Incoming;
use futures::FutureExt;
use percolator_core::{Oracle, OracleNode, OracleRole};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tonic::server::NamedService;
use tonic::transport::Server;

use crate::health::{Health, is_ok};
use crate::oracle::service::Service;
use crate::proto::oracle::oracle_server::OracleServer as Grpc;
use crate::{Error, Tls, check_plaintext};

/// Longest request that the server reads, in bytes. Requests are three numbers.
const REQUEST_BYTES_MAX: usize = 256;

/// Most streams of one connection; a client needs one.
const STREAMS_MAX: u32 = 16;

/// Connections beyond the number of served clients, so that further clients get a reason for
/// the refusal.
const CONNECTIONS_BEYOND: usize = 100;

/// Interval of pings to a silent client, and longest time for its answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time for clients to notice that the server ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Longest time for a look whether the leader still leads.
const LEADS_WITHIN: Duration = Duration::from_secs(1);

/// The options of an oracle process.
///
/// ```
/// use percolator_rpc::oracle::OracleServerOptions;
/// assert_eq!(OracleServerOptions::default().clients_max, 10_000);
/// ```
#[derive(Debug, Clone)]
pub struct OracleServerOptions {
    /// Most clients at a time. Further ones are refused, and try another process. Default:
    /// 10,000 clients.
    pub clients_max: usize,
    /// Certificates for mutual TLS. `None` means plain text. Default: `None`.
    pub tls: Option<Tls>,
    /// Allows plain text on an address that other machines can reach. Default: `false`.
    pub plaintext_beyond_loopback: bool,
}

impl Default for OracleServerOptions {
    fn default() -> Self {
        OracleServerOptions { clients_max: 10_000, tls: None, plaintext_beyond_loopback: false }
    }
}

/// An oracle process. If it is dropped, other processes wait until its lease expires, as after
/// a crash. [`stop`](OracleServer::stop) hands over at once.
///
/// It answers gRPC's health protocol. The service `percolator.oracle.v1.Oracle` serves only while
/// this process leads. The process as a whole, with the empty name, also serves as a standby that
/// can read the store.
///
/// ```
/// # use std::sync::Arc;
/// use percolator_core::{Oracle, OracleNode, OracleOptions};
/// use percolator_rpc::oracle::{OracleServer, RemoteOracle};
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let store = Arc::new(bigtable::MemoryStore::new());
/// # let runtime = Arc::new(percolator::runtime::TokioRuntime::current());
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.local_addr()?;
/// let options = OracleOptions { address: address.to_string(), ..OracleOptions::default() };
/// let node = Arc::new(OracleNode::new(store, runtime, options)?);
/// let server = OracleServer::start(node, listener, Default::default())?;
/// let oracle = RemoteOracle::new(vec![address.into()], Default::default())?;
/// let first = oracle.timestamp().await?.timestamp;
/// assert!(oracle.timestamp().await?.timestamp > first);
/// server.stop().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct OracleServer {
    node: Arc<OracleNode>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
    standing: JoinHandle<()>,
}

impl OracleServer {
    /// Serves on a listener, by tasks of the current tokio runtime.
    ///
    /// # Errors
    /// * [`Error::Settings`] for a limit of no clients, or for plain text beyond this machine
    ///   that the options do not allow.
    /// * [`Error::Listen`] if the listener is unusable.
    pub fn start(
        node: Arc<OracleNode>,
        listener: TcpListener,
        options: OracleServerOptions,
    ) -> Result<Self, Error> {
        if options.clients_max == 0 {
            return Err(Error::settings("clients_max is 0", "give 1 or more"));
        }
        let unbound = SocketAddr::from(([0, 0, 0, 0], 0));
        let address =
            listener.local_addr().map_err(|why| Error::Listen { address: unbound, why })?;
        if options.tls.is_none() && !options.plaintext_beyond_loopback {
            check_plaintext(address)?;
        }
        let (stop, stopped) = watch::channel(false);
        let permits = options.clients_max.min(Semaphore::MAX_PERMITS);
        let clients = Arc::new(Semaphore::new(permits));
        let service = Service {
            node: node.clone(),
            stop: stopped.clone(),
            clients,
            certified: options.tls.is_some(),
        };
        let service = Grpc::new(service).max_decoding_message_size(REQUEST_BYTES_MAX);
        let connections_max = permits.saturating_add(CONNECTIONS_BEYOND);
        let incoming = Incoming::new(listener, connections_max, options.tls.clone());
        let router = Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .max_concurrent_streams(Some(STREAMS_MAX))
            .add_service(health(node.clone(), stopped.clone()))
            .add_service(service);
        let mut ending = stopped;
        let serving = tokio::spawn(router.serve_with_incoming_shutdown(incoming, async move {
            // The sender is gone only if this server was dropped, which also ends the serving.
            let _ = ending.wait_for(|stop| *stop).await;
        }));
        let own = node.clone();
        let standing = tokio::spawn(async move { own.run().await });
        Ok(OracleServer { node, address, stop, serving, standing })
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process's part in the election.
    pub fn node(&self) -> &Arc<OracleNode> {
        &self.node
    }

    /// Resigns, so that another process can lead at once, and ends.
    ///
    /// # Errors
    /// An error of the store, if the record could not be marked. The next leader then waits
    /// until the lease expires.
    pub async fn stop(mut self) -> percolator_core::Result<()> {
        let resigned = self.node.resign().await;
        // Sending fails only if the serving task has already ended.
        let _ = self.stop.send(true);
        if tokio::time::timeout(FAREWELL, &mut self.serving).await.is_err() {
            tracing::warn!("some clients kept their connections to the oracle past the deadline");
        }
        resigned
    }
}

/// The health service of an oracle process.
fn health(
    node: Arc<OracleNode>,
    stopped: watch::Receiver<bool>,
) -> tonic_health::pb::health_server::HealthServer<Health> {
    Health::service(move |service| {
        let (node, stops) = (node.clone(), *stopped.borrow());
        let is_oracle = service == <Grpc<Service> as NamedService>::NAME;
        if !is_oracle && !service.is_empty() {
            return std::future::ready(None).boxed();
        }
        async move {
            let serves = match node.role() {
                // The leader looks at its lease, and renews the lease if it has expired.
                OracleRole::Leads(oracle) => is_ok(LEADS_WITHIN, oracle.peek()).await,
                OracleRole::StandsBy { trouble, .. } => !is_oracle && trouble.is_none(),
            };
            Some(serves && !stops)
        }
        .boxed()
    })
}

impl Drop for OracleServer {
    fn drop(&mut self) {
        self.standing.abort();
        self.serving.abort();
    }
}
