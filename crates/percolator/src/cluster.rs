//! A database that several processes work on: one store, oracle processes, and a lock service.

use std::sync::Arc;
use std::time::Duration;

use bigtable::Store;
use bigtable_grpc::{ClientOptions, GrpcStore};
use percolator_core::{Client, GcOptions, LockService, Options, Runtime, Services, TableLocks};
use percolator_rpc::etcd::{EtcdLocks, EtcdOptions};
use percolator_rpc::oracle::{RemoteOracle, RemoteOracleOptions};
use percolator_rpc::{Address, Error, Tls};

use crate::{Config, Percolator, TokioRuntime};

/// Where the services of a cluster are. Every process that works on the store must be given the
/// same oracles and the same lock service.
///
/// ```
/// # use std::sync::Arc;
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator::{Cluster, Column, OracleNode, OracleOptions, Percolator, TokioRuntime};
/// # use percolator_rpc::oracle::OracleServer;
/// # let store = Arc::new(bigtable::MemoryStore::new());
/// # let runtime = Arc::new(TokioRuntime::current());
/// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let address = listener.local_addr()?;
/// # let node = OracleNode::new(store.clone(), runtime, OracleOptions::default())?;
/// # let _server = OracleServer::start(Arc::new(node), listener, Default::default())?;
/// let cluster = Cluster::new(vec![address.to_string().parse()?]);
/// let db = Percolator::connect(store.clone(), cluster.clone()).await?;
/// let other = Percolator::connect(store, cluster).await?;
/// let (table, bal) = (db.table("accounts").await?, Column::literal("bal"));
/// db.transact(async |mut tx| tx.set(&table, "Bob", &bal, "$10")).await?;
/// let seen = other.snapshot().await?.get(&other.table("accounts").await?, "Bob", &bal).await?;
/// assert_eq!(seen.as_deref(), Some(&b"$10"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The oracle processes (`percolator serve oracle`), in the order in which they are tried.
    pub oracles: Vec<Address>,
    /// How patient callers of the oracle are. Its `tls` is overridden by that of the cluster.
    pub oracle: RemoteOracleOptions,
    /// Where liveness tokens and advisory locks are.
    pub locks: Locks,
    /// Certificates shown to the oracles; plain text without.
    pub tls: Option<Tls>,
    /// The client's own options.
    pub client: Options,
    /// How old versions are collected in the background; `None` leaves it to other processes.
    pub gc: Option<GcOptions>,
}

/// The lock service of a cluster.
///
/// See [`Cluster`].
#[derive(Debug, Clone)]
pub enum Locks {
    /// In the store itself: no further service.
    Table {
        /// How long after a process's death others take it for dead.
        lifetime: Duration,
    },
    /// In an etcd cluster.
    Etcd {
        /// Its members.
        members: Vec<Address>,
        /// The keys' prefix, which must differ from store to store, and the lifetime of tokens.
        options: EtcdOptions,
        /// Whether it is spoken to with the cluster's certificates, in place of plain text.
        tls: bool,
    },
}

impl Cluster {
    /// A cluster with its locks in the store, in plain text.
    pub fn new(oracles: Vec<Address>) -> Self {
        Cluster {
            oracles,
            oracle: RemoteOracleOptions::default(),
            locks: Locks::Table { lifetime: TableLocks::LIFETIME },
            tls: None,
            client: Options::over_network(),
            gc: Some(GcOptions::default()),
        }
    }
}

impl Config {
    /// Opens the store that is named.
    ///
    /// # Errors
    /// [`Error::Invalid`](percolator_core::Error::Invalid) for settings that cannot be; those of
    /// the store.
    pub async fn open_store(&self) -> Result<Arc<dyn Store>, percolator_core::Error> {
        let options = ClientOptions {
            tls: self.tls()?,
            plaintext_beyond_loopback: self.is_insecure(),
            batch_delay: self.batch_delay()?,
            ..ClientOptions::default()
        };
        Ok(Arc::new(GrpcStore::open(&self.store()?, options).await?))
    }
}

impl Percolator {
    /// The database that settings describe: store, oracles and lock service are other processes.
    /// Whoever has observers of their own runs them here as in any other database, in as many
    /// processes as they want.
    ///
    /// ```no_run
    /// # async fn example(registrations: Vec<percolator::Registration>) -> percolator::Result<()> {
    /// use percolator::{Config, Percolator, WorkerOptions};
    /// let db = Percolator::from_config(&Config::load()?).await?;
    /// let workers = db.observe(registrations, WorkerOptions::default()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Percolator::connect), and those of opening the store.
    pub async fn from_config(config: &Config) -> Result<Self, percolator_core::Error> {
        let cluster = config.cluster()?;
        Self::connect(config.open_store().await?, cluster).await
    }

    /// A database over a store that other processes use, too. Runs in the current tokio runtime.
    ///
    /// # Errors
    /// [`Error::Invalid`](percolator_core::Error::Invalid) for settings that cannot be; those of
    /// the store and of the lock service. Whether an oracle answers shows with the first
    /// transaction.
    pub async fn connect(
        store: Arc<dyn Store>,
        cluster: Cluster,
    ) -> Result<Self, percolator_core::Error> {
        let invalid = |error: Error| percolator_core::Error::Invalid(error.to_string());
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
        let options = RemoteOracleOptions { tls: cluster.tls.clone(), ..cluster.oracle };
        let oracle = Arc::new(RemoteOracle::new(cluster.oracles, options).map_err(invalid)?);
        let locks: Arc<dyn LockService> = match cluster.locks {
            Locks::Table { lifetime } => {
                Arc::new(TableLocks::open(&*store, runtime.clone(), lifetime).await?)
            }
            Locks::Etcd { members, options, tls: false } => {
                Arc::new(EtcdLocks::new(members, options).map_err(invalid)?)
            }
            Locks::Etcd { members, options, tls: true } => {
                let none = "locks.tls: there are no certificates; give tls.authority, tls.certificate \
                            and tls.key";
                let tls = cluster
                    .tls
                    .as_ref()
                    .ok_or_else(|| percolator_core::Error::Invalid(none.to_owned()))?;
                Arc::new(EtcdLocks::with_tls(members, options, tls).map_err(invalid)?)
            }
        };
        let services = Services { store, oracle, locks, runtime };
        let client = Client::open(services, cluster.client).await?;
        if let Some(gc) = &cluster.gc {
            client.check_retention(gc.retention)?;
        }
        Ok(Self::of_cluster(client, cluster.gc))
    }
}
