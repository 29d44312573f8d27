//! Uses a table of PostgreSQL beside the stores: single rows by primary key, prepared
//! statements, a unix socket, and a connection for each caller.

use anyhow::Context as _;
use tokio_postgres::{Client, Statement};
use tpce::postgres::Server;

/// The rows of a table, with a connection for each caller.
pub(super) struct Rows {
    connections: Vec<Connection>,
    sync: bool,
}

struct Connection {
    client: Client,
    get: Statement,
    set: Statement,
}

impl Rows {
    /// Creates a table with empty rows. `sync` says whether a commit waits until it survives a
    /// power cut.
    pub(super) async fn create(
        server: &Server,
        table: &str,
        sync: bool,
        callers: usize,
        keys: &[bigtable::RowKey],
    ) -> anyhow::Result<Self> {
        let mut connections = Vec::with_capacity(callers);
        for _ in 0..callers {
            let client = server.connect().await?;
            if connections.is_empty() {
                let create = format!("CREATE TABLE {table} (k bytea PRIMARY KEY, v bytea)");
                client.batch_execute(&create).await?;
                let keys: Vec<&[u8]> = keys.iter().map(bigtable::RowKey::as_bytes).collect();
                let insert = format!("INSERT INTO {table} (k) SELECT unnest($1::bytea[])");
                client.execute(&insert, &[&keys]).await?;
            }
            let get = client.prepare(&format!("SELECT v FROM {table} WHERE k = $1")).await?;
            let set = client.prepare(&format!("UPDATE {table} SET v = $2 WHERE k = $1")).await?;
            connections.push(Connection { client, get, set });
        }
        Ok(Rows { connections, sync })
    }

    /// Sets the durability of commits from now on. Loading used the server's setting, which
    /// waits for nothing.
    pub(super) async fn loaded(&self) -> anyhow::Result<()> {
        let level = if self.sync { "on" } else { "off" };
        for Connection { client, .. } in &self.connections {
            client.batch_execute(&format!("SET synchronous_commit = {level}")).await?;
        }
        Ok(())
    }

    fn connection(&self, caller: usize) -> anyhow::Result<&Connection> {
        self.connections.get(caller).context("more callers than connections")
    }

    pub(super) async fn get(&self, caller: usize, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        let Connection { client, get, .. } = self.connection(caller)?;
        let row = client.query_opt(get, &[&key]).await?;
        Ok(row.and_then(|row| row.get(0)))
    }

    pub(super) async fn set(&self, caller: usize, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let Connection { client, set, .. } = self.connection(caller)?;
        let changed = client.execute(set, &[&key, &value]).await?;
        anyhow::ensure!(changed == 1, "an update by primary key changed {changed} rows");
        Ok(())
    }
}
