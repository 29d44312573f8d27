//! Finds the processes of an HBase cluster on this machine, and kills them.

use std::io;

use bigtable_hbase::{HbaseProcess, HbaseServer, HbaseStore};
use percolator::cluster::this_process;

use crate::victim::kill_process;

/// The word that the command line of a region server has.
const REGION_SERVER: &str = "HRegionServer";
/// So much of another program's command line is shown.
const SHOWN_CHARS: usize = 80;

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

/// A server, and its process.
#[derive(Debug, Clone)]
pub struct ServerProcess {
    /// The server.
    pub server: HbaseServer,
    /// Its process, as the server's web server names it.
    pub process: HbaseProcess,
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
            region_servers.push(ServerProcess { process: store.process(&server).await?, server });
        }
        let process = store.process(&cluster.master).await?;
        let master = ServerProcess { process, server: cluster.master };
        let (version, balancer) = (cluster.version, cluster.balancer);
        Ok(Servers { version, balancer, master, region_servers })
    }

    /// Describes the cluster, a server a line.
    pub fn lines(&self) -> String {
        let balancer = if self.balancer { "on" } else { "off" };
        let mut text = format!("HBase {}, balancer {balancer}", self.version);
        text +=
            &format!("\nmaster {}, process {}", self.master.server.address, self.master.process.id);
        for of in &self.region_servers {
            text += &format!("\nregion server {}", of.line());
        }
        text
    }
}

impl ServerProcess {
    /// Describes the server.
    pub fn line(&self) -> String {
        let ServerProcess { server, process: HbaseProcess { id, .. } } = self;
        let meta = if server.has_meta { ", with hbase:meta" } else { "" };
        format!("{}, process {id}, {} regions{meta}", server.address, server.regions)
    }

    /// Kills the process with SIGKILL, if it is a region server of this machine.
    ///
    /// # Errors
    /// The errors of killing. [`NotFound`](io::ErrorKind::NotFound) if this machine has no such
    /// process. [`InvalidInput`](io::ErrorKind::InvalidInput) if the server runs on another
    /// machine, or if the process is something other than a region server.
    pub fn kill(&self) -> io::Result<()> {
        let id = self.checked_id()?;
        if kill_process(id)? { Ok(()) } else { Err(self.missing()) }
    }

    /// The number of the process, if it is that of a region server of this machine. A cluster
    /// behind a forwarded port, or in a container, has numbers that mean other processes here.
    fn checked_id(&self) -> io::Result<i32> {
        let HbaseProcess { id, host } = &self.process;
        let address = &self.server.address;
        let refused = |why: String| {
            let what = format!("server {address} is not killed: {why}");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        };
        let here = this_process("").host;
        if here.is_empty() || *host != here {
            return Err(refused(format!(
                "its machine is called {host:?}, and this one {here:?}: run the command on the \
                 server's machine, whose name must resolve there (/etc/hosts)"
            )));
        }
        let command = match std::fs::read(format!("/proc/{id}/cmdline")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.missing()),
            command => String::from_utf8_lossy(&command?).replace('\0', " "),
        };
        if !command.contains(REGION_SERVER) {
            let shown: String = command.chars().take(SHOWN_CHARS).collect();
            return Err(refused(format!(
                "process {id} of this machine is no {REGION_SERVER} but {shown:?}: run the command \
                 where the server's processes are visible, outside of containers"
            )));
        }
        i32::try_from(*id).map_err(|_| self.missing())
    }

    fn missing(&self) -> io::Error {
        let ServerProcess { server, process: HbaseProcess { id, .. } } = self;
        let what = format!(
            "server {} is not killed: there is no process {id} on this machine; the server may have \
             ended, so ask for the cluster's servers again",
            server.address
        );
        io::Error::new(io::ErrorKind::NotFound, what)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn server(id: u32, host: &str) -> ServerProcess {
        let server = HbaseServer {
            address: "h:16020".to_owned(),
            start_code: 1,
            info_address: None,
            regions: 1,
            has_meta: false,
        };
        ServerProcess { server, process: HbaseProcess { id, host: host.to_owned() } }
    }

    /// Starts a process whose command line has a word, and waits until it runs.
    fn with_word(word: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read -r line", word]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let said = child.stdout.as_mut().expect("its output");
        said.read_exact(&mut [0]).expect("a line");
        child
    }

    #[test]
    fn only_region_servers_of_this_machine_are_killed() {
        let here = this_process("").host;
        let mut other = with_word("HMaster");
        let mut own = with_word("org.apache.hadoop.hbase.regionserver.HRegionServer");
        let refused = server(other.id(), &here).kill().expect_err("another program");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("is no HRegionServer but \"sh -c"), "{refused}");
        let elsewhere = format!("{here}-other");
        let refused = server(own.id(), &elsewhere).kill().expect_err("another machine");
        assert!(refused.to_string().contains("run the command on the"), "{refused}");
        let ended = |of: &mut Child| of.try_wait().expect("its state").is_some();
        assert!(!ended(&mut other) && !ended(&mut own));

        let killed = server(own.id(), &here);
        // The process disappears when its parent has taken its status.
        let parent = std::thread::spawn(move || own.wait());
        killed.kill().expect("a region server of this machine");
        let status = parent.join().expect("no panic").expect("a status");
        assert_eq!(status.code(), None, "a signal ended it");
        let gone = killed.kill().expect_err("it has ended");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        drop(other.stdin.take());
        other.wait().expect("the other one ends by itself");
    }
}
