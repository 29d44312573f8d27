//! A durable server of google.bigtable.v2 on one machine, over the embedded engine.
//!
//! ```text
//!   data.rs            ReadRows (read_rows, row_set, chunks)   SampleRowKeys (sample)
//!                      MutateRow(s) (mutate)   CheckAndMutateRow (check)
//!                      ReadModifyWriteRow (modify)
//!   extension.rs       several CheckAndMutateRow in one request, for clients of this project; and
//!                      several reads (read_each)
//!   table_admin.rs     tables and families      instance_admin.rs   the instance, static
//!        |
//!   tables.rs          which tables there are, their schemas (schema.rs), durable
//!        |
//!   condition.rs       log and health while the store takes no writes
//!        |
//!   layout.rs          families and columns of the API as families and columns of the engine
//!        |
//!   bigtable-fjall     rows, latches, durability
//! ```
//!
//! Invariants: a request that fails has changed nothing; an acknowledged one is durable to the
//! store's level. Limits are checked before anything is allocated by them. What the server does not
//! do answers UNIMPLEMENTED.
//!
//! Not here: garbage collection by age or number of versions (rules are kept and shown),
//! replication, access control by table (whoever may connect may do everything), and times of cells
//! beyond the year 287,396.

mod check;
mod chunks;
mod condition;
mod data;
mod deadline;
mod extension;
mod instance_admin;
mod layout;
mod limits;
mod modify;
mod mutate;
mod names;
mod purge;
mod read_each;
mod read_rows;
mod row_set;
mod sample;
mod schema;
mod status;
mod table_admin;
mod tables;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bigtable::{Store as _, Syncing};
use bigtable_fjall::{FjallStore, Options};
use cluster_net::{ArrivalLayer, Incoming, Role, Tls, check_peer, check_plaintext};
use tokio::net::TcpListener;
use tonic::service::InterceptorLayer;

use crate::identity::Named;
use crate::proto::admin::bigtable_instance_admin_server::BigtableInstanceAdminServer;
use crate::proto::admin::bigtable_table_admin_server::BigtableTableAdminServer;
use crate::proto::data::bigtable_server::BigtableServer;
use crate::proto::longrunning::operations_server::OperationsServer;
use data::Data;
use tables::Tables;

/// Requests of one connection that are worked on at the same time.
const CONNECTION_REQUESTS_MAX: usize = 256;
/// Streams of one connection.
const CONNECTION_STREAMS_MAX: u32 = 1024;
/// A connection that is silent for so long is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How long a request may take to arrive whole.
const ARRIVAL: Duration = Duration::from_secs(60);
/// Whom a server with certificates serves: clients, and oracles, whose record is in a table.
const SERVED: [Role; 2] = [Role::Client, Role::Oracle];

/// How a server listens.
///
/// ```
/// let options = bigtable_grpc::ServeOptions::default();
/// assert!(options.tls.is_none() && !options.plaintext_beyond_loopback);
/// ```
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Certificates that both sides must show, the server's for `table.percolator.internal`, those
    /// of clients for `client.percolator.internal` or `oracle.percolator.internal`; plain text
    /// without. Default: `None`.
    pub tls: Option<Tls>,
    /// Allows plain text on an address that other machines can reach: to whoever reaches it, too.
    /// Default: `false`.
    pub plaintext_beyond_loopback: bool,
    /// Most connections at a time; others are closed at once. Default: 1,000 connections.
    pub connections_max: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions { tls: None, plaintext_beyond_loopback: false, connections_max: 1000 }
    }
}

/// The server, with its tables open.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path().join("data");
/// use bigtable_grpc::Server;
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let server = Server::open(&dir, Default::default()).await?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
/// println!("export BIGTABLE_EMULATOR_HOST={}", listener.local_addr().unwrap());
/// let stop = async { /* Ctrl-C, say */ };
/// server.serve(listener, stop).await.unwrap();
/// # Ok::<(), bigtable::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Server {
    tables: Arc<Tables>,
    /// How long nobody is answered once it serves.
    silence: Duration,
}

impl Server {
    /// Opens the store in `dir`, creating it if it is not there.
    ///
    /// # Errors
    /// [`bigtable::Error::InUse`] if another process has the directory open, and
    /// [`bigtable::Error::Files`] if it cannot be used; it says what to do. Removing
    /// what an interrupted deletion left behind may fail as any mutation may.
    pub async fn open(dir: impl AsRef<Path>, options: Options) -> bigtable::Result<Server> {
        Server::over(FjallStore::open(dir, options)?).await
    }

    /// Takes over a store that is open.
    ///
    /// # Errors
    /// Those of reading its catalog; removing what an interrupted deletion left behind may fail as
    /// any mutation may.
    pub async fn over(store: FjallStore) -> bigtable::Result<Server> {
        let silence = if store.restarted() { Syncing::SILENCE } else { Duration::ZERO };
        Ok(Server { tables: Arc::new(Tables::open(store).await?), silence })
    }

    /// The full names of its tables, sorted: `projects/P/instances/I/tables/T`.
    pub async fn table_names(&self) -> Vec<String> {
        let schemas = self.tables.schemas("").await;
        schemas.iter().map(|schema| schema.record.name.clone()).collect()
    }

    /// Serves in plain text on this machine, as [`serve_with`](Server::serve_with) does.
    ///
    /// # Errors
    /// Those of [`serve_with`](Server::serve_with).
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.serve_with(listener, ServeOptions::default(), stop).await
    }

    /// Serves until `stop` completes; then takes no more requests, finishes those that run, and
    /// returns. Answers nothing for 2.4 seconds if the machine was started again since the store
    /// left changes unsynced, so that no lease holds any more whose renewal may be lost. A server
    /// that ends before that is silent again when it starts. A client that does not take its
    /// answers may hold it up: whoever must end in time drops the future.
    ///
    /// # Errors
    /// [`ServeError::Settings`] for plain text beyond this machine that was not allowed;
    /// [`ServeError::Transport`] for certificates that are none, and an error of the network below
    /// all connections; [`ServeError::Listener`] for a listener that is of no use;
    /// [`ServeError::Halted`] if the disk fails so that the store can answer nothing any more.
    pub async fn serve_with(
        self,
        listener: TcpListener,
        options: ServeOptions,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let ServeOptions { tls, plaintext_beyond_loopback, connections_max } = options;
        if tls.is_none() && !plaintext_beyond_loopback {
            check_plaintext(listener.local_addr()?)?;
        }
        let certified = tls.is_some();
        let named = self.tables.store.id().and_then(Named::new);
        let authorize = InterceptorLayer::new(move |request: tonic::Request<()>| {
            if certified {
                check_peer(&request, &SERVED)?;
            }
            if let Some(named) = &named {
                named.check(request.metadata())?;
            }
            Ok(request)
        });
        let mut stop = std::pin::pin!(stop);
        if !self.silence.is_zero() {
            tracing::warn!(silence = ?self.silence, "the machine was started again: leases run out first");
            tokio::select! {
                () = tokio::time::sleep(self.silence) => {}
                // The next start is silent, too.
                () = &mut stop => return Ok(()),
            }
            let store = self.tables.store.clone();
            let acknowledged = tokio::task::spawn_blocking(move || store.acknowledge_restart());
            if let Ok(Err(error)) = acknowledged.await {
                tracing::warn!(%error, "the next start will be silent again");
            }
        }
        let mut builder = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            builder = builder.tls_config(tls.for_server())?;
        }
        let (health, health_service) = tonic_health::server::health_reporter();
        let tables = self.tables;
        let following = condition::follow(tables.store.clone(), health.clone());
        let stopping = async {
            stop.await;
            health.set_not_serving::<BigtableServer<Data>>().await;
        };
        let serving = builder
            .http2_keepalive_interval(Some(KEEPALIVE))
            .concurrency_limit_per_connection(CONNECTION_REQUESTS_MAX)
            .max_concurrent_streams(CONNECTION_STREAMS_MAX)
            .layer(ArrivalLayer::new(ARRIVAL, limits::ARRIVING_BYTES_MAX))
            .layer(authorize)
            .add_service(health_service)
            .add_service(data::service(tables.clone()))
            .add_service(extension::service(tables.clone()))
            .add_service(BigtableTableAdminServer::new(table_admin::TableAdmin(tables.clone())))
            .add_service(BigtableInstanceAdminServer::new(instance_admin::InstanceAdmin(tables)))
            .add_service(OperationsServer::new(instance_admin::Operations))
            .serve_with_incoming_shutdown(Incoming::new(listener, connections_max), stopping);
        tokio::select! {
            served = serving => Ok(served?),
            why = following => Err(ServeError::Halted(why)),
        }
    }
}

/// Serving has failed, or could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A setting is wrong; the message says what to do.
    #[error(transparent)]
    Settings(#[from] cluster_net::Error),
    /// The listener is of no use: choose another address.
    #[error("the listener is of no use ({0}): choose another address or port")]
    Listener(#[from] std::io::Error),
    /// The store has halted: it cannot say any more what its disk holds. End the process, check the
    /// disk, and start it again.
    #[error("the store has halted: {0}; check the disk, then start the server again")]
    Halted(String),
    /// The transport failed.
    #[error("serving failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}
