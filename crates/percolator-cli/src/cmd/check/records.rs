//! Reads and raises the oracles' records of a store that no process serves. An embedded database
//! has one record; each database among a table server's tables has its own.

use anyhow::Context as _;
use bigtable::{Store, Timestamp};
use bigtable_fjall::FjallStore;
use bigtable_grpc::{ClientOptions, GrpcStore, Server};
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
    if is_database(&store).await? {
        return Ok(Some(Records { issued: last_issued(&store).await?, embedded: true }));
    }
    served(store, async |databases| {
        let mut highest = None;
        for database in databases {
            highest = highest.max(Some(last_issued(database).await?));
        }
        Ok(highest.map(|issued| Records { issued, embedded: false }))
    })
    .await
}

/// Raises each record, so that new timestamps are above `to`.
pub(in crate::cmd) async fn raise(store: FjallStore, to: Timestamp) -> anyhow::Result<()> {
    if is_database(&store).await? {
        return Ok(WindowOracle::raise(&store, fresh(), to).await?);
    }
    served(store, async |databases| {
        for database in databases {
            WindowOracle::raise(database, fresh(), to).await?;
        }
        Ok(())
    })
    .await
}

fn fresh() -> Incarnation {
    Incarnation(random())
}

pub(in crate::cmd) async fn is_database(store: &FjallStore) -> anyhow::Result<bool> {
    Ok(store.table_names().await?.iter().any(|name| name == SYSTEM_TABLE))
}

async fn last_issued(store: &dyn Store) -> anyhow::Result<Timestamp> {
    Ok(WindowOracle::open(store, fresh()).await?.peek().await?)
}

/// Serves a table server's store in this process while `work` uses its databases.
async fn served<T>(
    store: FjallStore,
    work: impl AsyncFnOnce(&[GrpcStore]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let server = Server::over(store).await?;
    let record = format!("/tables/{SYSTEM_TABLE}");
    let names = server.table_names().await;
    let instances: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(&record)).collect();
    if instances.is_empty() {
        return work(&[]).await;
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
        let mut databases = Vec::new();
        for instance in instances {
            let path = instance.replacen("projects/", "", 1).replacen("/instances/", "/", 1);
            let address = format!("bigtable://{address}/{path}").parse()?;
            databases.push(GrpcStore::open(&address, ClientOptions::default()).await?);
        }
        work(&databases).await
    };
    let (served, done) = tokio::join!(serving, working);
    // If the server fails, its error is the cause of the errors of its clients.
    served?;
    done
}
