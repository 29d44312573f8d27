//! Reads the records of oracles in a store that no process serves, and raises the timestamps in
//! them. Both take over from the oracles and so change their records. So the store must be a
//! stand-in or a new one.
//!
//! An oracle's record bounds the timestamps that the oracle has issued. An embedded database has
//! one record; each database among a table server's tables has its own.

use anyhow::Context as _;
use bigtable::{Store, Timestamp};
use bigtable_fjall::FjallStore;
use bigtable_grpc::{CATALOG_TABLE, ClientOptions, GrpcStore, Server};
use percolator::admin::Incarnation;
use percolator::cluster::{Oracle, WindowOracle};
use percolator::store::SYSTEM_TABLE;
use rand::random;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The oracles' records of a store, taken together.
#[derive(Debug, Clone, Copy)]
pub(in crate::cmd) struct Records {
    /// The highest timestamp that was handed out.
    pub(in crate::cmd) issued: Timestamp,
    /// Whether the store is an embedded database. In a table server's store, other tables may
    /// have other timestamps.
    pub(in crate::cmd) embedded: bool,
}

/// Reads the records; `None` if there is none. This takes over from their oracles, so the store
/// must be a stand-in or a new one.
pub(in crate::cmd) async fn read(store: FjallStore) -> anyhow::Result<Option<Records>> {
    with_databases(store, async |databases, embedded| {
        Ok(highest(databases).await?.map(|issued| Records { issued, embedded }))
    })
    .await
}

/// Raises each record, so that new timestamps are above `to`.
pub(in crate::cmd) async fn raise(store: FjallStore, to: Timestamp) -> anyhow::Result<()> {
    with_databases(store, async |databases, _| raise_each(databases, to).await).await
}

/// Raises each record far above the highest of them, and returns them as they are then; `None` if
/// there is none.
pub(in crate::cmd) async fn raise_far(store: FjallStore) -> anyhow::Result<Option<Records>> {
    with_databases(store, async |databases, embedded| {
        let Some(highest) = highest(databases).await? else { return Ok(None) };
        let issued = WindowOracle::far_above(highest)?;
        raise_each(databases, issued).await?;
        Ok(Some(Records { issued, embedded }))
    })
    .await
}

async fn highest(databases: &[Box<dyn Store>]) -> anyhow::Result<Option<Timestamp>> {
    let mut highest = None;
    for database in databases {
        let issued = WindowOracle::open(&**database, fresh()).await?.peek().await?;
        highest = highest.max(Some(issued));
    }
    Ok(highest)
}

async fn raise_each(databases: &[Box<dyn Store>], to: Timestamp) -> anyhow::Result<()> {
    for database in databases {
        WindowOracle::raise(&**database, fresh(), to).await?;
    }
    Ok(())
}

fn fresh() -> Incarnation {
    Incarnation(random())
}

/// Calls `work` with the databases of a store, and with whether the store itself is one. Serves a
/// table server's store in this process meanwhile.
async fn with_databases<T>(
    store: FjallStore,
    work: impl AsyncFnOnce(&[Box<dyn Store>], bool) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let names = store.table_names().await?;
    let has = |table: &str| names.iter().any(|name| name == table);
    if has(SYSTEM_TABLE) {
        return work(&[Box::new(store)], true).await;
    }
    if !has(CATALOG_TABLE) {
        return work(&[], false).await;
    }
    let server = Server::over(store).await?;
    let record = format!("/tables/{SYSTEM_TABLE}");
    let names = server.table_names().await;
    let instances: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(&record)).collect();
    if instances.is_empty() {
        return work(&[], false).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listening on this machine")?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = server.serve(listener, async {
        // A message and a dropped sender both mean that the work has ended.
        let _ = stopped.await;
    });
    let working = async {
        let _stop = stop;
        let mut databases: Vec<Box<dyn Store>> = Vec::new();
        for instance in instances {
            let path = instance.replacen("projects/", "", 1).replacen("/instances/", "/", 1);
            let address = format!("bigtable://{address}/{path}").parse()?;
            databases.push(Box::new(GrpcStore::open(&address, ClientOptions::default()).await?));
        }
        work(&databases, false).await
    };
    let (served, done) = tokio::join!(serving, working);
    // If the server fails, its error is the cause of the errors of its clients.
    served?;
    done
}
