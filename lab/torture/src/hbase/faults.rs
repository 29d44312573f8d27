//! Inflicts faults on the processes of an HBase cluster, and knows when the cluster has recovered.
//!
//! Each process is checked before it gets a signal. It must be one of this machine, and it must run
//! the program that the fault is for.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bigtable_hbase::{HbaseAddress, HbaseCluster, HbaseStore};
use clap::ValueEnum;
use percolator_cli::exit::{Exit, Failure};
use percolator_torture::{DataNode, Program, ServerProcess, Stopped};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::{Which, choose};

/// One fault in this many is of the server with `hbase:meta`.
const META_ONE_IN: u64 = 4;
/// How long a server stands still at least, if it is to survive.
const SHORT_STOP: Duration = Duration::from_millis(500);
/// How long all data nodes stand still beyond the servers' time for a sync of their logs.
const STALL_BEYOND: Duration = Duration::from_secs(3);

/// A fault of one or more processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// Kill a region server with SIGKILL.
    Kill,
    /// Have a region server stand still (SIGSTOP), every other time for longer than its session.
    Stop,
    /// Have a region server end by itself (SIGTERM).
    Restart,
    /// Kill the active master with SIGKILL.
    Master,
    /// Kill a data node of HDFS with SIGKILL.
    Datanode,
    /// Have all data nodes stand still, until servers give up the sync of their logs.
    Stall,
}

impl Fault {
    /// True if the fault needs the process ids of the data nodes.
    pub(crate) fn is_of_data_nodes(self) -> bool {
        matches!(self, Fault::Datanode | Fault::Stall)
    }
}

/// The cluster on which faults are inflicted.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) store: HbaseStore,
    pub(crate) address: HbaseAddress,
    /// The directory with files of process ids, if it was given.
    pub(crate) pids: Option<PathBuf>,
    /// The number of region servers that must live.
    pub(crate) servers: usize,
}

/// A fault that was inflicted.
#[derive(Debug)]
pub(crate) struct Inflicted {
    /// Describes the fault.
    pub(crate) line: String,
    /// The processes that stand still, and until when. They go on when this is dropped, too.
    still: Option<(Vec<Stopped>, Instant)>,
    recovery: Recovery,
}

/// The change by which a cluster shows that it has recovered, if all region servers are there.
#[derive(Debug)]
enum Recovery {
    /// The region servers are all there.
    Whole,
    /// The region server with this start code has been replaced.
    Replaced(u64),
    /// The master with this start code has been replaced.
    Master(u64),
    /// The data node has another process.
    DataNode(DataNode),
}

impl Target {
    /// Inflicts a fault; `turn` counts the faults of this kind from one.
    pub(crate) async fn inflict(
        &self,
        fault: Fault,
        turn: u64,
        random: &mut StdRng,
    ) -> anyhow::Result<Inflicted> {
        match fault {
            Fault::Kill => {
                let server = self.choose(turn, random).await?;
                server.kill().map_err(failed)?;
                Ok(replaced("killed", &server))
            }
            Fault::Restart => {
                let server = self.choose(turn, random).await?;
                server.end().map_err(failed)?;
                Ok(replaced("ended", &server))
            }
            Fault::Stop => self.stop(turn, random).await,
            Fault::Master => {
                let master = self.store.cluster().await?.master;
                let process = self.store.process(&master).await?;
                let master = ServerProcess { program: Program::Master, server: master, process };
                master.kill().map_err(failed)?;
                let (address, id) = (&master.server.address, master.process.id);
                let line = format!("killed master {address}, process {id}");
                let recovery = Recovery::Master(master.server.start_code);
                Ok(Inflicted { line, still: None, recovery })
            }
            Fault::Datanode => {
                let nodes = self.data_nodes()?;
                let node = nodes.choose(random).cloned().ok_or_else(|| self.no_data_nodes())?;
                node.kill().map_err(failed)?;
                let line = format!("killed {}, process {}", node.name(), node.id);
                Ok(Inflicted { line, still: None, recovery: Recovery::DataNode(node) })
            }
            Fault::Stall => self.stall(),
        }
    }

    async fn choose(&self, turn: u64, random: &mut StdRng) -> anyhow::Result<ServerProcess> {
        let meta = turn.is_multiple_of(META_ONE_IN);
        choose(&self.store, if meta { Which::Meta } else { Which::Any }, random).await
    }

    async fn stop(&self, turn: u64, random: &mut StdRng) -> anyhow::Result<Inflicted> {
        let server = self.choose(turn, random).await?;
        let session = self.address.session;
        // A server that stands still for longer is declared dead, and ends when it goes on.
        let dies = turn % 2 == 1;
        let time = if dies {
            2 * session
        } else {
            SHORT_STOP + session.mul_f64(random.random_range(0.0..0.4))
        };
        let stopped = server.stop().map_err(failed)?;
        let verb = format!("stopped for {:.1} s", time.as_secs_f64());
        let Inflicted { line, recovery, .. } = replaced(&verb, &server);
        let recovery = if dies { recovery } else { Recovery::Whole };
        Ok(Inflicted { line, still: Some((vec![stopped], Instant::now() + time)), recovery })
    }

    fn stall(&self) -> anyhow::Result<Inflicted> {
        let time = self.address.wal_sync + STALL_BEYOND;
        let nodes = self.data_nodes()?;
        if nodes.is_empty() {
            return Err(self.no_data_nodes());
        }
        let stopped: std::io::Result<Vec<_>> = nodes.iter().map(DataNode::stop).collect();
        let (stopped, count) = (stopped.map_err(failed)?, nodes.len());
        let line = format!("stopped {count} data nodes for {:.1} s", time.as_secs_f64());
        let still = Some((stopped, Instant::now() + time));
        Ok(Inflicted { line, still, recovery: Recovery::Whole })
    }

    fn data_nodes(&self) -> anyhow::Result<Vec<DataNode>> {
        let Some(pids) = &self.pids else { return Ok(Vec::new()) };
        Ok(DataNode::all(pids)?)
    }

    fn no_data_nodes(&self) -> anyhow::Error {
        let directory = self.pids.as_deref().unwrap_or(std::path::Path::new(""));
        let what = format!("{}: no file with the process id of a data node", directory.display());
        let help = "set HBASE_DATANODES for scripts/hbase.sh, and give --pids \"$HBASE_PIDS\"";
        Failure::usage(what, help)
    }
}

impl Inflicted {
    /// Has processes go on whose time is over. Returns true if the cluster has recovered: no
    /// process stands still, and each that ended is replaced.
    pub(crate) async fn is_over(&mut self, target: &Target) -> bool {
        if self.still.take_if(|(_, until)| *until <= Instant::now()).is_none()
            && self.still.is_some()
        {
            return false;
        }
        // The master may be busy with a dead server, or dead itself.
        let Ok(HbaseCluster { servers, master, .. }) = target.store.cluster().await else {
            return false;
        };
        let replaced = match &self.recovery {
            Recovery::Whole => true,
            Recovery::Replaced(old) => servers.iter().all(|of| of.start_code != *old),
            Recovery::Master(old) => master.start_code != *old,
            Recovery::DataNode(old) => {
                let nodes = target.data_nodes().unwrap_or_default();
                nodes.iter().any(|node| node.file == old.file && node.id != old.id)
            }
        };
        // A server that has just been started does not name its web server yet.
        let known = servers.iter().chain([&master]).all(|of| of.info_address.is_some());
        replaced && known && servers.len() == target.servers
    }
}

fn replaced(verb: &str, server: &ServerProcess) -> Inflicted {
    let line = format!("{verb} region server {}", server.line());
    Inflicted { line, still: None, recovery: Recovery::Replaced(server.server.start_code) }
}

fn failed(error: std::io::Error) -> anyhow::Error {
    let help = "percolator-torture hbase status names the servers";
    Failure::error(Exit::No, format!("inflicting a fault: {error}"), help)
}
