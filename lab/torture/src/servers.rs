//! Finds the processes of an HBase cluster on this machine, and kills or stops them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bigtable_hbase::{HbaseProcess, HbaseServer, HbaseStore};
use percolator::cluster::this_process;

use crate::victim::{Stopped, end_process, kill_process};

/// The beginning of the names of files with the process ids of data nodes.
const DATA_NODE: &str = "datanode-";
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

/// A program of an HBase cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// A master.
    Master,
    /// A region server.
    RegionServer,
    /// A data node of HDFS.
    DataNode,
}

impl Program {
    /// The word that the program's command line has.
    fn class(self) -> &'static str {
        match self {
            Program::Master => "HMaster",
            Program::RegionServer => "HRegionServer",
            Program::DataNode => "DataNode",
        }
    }
}

/// A server, and its process.
#[derive(Debug, Clone)]
pub struct ServerProcess {
    /// The program that the process must run.
    pub program: Program,
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
            let (program, process) = (Program::RegionServer, store.process(&server).await?);
            region_servers.push(ServerProcess { program, process, server });
        }
        let process = store.process(&cluster.master).await?;
        let master = ServerProcess { program: Program::Master, process, server: cluster.master };
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
        let ServerProcess { server, process: HbaseProcess { id, .. }, .. } = self;
        let meta = if server.has_meta { ", with hbase:meta" } else { "" };
        format!("{}, process {id}, {} regions{meta}", server.address, server.regions)
    }

    /// Kills the process with SIGKILL, if it is a process of this machine that runs the program.
    ///
    /// # Errors
    /// The errors of killing. [`NotFound`](io::ErrorKind::NotFound) if this machine has no such
    /// process. [`InvalidInput`](io::ErrorKind::InvalidInput) if the server runs on another
    /// machine, or if the process runs another program.
    pub fn kill(&self) -> io::Result<()> {
        if kill_process(self.checked_id()?)? { Ok(()) } else { Err(self.missing()) }
    }

    /// Asks the process to end by itself, with SIGTERM.
    ///
    /// # Errors
    /// As [`kill`](ServerProcess::kill).
    pub fn end(&self) -> io::Result<()> {
        if end_process(self.checked_id()?)? { Ok(()) } else { Err(self.missing()) }
    }

    /// Has the process stand still until the result is dropped.
    ///
    /// # Errors
    /// As [`kill`](ServerProcess::kill).
    pub fn stop(&self) -> io::Result<Stopped> {
        Stopped::stop(self.checked_id()?)?.ok_or_else(|| self.missing())
    }

    /// The number of the process, if it is one of this machine that runs the program. A cluster
    /// behind a forwarded port, or in a container, has numbers that mean other processes here.
    fn checked_id(&self) -> io::Result<i32> {
        let HbaseProcess { id, host } = &self.process;
        let here = this_process("").host;
        if here.is_empty() || *host != here {
            return Err(refused(
                &self.name(),
                &format!(
                    "its machine is called {host:?}, and this one {here:?}: run the command on the \
                     server's machine, whose name must resolve there (/etc/hosts)"
                ),
            ));
        }
        checked(&self.name(), *id, self.program)
    }

    fn name(&self) -> String {
        format!("server {}", self.server.address)
    }

    fn missing(&self) -> io::Error {
        missing(&self.name(), self.process.id)
    }
}

/// Reads the ids of processes from the files of a directory, as `scripts/hbase.sh` writes them. A
/// process that is being started again has none.
///
/// # Errors
/// The errors of reading the directory.
pub fn process_ids(directory: &Path) -> io::Result<Vec<(PathBuf, u32)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let file = entry?.path();
        let id = std::fs::read_to_string(&file).ok();
        let id = id.and_then(|text| text.trim().parse().ok());
        found.extend(id.map(|id| (file, id)));
    }
    found.sort();
    Ok(found)
}

/// A data node of HDFS on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataNode {
    /// The file with the process id.
    pub file: PathBuf,
    /// The process id that the file contains.
    pub id: u32,
}

impl DataNode {
    /// Finds the data nodes whose process ids are in files of a directory.
    ///
    /// # Errors
    /// As [`process_ids`].
    pub fn all(directory: &Path) -> io::Result<Vec<DataNode>> {
        let is_one = |file: &Path| {
            file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DATA_NODE))
        };
        let nodes = process_ids(directory)?.into_iter().filter(|(file, _)| is_one(file));
        Ok(nodes.map(|(file, id)| DataNode { file, id }).collect())
    }

    /// Kills the process with SIGKILL, if it is a data node.
    ///
    /// # Errors
    /// As [`ServerProcess::kill`].
    pub fn kill(&self) -> io::Result<()> {
        let id = checked(&self.name(), self.id, Program::DataNode)?;
        if kill_process(id)? { Ok(()) } else { Err(missing(&self.name(), self.id)) }
    }

    /// Has the process stand still until the result is dropped, if it is a data node.
    ///
    /// # Errors
    /// As [`ServerProcess::kill`].
    pub fn stop(&self) -> io::Result<Stopped> {
        let id = checked(&self.name(), self.id, Program::DataNode)?;
        Stopped::stop(id)?.ok_or_else(|| missing(&self.name(), self.id))
    }

    /// Whether the process is a data node and was started at least so long ago, by the age of its
    /// file.
    pub fn has_run_for(&self, time: Duration) -> bool {
        let written = std::fs::metadata(&self.file).and_then(|file| file.modified()).ok();
        let age = written.and_then(|written| written.elapsed().ok());
        age.is_some_and(|age| age >= time)
            && checked(&self.name(), self.id, Program::DataNode).is_ok()
    }

    /// Describes the data node by its name, such as `datanode-1`.
    pub fn name(&self) -> String {
        let name = self.file.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// The number of a process of this machine, if it runs the program. `name` is that of its server.
fn checked(name: &str, id: u32, program: Program) -> io::Result<i32> {
    let command = match std::fs::read(format!("/proc/{id}/cmdline")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing(name, id)),
        command => String::from_utf8_lossy(&command?).replace('\0', " "),
    };
    let class = program.class();
    if !command.contains(class) {
        let shown: String = command.chars().take(SHOWN_CHARS).collect();
        return Err(refused(
            name,
            &format!(
                "process {id} of this machine is no {class} but {shown:?}: run the command where the \
                 server's processes are visible, outside of containers"
            ),
        ));
    }
    i32::try_from(id).map_err(|_| missing(name, id))
}

fn refused(name: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is left alone: {why}"))
}

fn missing(name: &str, id: u32) -> io::Error {
    let what = format!(
        "{name} is left alone: there is no process {id} on this machine; the server may have ended, \
         so ask for the cluster's servers again"
    );
    io::Error::new(io::ErrorKind::NotFound, what)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::victim::tests::await_state;

    fn server(id: u32, host: &str) -> ServerProcess {
        let server = HbaseServer {
            address: "h:16020".to_owned(),
            start_code: 1,
            info_address: None,
            regions: 1,
            has_meta: false,
        };
        let process = HbaseProcess { id, host: host.to_owned() };
        ServerProcess { program: Program::RegionServer, server, process }
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
        for refused in
            [server(other.id(), &here).stop().err(), server(other.id(), &here).end().err()]
        {
            assert_eq!(refused.expect("another program").kind(), io::ErrorKind::InvalidInput);
        }
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

    #[test]
    fn a_data_node_is_found_by_its_file_and_stands_still_for_a_while() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut node = with_word("org.apache.hadoop.hdfs.server.datanode.DataNode");
        let mut other = with_word("HMaster");
        for (name, text) in [
            ("datanode-1", format!("{}\n", node.id())),
            ("datanode-2", other.id().to_string()),
            ("datanode-3", String::new()),
            ("region-1", other.id().to_string()),
        ] {
            std::fs::write(directory.path().join(name), text).expect("a file");
        }
        let found = DataNode::all(directory.path()).expect("a directory");
        let names: Vec<_> = found.iter().map(DataNode::name).collect();
        assert_eq!(names, ["datanode-1", "datanode-2"]);
        let refused = found[1].kill().expect_err("another program").to_string();
        assert!(refused.contains("is no DataNode"), "{refused}");

        assert!(found[0].has_run_for(Duration::ZERO));
        assert!(!found[0].has_run_for(Duration::from_secs(3_600)), "it is new");
        assert!(!found[1].has_run_for(Duration::ZERO), "it is another program");
        let stopped = found[0].stop().expect("a data node");
        await_state(node.id(), true);
        drop(stopped);
        await_state(node.id(), false);
        for child in [&mut node, &mut other] {
            drop(child.stdin.take());
            child.wait().expect("it ends by itself");
        }
    }
}
