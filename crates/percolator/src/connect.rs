//! Connects to a database that several processes share: one store, several oracle processes,
//! and a lock service.
//!
//! Every process must use the same oracles and the same lock service. With different lock
//! services, each process would believe the clients of the others dead.

use std::sync::Arc;
use std::time::Duration;

use bigtable::Store;
use bigtable_grpc::{BackedUp, ClientOptions, GrpcStore};
use percolator_core::{Client, GcOptions, LockService, Options, ProcessInfo, Runtime};
use percolator_core::{Services, TableLocks};
#[cfg(feature = "etcd")]
use percolator_rpc::etcd::{EtcdLocks, EtcdOptions};
use percolator_rpc::oracle::{RemoteOracle, RemoteOracleOptions};
use percolator_rpc::{Address, Error, Tls};

use crate::Percolator;
use crate::config::Config;
use crate::process::this_process;
use crate::tokio_runtime::TokioRuntime;

/// The addresses and options of a cluster's services. Every process that uses the store must
/// have the same oracles and the same lock service. Needs the feature `cluster`.
///
/// ```
/// # use std::sync::Arc;
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use percolator::cluster::{Cluster, OracleNode, OracleOptions};
/// use percolator::runtime::TokioRuntime;
/// use percolator::{Column, Percolator};
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
    /// The oracle processes (`percolator serve oracle`), in the order in which clients try
    /// them.
    pub oracles: Vec<Address>,
    /// The options of requests to the oracle, such as deadlines. [`Cluster::tls`] replaces its
    /// `tls`.
    pub oracle: RemoteOracleOptions,
    /// The service that holds liveness tokens and advisory locks.
    pub locks: Locks,
    /// Certificates for connections to the oracles. `None` means plain text.
    pub tls: Option<Tls>,
    /// The client's options.
    pub client: Options,
    /// How old versions are collected in the background. `None` leaves that to other
    /// processes.
    pub gc: Option<GcOptions>,
    /// The description of this process in its status row. The status rows show all processes
    /// of a cluster in one place. The client writes its row every ten seconds: at most 1 KiB,
    /// without a timestamp and without a sync.
    pub process: ProcessInfo,
}

/// The lock service of a cluster. Needs the feature `cluster`.
///
/// ```
/// use std::time::Duration;
/// use percolator::cluster::{Cluster, Locks};
/// let mut cluster = Cluster::new(vec!["10.0.0.1:7070".parse()?]);
/// cluster.locks = Locks::table(Duration::from_secs(30));
/// # Ok::<(), percolator::cluster::rpc::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Locks(pub(crate) LocksIn);

#[derive(Debug, Clone)]
pub(crate) enum LocksIn {
    Table {
        lifetime: Duration,
    },
    #[cfg(feature = "etcd")]
    Etcd {
        members: Vec<Address>,
        options: EtcdOptions,
        tls: bool,
    },
}

impl Locks {
    /// The lock service in the store itself, which needs no further process. Other processes
    /// believe a process dead if it has not renewed its liveness token for `lifetime`, which is 100
    /// ms to 600 s.
    pub fn table(lifetime: Duration) -> Self {
        Locks(LocksIn::Table { lifetime })
    }

    /// The lock service in an etcd cluster with these members, in plain text. Needs the
    /// feature `etcd`. The options hold the prefix of the keys, which must be different for
    /// each store, and the lifetime of liveness tokens.
    ///
    /// ```
    /// use percolator::cluster::Locks;
    /// use percolator::cluster::rpc::etcd::EtcdOptions;
    /// let locks = Locks::etcd(vec!["10.0.0.1:2379".parse()?], EtcdOptions::default());
    /// # Ok::<(), percolator::cluster::rpc::Error>(())
    /// ```
    #[cfg(feature = "etcd")]
    pub fn etcd(members: Vec<Address>, options: EtcdOptions) -> Self {
        Locks(LocksIn::Etcd { members, options, tls: false })
    }

    /// Like [`etcd`](Locks::etcd), with the certificates of [`Cluster::tls`]. Needs the
    /// feature `etcd`.
    #[cfg(feature = "etcd")]
    pub fn etcd_with_tls(members: Vec<Address>, options: EtcdOptions) -> Self {
        Locks(LocksIn::Etcd { members, options, tls: true })
    }
}

impl Cluster {
    /// Creates a cluster that keeps its locks in the store and connects in plain text.
    pub fn new(oracles: Vec<Address>) -> Self {
        Cluster {
            oracles,
            oracle: RemoteOracleOptions::default(),
            locks: Locks::table(TableLocks::LIFETIME),
            tls: None,
            client: Options::over_network(),
            gc: Some(GcOptions::default()),
            process: this_process("client"),
        }
    }
}

impl Config {
    /// Opens the store that the settings name. Needs the feature `cluster`.
    ///
    /// # Errors
    /// [`Error::Invalid`](percolator_core::Error::Invalid) for settings that are wrong, and
    /// errors of the store.
    pub async fn open_store(&self) -> Result<Arc<dyn Store>, percolator_core::Error> {
        Ok(self.store()?.open(self.store_options()?).await?)
    }

    /// Examines the store that the settings name, as
    /// [`StoreAddress::examine`](crate::cluster::StoreAddress::examine) does. Needs the feature
    /// `cluster`.
    ///
    /// # Errors
    /// As [`open_store`](Config::open_store).
    pub async fn examine_store(&self) -> Result<Vec<bigtable::Finding>, percolator_core::Error> {
        Ok(self.store()?.examine(self.store_options()?).await?)
    }

    /// Asks the table server of the settings for a backup of its store, on its own machine. Needs
    /// the feature `cluster`. `name` is a directory in the server's directory of backups, which
    /// `percolator serve table --backups DIR` names. If the settings name certificates, this
    /// process's must name `admin.percolator.internal`.
    ///
    /// ```no_run
    /// # async fn example() -> percolator::Result<()> {
    /// use percolator::cluster::Config;
    /// let made = Config::load()?.backup("weekly").await?;
    /// println!("{} files, {} bytes", made.files, made.bytes);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](percolator_core::Error::Invalid) for settings that are wrong, and the
    /// errors of [`GrpcStore::backup`] as [`Error::Store`](percolator_core::Error::Store).
    ///
    /// # Cancellation
    /// The server goes on with the backup.
    pub async fn backup(&self, name: &str) -> Result<BackedUp, percolator_core::Error> {
        let store = self.store()?;
        let Some(address) = store.of_bigtable() else {
            return Err(percolator_core::Error::invalid(
                percolator_core::InvalidKind::Options,
                format!(
                    "{store} cannot be backed up in this way, only a table server can: use the \
                     store's own backup, or `percolator export`"
                ),
            ));
        };
        let store = GrpcStore::open(address, self.store_options()?).await?;
        Ok(store.backup(name).await?)
    }

    fn store_options(&self) -> Result<ClientOptions, percolator_core::Error> {
        Ok(ClientOptions {
            tls: self.tls()?,
            plaintext_beyond_loopback: self.is_insecure(),
            batch_delay: self.batch_delay()?,
            ..ClientOptions::default()
        })
    }
}

impl Percolator {
    /// Connects to the database that the settings describe. Its store, its oracles and its
    /// lock service run in other processes. Needs the feature `cluster`. Observers run here as
    /// in any other database, in as many processes as you start.
    ///
    /// ```no_run
    /// # async fn example(registrations: Vec<percolator::Registration>) -> percolator::Result<()> {
    /// use percolator::cluster::Config;
    /// use percolator::{Percolator, WorkerOptions};
    /// let db = Percolator::from_config(&Config::load()?).await?;
    /// let workers = db.observe(registrations, WorkerOptions::default()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Percolator::connect), and errors of opening the store.
    pub async fn from_config(config: &Config) -> Result<Self, percolator_core::Error> {
        let cluster = config.cluster()?;
        Self::connect(config.open_store().await?, cluster).await
    }

    /// Connects to a database whose store other processes use, too. Runs in the current tokio
    /// runtime. Needs the feature `cluster`.
    ///
    /// # Errors
    /// [`Error::Invalid`](percolator_core::Error::Invalid) for settings that are wrong, and
    /// errors of the store and of the lock service. An oracle that does not answer is reported
    /// by the first transaction.
    pub async fn connect(
        store: Arc<dyn Store>,
        cluster: Cluster,
    ) -> Result<Self, percolator_core::Error> {
        let invalid = |error: Error| {
            percolator_core::Error::invalid(
                percolator_core::InvalidKind::Options,
                error.to_string(),
            )
        };
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
        let options = RemoteOracleOptions { tls: cluster.tls.clone(), ..cluster.oracle };
        let oracle = Arc::new(RemoteOracle::new(cluster.oracles, options).map_err(invalid)?);
        let locks: Arc<dyn LockService> = match cluster.locks.0 {
            LocksIn::Table { lifetime } => {
                Arc::new(TableLocks::open(&*store, runtime.clone(), lifetime).await?)
            }
            #[cfg(feature = "etcd")]
            LocksIn::Etcd { members, options, tls: false } => {
                Arc::new(EtcdLocks::new(members, options).map_err(invalid)?)
            }
            #[cfg(feature = "etcd")]
            LocksIn::Etcd { members, options, tls: true } => {
                let none = "locks.tls is true, but there are no certificates; give tls.authority, \
                            tls.certificate and tls.key";
                let tls = cluster.tls.as_ref().ok_or_else(|| {
                    percolator_core::Error::invalid(percolator_core::InvalidKind::Options, none)
                })?;
                Arc::new(EtcdLocks::with_tls(members, options, tls).map_err(invalid)?)
            }
        };
        let services = Services { store, oracle, locks, runtime };
        let client = Client::open(services, cluster.client).await?;
        if let Some(gc) = &cluster.gc {
            client.check_retention(gc.retention)?;
        }
        client.publish_status(cluster.process);
        Ok(Self::of_cluster(client, cluster.gc))
    }
}
