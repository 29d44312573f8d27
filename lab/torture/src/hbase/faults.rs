//! Inflicts faults on the processes of an HBase cluster, and knows when the cluster has recovered.
//!
//! Each process is checked before it gets a signal. It must be one of this machine, and it must run
//! the program that the fault is for.

use std::io;
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

/// One fault in this many, and the first one, is of the server with `hbase:meta`.
const META_ONE_IN: u64 = 3;
/// How often a process is chosen anew, if the chosen one ends before its signal.
const CHOSEN_MAX: u32 = 5;
const CHOSEN_PAUSE: Duration = Duration::from_secs(1);
/// How long a data node must have run to count as recovered.
const DATA_NODE_RUNS: Duration = Duration::from_secs(5);
/// How long a server stands still at least, if it is to survive.
const SHORT_STOP: Duration = Duration::from_millis(500);

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
    /// Have all data nodes stand still (`--stall-s`), so that no server can sync its log.
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
    /// How long all data nodes stand still.
    pub(crate) stall: Duration,
}

/// A fault that was inflicted.
#[derive(Debug)]
pub(crate) struct Inflicted {
    /// Describes the fault.
    pub(crate) line: String,
    /// The processes that stand still, and until when. They go on when this is dropped, too.
    still: Option<(Vec<Stopped>, Instant)>,
    /// The shortest time without a commit, if the fault bites.
    pub(crate) silence_min: Duration,
    recovery: Recovery,
}

/// The change by which a cluster shows that it has recovered, if all region servers are there.
#[derive(Debug)]
enum Recovery {
    /// The region server with this start code is still there.
    Survived(u64),
    /// The region server with this start code has been replaced.
    Replaced(u64),
    /// The region servers may have survived or not.
    Any,
    /// The master with this start code has been replaced.
    Master(u64),
    /// The data node has another process.
    DataNode(DataNode),
}

impl Recovery {
    /// Says what a cluster lacks that has not recovered.
    fn lacks(&self) -> &'static str {
        match self {
            Recovery::Survived(_) => "the region server was to survive, and it ended, or",
            Recovery::Any => "a region server is missing, or",
            Recovery::Replaced(_) | Recovery::Master(_) | Recovery::DataNode(_) => {
                "the process still lives, or was not replaced, or"
            }
        }
    }
}

/// Whether a fault with this number is of the server with `hbase:meta`.
fn is_of_meta(turn: u64) -> bool {
    turn % META_ONE_IN == 1
}

/// Whether a server stands still for longer than its session. Such a server is declared dead, and
/// ends when it goes on.
fn is_long(turn: u64) -> bool {
    turn % 2 == 1
}

impl Target {
    /// Inflicts a fault; `turn` counts the faults of this kind from one.
    pub(crate) async fn inflict(
        &self,
        fault: Fault,
        turn: u64,
        random: &mut StdRng,
    ) -> anyhow::Result<Inflicted> {
        let mut left = CHOSEN_MAX;
        loop {
            let inflicted = self.inflict_once(fault, turn, random).await;
            let error = match inflicted.map_err(anyhow::Error::downcast::<io::Error>) {
                Ok(inflicted) => return Ok(inflicted),
                Err(Ok(error)) => error,
                Err(Err(other)) => return Err(other),
            };
            left -= 1;
            // The process may have ended since its server named it, for an earlier fault.
            if error.kind() != io::ErrorKind::NotFound || left == 0 {
                return Err(failed(&error));
            }
            tokio::time::sleep(CHOSEN_PAUSE).await;
        }
    }

    async fn inflict_once(
        &self,
        fault: Fault,
        turn: u64,
        random: &mut StdRng,
    ) -> anyhow::Result<Inflicted> {
        match fault {
            Fault::Kill => {
                let server = self.choose(turn, random).await?;
                server.kill()?;
                Ok(replaced("killed", &server))
            }
            Fault::Restart => {
                let server = self.choose(turn, random).await?;
                server.end()?;
                Ok(replaced("ended", &server))
            }
            Fault::Stop => self.stop(turn, random).await,
            Fault::Master => {
                let master = self.store.cluster().await?.master;
                let process = self.store.process(&master).await?;
                let master = ServerProcess { program: Program::Master, server: master, process };
                master.kill()?;
                let (address, id) = (&master.server.address, master.process.id);
                let line = format!("killed master {address}, process {id}");
                let recovery = Recovery::Master(master.server.start_code);
                Ok(Inflicted::ended(line, recovery))
            }
            Fault::Datanode => {
                let nodes = self.data_nodes()?;
                let node = nodes.choose(random).cloned().ok_or_else(|| self.no_data_nodes())?;
                node.kill()?;
                let line = format!("killed {}, process {}", node.name(), node.id);
                let recovery = Recovery::DataNode(node);
                Ok(Inflicted::ended(line, recovery))
            }
            Fault::Stall => self.stall(),
        }
    }

    async fn choose(&self, turn: u64, random: &mut StdRng) -> anyhow::Result<ServerProcess> {
        let which = if is_of_meta(turn) { Which::Meta } else { Which::Any };
        choose(&self.store, which, random).await
    }

    async fn stop(&self, turn: u64, random: &mut StdRng) -> anyhow::Result<Inflicted> {
        let server = self.choose(turn, random).await?;
        let session = self.address.session;
        let time = if is_long(turn) {
            2 * session
        } else {
            SHORT_STOP + session.mul_f64(random.random_range(0.0..0.4))
        };
        let stopped = server.stop()?;
        let verb = format!("stopped for {:.1} s", time.as_secs_f64());
        let inflicted = replaced(&verb, &server);
        let still = Some((vec![stopped], Instant::now() + time));
        let survived = Recovery::Survived(server.server.start_code);
        let recovery = if is_long(turn) { inflicted.recovery } else { survived };
        Ok(Inflicted { still, recovery, ..inflicted })
    }

    fn stall(&self) -> anyhow::Result<Inflicted> {
        let nodes = self.data_nodes()?;
        if nodes.is_empty() {
            return Err(self.no_data_nodes());
        }
        let stopped: io::Result<Vec<_>> = nodes.iter().map(DataNode::stop).collect();
        let (stopped, count) = (stopped?, nodes.len());
        Ok(Inflicted {
            line: format!("stopped {count} data nodes for {:.1} s", self.stall.as_secs_f64()),
            still: Some((stopped, Instant::now() + self.stall)),
            // Changes that have reached the data nodes before are still acknowledged.
            silence_min: self.stall / 2,
            recovery: Recovery::Any,
        })
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
    /// A fault of which nothing goes on.
    fn ended(line: String, recovery: Recovery) -> Self {
        Inflicted { line, still: None, silence_min: Duration::ZERO, recovery }
    }

    /// The moment when the fault's processes have ended or go on.
    pub(crate) fn ends_at(&self) -> Instant {
        self.still.as_ref().map_or_else(Instant::now, |(_, until)| *until)
    }

    /// Says what the cluster lacks, if it has not recovered.
    pub(crate) fn lacks(&self) -> &'static str {
        self.recovery.lacks()
    }

    /// Has processes go on whose time is over. Returns true if the cluster has recovered: no
    /// process stands still, and each that ended is replaced.
    ///
    /// # Errors
    /// If a process did not stand still until its time was over.
    pub(crate) async fn is_over(&mut self, target: &Target) -> anyhow::Result<bool> {
        let ended = self.still.take_if(|(_, until)| *until <= Instant::now());
        if let Some((stopped, _)) = ended {
            if !stopped.iter().all(Stopped::stands_still) {
                let what = format!("{}: a process went on, or ended, too early", self.line);
                let help = "leave the cluster's processes to this command, and run it again";
                return Err(Failure::error(Exit::No, what, help));
            }
        } else if self.still.is_some() {
            return Ok(false);
        }
        // The master may be busy with a dead server, or dead itself.
        let Ok(HbaseCluster { servers, master, .. }) = target.store.cluster().await else {
            return Ok(false);
        };
        let met = match &self.recovery {
            Recovery::Survived(old) => servers.iter().any(|of| of.start_code == *old),
            Recovery::Replaced(old) => servers.iter().all(|of| of.start_code != *old),
            Recovery::Any => true,
            Recovery::Master(old) => master.start_code != *old,
            Recovery::DataNode(old) => {
                let nodes = target.data_nodes().unwrap_or_default();
                let new = nodes.iter().find(|node| node.file == old.file && node.id != old.id);
                new.is_some_and(|node| node.has_run_for(DATA_NODE_RUNS))
            }
        };
        // A server that has just been started does not name its web server yet.
        let known = servers.iter().chain([&master]).all(|of| of.info_address.is_some());
        Ok(met && known && servers.len() == target.servers)
    }
}

fn replaced(verb: &str, server: &ServerProcess) -> Inflicted {
    let line = format!("{verb} region server {}", server.line());
    let recovery = Recovery::Replaced(server.server.start_code);
    Inflicted::ended(line, recovery)
}

fn failed(error: &io::Error) -> anyhow::Error {
    let help = "percolator-torture hbase status names the servers";
    Failure::error(Exit::No, format!("inflicting a fault: {error}"), help)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn any_server_and_the_one_with_meta_stand_still_for_a_short_and_a_long_time() {
        let stops: BTreeSet<_> = (1..=4).map(|turn| (is_of_meta(turn), is_long(turn))).collect();
        assert_eq!(stops.len(), 4, "{stops:?}");
    }
}
