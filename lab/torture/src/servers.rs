//! Finds the processes of an HBase cluster on this machine, and kills them.

use std::io;

use bigtable_hbase::{HbaseServer, HbaseStore};

use crate::victim::kill_process;

/// The servers of an HBase cluster with their processes, as the cluster names them.
///
/// ```no_run
/// # async fn example(store: bigtable_hbase::HbaseStore) -> bigtable_hbase::Result<()> {
/// let servers = percolator_torture::Servers::of(&store).await?;
/// println!("HBase {}, {} region servers", servers.version, servers.region_servers.len());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Servers {
    /// HBase's version.
    pub version: String,
    /// Whether the balancer moves regions.
    pub balancer: bool,
    /// The active master.
    pub master: ServerProcess,
    /// The region servers that live.
    pub region_servers: Vec<ServerProcess>,
}

/// A server, and the number of its process.
#[derive(Debug, Clone)]
pub struct ServerProcess {
    /// The server.
    pub server: HbaseServer,
    /// The number of its process.
    pub id: u32,
}

impl Servers {
    /// Asks the cluster for its servers, and each server for its process.
    ///
    /// # Errors
    /// `Unavailable` if the master or one of the servers does not answer.
    pub async fn of(store: &HbaseStore) -> bigtable_hbase::Result<Self> {
        let cluster = store.cluster().await?;
        let mut region_servers = Vec::new();
        for server in cluster.servers {
            region_servers.push(ServerProcess { id: store.process_id(&server).await?, server });
        }
        let id = store.process_id(&cluster.master).await?;
        let master = ServerProcess { id, server: cluster.master };
        let (version, balancer) = (cluster.version, cluster.balancer);
        Ok(Servers { version, balancer, master, region_servers })
    }

    /// Describes the cluster, a server a line.
    pub fn lines(&self) -> String {
        let balancer = if self.balancer { "on" } else { "off" };
        let mut text = format!("HBase {}, balancer {balancer}", self.version);
        text += &format!("\nmaster {}, process {}", self.master.server.address, self.master.id);
        for of in &self.region_servers {
            text += &format!("\nregion server {}", of.line());
        }
        text
    }
}

impl ServerProcess {
    /// Describes the server.
    pub fn line(&self) -> String {
        let ServerProcess { server, id } = self;
        let meta = if server.has_meta { ", with hbase:meta" } else { "" };
        format!("{}, process {id}, {} regions{meta}", server.address, server.regions)
    }

    /// Kills the process with SIGKILL.
    ///
    /// # Errors
    /// The errors of killing. [`NotFound`](io::ErrorKind::NotFound) if this machine has no such
    /// process.
    pub fn kill(&self) -> io::Result<()> {
        let ServerProcess { server, id } = self;
        let none = || {
            let what = format!("server {} has no process {id} on this machine", server.address);
            io::Error::new(io::ErrorKind::NotFound, what)
        };
        let id = i32::try_from(*id).map_err(|_| none())?;
        if kill_process(id)? { Ok(()) } else { Err(none()) }
    }
}
