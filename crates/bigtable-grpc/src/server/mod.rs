//! Implements a durable server of google.bigtable.v2 on one machine, over the embedded engine.
//!
//! ```text
//!   data.rs            ReadRows (read_rows, row_set, chunks)   SampleRowKeys (sample)
//!                      MutateRow(s) (mutate)   CheckAndMutateRow (check)
//!                      ReadModifyWriteRow (modify)
//!   administration.rs  backups, for an administrator
//!   extension.rs       several CheckAndMutateRow in one request, for clients of this project; and
//!                      several reads (read_each)
//!   table_admin.rs     tables and families      instance_admin.rs   the instance, static
//!        |
//!   tables.rs          the tables and their schemas (schema.rs), durable
//!   collect.rs         applies garbage collection rules (rules.rs) in the background
//!        |
//!   condition.rs       log and health while the store takes no writes
//!        |
//!   layout.rs          families and columns of the API as families and columns of the engine
//!        |
//!   bigtable-fjall     rows, atomic changes of one row, durability
//! ```
//!
//! Invariants: a failed change of a row has changed nothing, unless its status is UNKNOWN, or
//! CANCELLED because the client's time was over. An acknowledged change is durable to the store's
//! level. The server checks a limit before it allocates memory for a request. Parts of the API
//! that it lacks answer UNIMPLEMENTED.
//!
//! The server lacks:
//!
//! * Replication.
//! * Access control by table. Every client that may connect may do everything.
//! * Times of cells beyond the year 287,396.

mod administration;
mod check;
mod chunks;
mod collect;
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
pub(crate) mod rules;
mod sample;
mod schema;
mod status;
mod table_admin;
mod tables;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bigtable::{Store as _, Syncing};
use bigtable_fjall::{FjallStore, Options};
use cluster_net::{ArrivalLayer, Incoming, Role, Tls, check_peer, check_plaintext};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::service::InterceptorLayer;
use tonic_health::ServingStatus;

use crate::identity::Named;
use crate::proto::admin::bigtable_instance_admin_server::BigtableInstanceAdminServer;
use crate::proto::admin::bigtable_table_admin_server::BigtableTableAdminServer;
use crate::proto::longrunning::operations_server::OperationsServer;
pub use tables::CATALOG_TABLE;
use tables::Tables;

/// Most requests of one connection that the server works on at a time.
const CONNECTION_REQUESTS_MAX: usize = 256;
/// Most streams of one connection.
const CONNECTION_STREAMS_MAX: u32 = 1024;
/// Time of silence after which the server pings a client.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Longest time for a request to arrive completely.
const ARRIVAL: Duration = Duration::from_secs(60);
/// The peers that a server with certificates serves: clients, oracles, which keep a record in a
/// table, and administrators.
const SERVED: [Role; 3] = [Role::Client, Role::Oracle, Role::Admin];

/// The options of a listening server.
///
/// ```
/// let options = bigtable_grpc::ServeOptions::default();
/// assert!(options.tls.is_none() && !options.plaintext_beyond_loopback);
/// ```
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Certificates for mutual TLS. The server's must name `table.percolator.internal`, a
    /// client's `client.percolator.internal` or `oracle.percolator.internal`. `None` means
    /// plain text. Default: `None`.
    pub tls: Option<Tls>,
    /// Allows plain text on an address that other machines can reach. Every program that
    /// reaches it may then use the server. Default: `false`.
    pub plaintext_beyond_loopback: bool,
    /// Most connections at a time. The server closes further ones at once. Default: 1,000
    /// connections.
    pub connections_max: usize,
    /// The directory in which the server makes backups of its store if an administrator asks for
    /// one ([`GrpcStore::backup`](crate::GrpcStore::backup)). In plain text, every program that
    /// reaches the server may ask. `None` refuses all of them. Default: `None`.
    pub backups: Option<PathBuf>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        ServeOptions {
            tls: None,
            plaintext_beyond_loopback: false,
            connections_max: 1000,
            backups: None,
        }
    }
}

/// The server with its open tables.
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
    /// Time after the start during which the server answers nothing.
    silence: Duration,
}

impl Server {
    /// Opens the store in `dir`, and creates it if it does not exist.
    ///
    /// # Errors
    /// * [`bigtable::Error::InUse`] if another process has the directory open.
    /// * [`bigtable::Error::Files`] if the files cannot be used. The message says what to do.
    /// * An error of a mutation, from removing the rest of an interrupted deletion.
    pub async fn open(dir: impl AsRef<Path>, options: Options) -> bigtable::Result<Server> {
        Server::over(FjallStore::open(dir, options)?).await
    }

    /// Serves a store that is already open.
    ///
    /// # Errors
    /// Reading the catalog may fail. Removing the rest of an interrupted deletion may fail as
    /// any mutation does.
    pub async fn over(store: FjallStore) -> bigtable::Result<Server> {
        let silence = if store.restarted() { Syncing::SILENCE } else { Duration::ZERO };
        Ok(Server { tables: Arc::new(Tables::open(store).await?), silence })
    }

    /// The full names of the server's tables, sorted: `projects/P/instances/I/tables/T`.
    pub async fn table_names(&self) -> Vec<String> {
        let schemas = self.tables.schemas("").await;
        schemas.iter().map(|schema| schema.record.name.clone()).collect()
    }

    /// The time for which [`serve_with`](Server::serve_with) answers nothing at first: zero, or 2.4
    /// seconds.
    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// Serves in plain text on this machine, like [`serve_with`](Server::serve_with).
    ///
    /// # Errors
    /// The same as for [`serve_with`](Server::serve_with).
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        self.serve_with(listener, ServeOptions::default(), stop).await
    }

    /// Serves until `stop` completes. Then it takes no more requests, finishes those that run,
    /// and returns. A client that does not read its answers may delay the end. If you need to
    /// end in time, drop the future.
    ///
    /// The server may first answer nothing for 2.4 seconds: if the machine was restarted while
    /// the store had unsynced changes. A renewed lease may be among the lost changes, and every
    /// such lease expires in that time. If the server ends before that, it is silent again at
    /// the next start.
    ///
    /// # Errors
    /// * [`ServeError::Settings`] for plain text beyond this machine that the options do not
    ///   allow.
    /// * [`ServeError::Transport`] for a failure of the network that concerns all connections.
    /// * [`ServeError::Listener`] for an unusable listener.
    /// * [`ServeError::Halted`] if the disk fails, so that the store cannot answer any more.
    pub async fn serve_with(
        self,
        listener: TcpListener,
        options: ServeOptions,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (stop_now, stopped) = oneshot::channel();
        let mut serving = self.serving(listener, options, stopped);
        tokio::select! {
            served = &mut serving => return served,
            () = stop => drop(stop_now),
        }
        serving.await
    }

    /// Returns the future of [`serve_until`](Self::serve_until) in a box.
    ///
    /// So the code of the server and its transport is compiled once, in this crate. Otherwise
    /// each program would compile it again for each of its kinds of `stop`.
    fn serving(
        self,
        listener: TcpListener,
        options: ServeOptions,
        stopped: oneshot::Receiver<Infallible>,
    ) -> BoxFuture<'static, Result<(), ServeError>> {
        self.serve_until(listener, options, stopped).boxed()
    }

    /// Serves until the sender of `stopped` is dropped.
    async fn serve_until(
        self,
        listener: TcpListener,
        options: ServeOptions,
        mut stopped: oneshot::Receiver<Infallible>,
    ) -> Result<(), ServeError> {
        let ServeOptions { tls, plaintext_beyond_loopback, connections_max, backups } = options;
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
        if !self.silence.is_zero() {
            tracing::warn!(
                silence = ?self.silence,
                "the machine restarted: the server waits until all leases have expired before it \
                 answers"
            );
            tokio::select! {
                () = tokio::time::sleep(self.silence) => {}
                // Not acknowledged, so the next start is silent too.
                _ = &mut stopped => return Ok(()),
            }
            let store = self.tables.store.clone();
            let acknowledged = tokio::task::spawn_blocking(move || store.acknowledge_restart());
            if let Ok(Err(error)) = acknowledged.await {
                tracing::warn!(
                    %error,
                    "the restart could not be recorded: the next start waits again until leases \
                     have expired"
                );
            }
        }
        let incoming = Incoming::new(listener, connections_max, tls);
        let (health, health_service) = tonic_health::server::health_reporter();
        let tables = self.tables;
        let following = condition::follow(tables.store.clone(), health.clone());
        let collecting = collect::follow(tables.clone());
        let stopping = async {
            let _ = stopped.await;
            condition::set(&health, ServingStatus::NotServing).await;
        };
        let serving = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .concurrency_limit_per_connection(CONNECTION_REQUESTS_MAX)
            .max_concurrent_streams(CONNECTION_STREAMS_MAX)
            .layer(ArrivalLayer::new(ARRIVAL, limits::ARRIVING_BYTES_MAX))
            .layer(authorize)
            .add_service(health_service)
            .add_service(data::service(tables.clone()))
            .add_service(extension::service(tables.clone()))
            .add_service(administration::service(tables.clone(), backups, certified))
            .add_service(BigtableTableAdminServer::new(table_admin::TableAdmin(tables.clone())))
            .add_service(BigtableInstanceAdminServer::new(instance_admin::InstanceAdmin(tables)))
            .add_service(OperationsServer::new(instance_admin::Operations))
            .serve_with_incoming_shutdown(incoming, stopping);
        tokio::select! {
            served = serving => Ok(served?),
            why = following => Err(ServeError::Halted(why)),
            never = collecting => match never {},
        }
    }
}

/// The error of a server that stopped serving, or could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A setting is wrong. The message says what to do.
    #[error(transparent)]
    Settings(#[from] cluster_net::Error),
    /// The listener is unusable. Choose another address or port.
    #[error("the server cannot use the listener ({0}): choose another address or port")]
    Listener(#[from] std::io::Error),
    /// The store has halted, because it no longer knows what its disk holds. End the process,
    /// check the disk, and start it again.
    #[error("the store has halted: {0}; check the disk, then start the server again")]
    Halted(String),
    /// The transport failed.
    #[error("serving failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}
