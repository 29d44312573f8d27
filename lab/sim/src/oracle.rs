//! Simulates the oracle: processes that lead in turn, and their clients.
//!
//! Each process runs the core's own oracle over the simulated store. In half of the worlds it
//! takes over immediately ([`WindowOracle::lead`]). In the others it is an [`OracleNode`],
//! which stands by until no process leads. Clients know several addresses and may send to any
//! of them, so a deposed oracle that wakes up must defend itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::Timestamp;
use bigtable::sync::locked;
use bytes::Bytes;
use percolator_core::{
    Error, Oracle, OracleNode, OracleOptions, OracleRole, Result, Runtime, Stamp, WindowOracle,
    async_trait, fresh_incarnation,
};

use crate::codec::{OracleReply, OracleRequest, decode, encode};
use crate::executor::ProcessId;
use crate::process::{Given, ProcessRuntime};
use crate::remote_store::RemoteStore;
use crate::transport::{ReplyTo, Server, Transport};

/// How many oracles clients know.
const KNOWN_MAX: usize = 3;

/// How long a client tries to get an answer.
const PATIENCE: Duration = Duration::from_secs(8);

/// An oracle process.
pub(crate) struct OracleServer {
    runtime: ProcessRuntime,
    part: Part,
}

/// The way in which an oracle process comes to lead.
enum Part {
    /// Takes over as soon as it can.
    Rival(Mutex<Option<Arc<WindowOracle>>>),
    /// Is one of several nodes, and the core decides which of them leads.
    Node(Arc<OracleNode>),
}

impl OracleServer {
    /// Starts an oracle that leads as soon as the store allows it.
    pub(crate) fn start(
        runtime: ProcessRuntime,
        store: RemoteStore,
        window: u64,
    ) -> Arc<OracleServer> {
        let part = Part::Rival(Mutex::default());
        let server = Arc::new(OracleServer { runtime, part });
        let (own, runtime) = (server.clone(), server.runtime.clone());
        server.runtime.spawn(Box::pin(async move {
            loop {
                let holder = fresh_incarnation(&runtime);
                let clock = Arc::new(runtime.clone());
                if let Ok(oracle) = WindowOracle::lead(&store, holder, clock, window).await {
                    runtime.executor.note("leads", (u64::from(runtime.process.0), 0), || {
                        format!("oracle {}", runtime.process.0)
                    });
                    own.lead(Arc::new(oracle));
                    return;
                }
                runtime.sleep(Duration::from_millis(20)).await;
            }
        }));
        server
    }

    /// Starts an oracle that stands by, and leads when no other does.
    pub(crate) fn stand_by(
        runtime: ProcessRuntime,
        store: RemoteStore,
        window: u64,
    ) -> Arc<OracleServer> {
        let clock = Arc::new(runtime.clone());
        let options = OracleOptions { window, ..OracleOptions::default() };
        let node = OracleNode::new(Arc::new(store), clock, options).expect("it has a window");
        let node = Arc::new(node);
        let own = node.clone();
        runtime.spawn(Box::pin(async move { own.run().await }));
        Arc::new(OracleServer { runtime, part: Part::Node(node) })
    }

    /// Resigns in favour of another node, if this oracle is a node.
    pub(crate) fn resign(&self) {
        if let Part::Node(node) = &self.part {
            let node = node.clone();
            // If it fails, the next node waits until the lease expires.
            self.runtime.spawn(Box::pin(async move { drop(node.resign().await) }));
        }
    }

    fn lead(&self, oracle: Arc<WindowOracle>) {
        if let Part::Rival(leading) = &self.part {
            *locked(leading) = Some(oracle);
        }
    }

    /// Returns the oracle that answers requests, if this process leads.
    pub(crate) fn leading(&self) -> Option<Arc<WindowOracle>> {
        match &self.part {
            Part::Rival(leading) => locked(leading).clone(),
            Part::Node(node) => match node.role() {
                OracleRole::Leads(oracle) => Some(oracle),
                OracleRole::StandsBy { .. } => None,
            },
        }
    }
}

/// The server as the network reaches it.
pub(crate) struct OracleEndpoint(pub(crate) Arc<OracleServer>);

impl Server for OracleEndpoint {
    fn receive(&self, request: Bytes, _: ProcessId, reply: ReplyTo) {
        let request: OracleRequest = decode(request).expect("what a client encodes decodes");
        let Some(oracle) = self.0.leading() else {
            return reply.send(encode(&OracleReply::Failed("not leading yet".to_owned())));
        };
        let executor = self.0.runtime.executor.clone();
        self.0.runtime.spawn(Box::pin(async move {
            let answer = answer(&oracle, &request).await;
            executor.note("oracle", (0, 0), || format!("{request:?}: {answer:?}"));
            reply.send(encode(&answer));
        }));
    }
}

async fn answer(oracle: &WindowOracle, request: &OracleRequest) -> OracleReply {
    let answer = match request {
        OracleRequest::Timestamp => oracle.timestamp().await.map(OracleReply::Stamp),
        OracleRequest::Peek => oracle.peek().await.map(OracleReply::Latest),
        OracleRequest::SchemaVersion => {
            oracle.schema_version().await.map(OracleReply::SchemaVersion)
        }
        OracleRequest::RaiseSchemaVersion(version) => {
            oracle.raise_schema_version(*version).await.map(|()| OracleReply::Done)
        }
    };
    answer.unwrap_or_else(|error| OracleReply::Failed(error.to_string()))
}

/// The oracles that clients know, the newest last, and the timestamps that these returned.
#[derive(Default)]
pub(crate) struct Oracles {
    state: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    servers: Vec<(ProcessId, Arc<dyn Server>)>,
    all: Vec<(ProcessId, Arc<OracleServer>)>,
    stamps: Vec<Given>,
    by_timestamp: BTreeMap<Timestamp, Given>,
}

impl Known {
    fn leader(&self) -> Option<(ProcessId, Arc<OracleServer>)> {
        let leads = |(process, oracle): &&(ProcessId, Arc<OracleServer>)| {
            !oracle.runtime.executor.is_dead(*process) && oracle.leading().is_some()
        };
        self.all.iter().rev().find(leads).cloned()
    }
}

impl Oracles {
    /// Adds an oracle. Returns an oracle that clients no longer know, if there are too many.
    pub(crate) fn add(
        &self,
        process: ProcessId,
        oracle: Arc<OracleServer>,
        server: Arc<dyn Server>,
    ) -> Option<ProcessId> {
        let mut state = locked(&self.state);
        state.servers.push((process, server));
        state.all.push((process, oracle));
        if state.servers.len() <= KNOWN_MAX {
            return None;
        }
        // Clients must continue to know the leader.
        let leads = state.leader().map(|(leader, _)| leader);
        let place = state.servers.iter().position(|(process, _)| Some(*process) != leads);
        Some(state.servers.remove(place.unwrap_or(0)).0)
    }

    /// Forgets all oracles but the newest. Returns every other that ever existed.
    pub(crate) fn keep_newest(&self) -> Vec<ProcessId> {
        let mut state = locked(&self.state);
        let old = state.servers.len().saturating_sub(1);
        state.servers.drain(..old);
        let newest = state.all.pop();
        let old = std::mem::replace(&mut state.all, newest.into_iter().collect());
        old.into_iter().map(|(process, _)| process).collect()
    }

    /// Forgets a dead oracle.
    pub(crate) fn forget(&self, dead: ProcessId) {
        let mut state = locked(&self.state);
        state.servers.retain(|(process, _)| *process != dead);
        state.all.retain(|(process, _)| *process != dead);
    }

    /// Returns the newest oracle that leads, or believes that it leads.
    pub(crate) fn leader(&self) -> Option<(ProcessId, Arc<OracleServer>)> {
        locked(&self.state).leader()
    }

    /// Returns a live oracle other than the leader, and known to clients.
    pub(crate) fn beside(&self, leader: ProcessId) -> Option<ProcessId> {
        let state = locked(&self.state);
        let beside = |(process, oracle): &&(ProcessId, Arc<OracleServer>)| {
            *process != leader
                && !oracle.runtime.executor.is_dead(*process)
                && state.servers.iter().any(|(known, _)| known == process)
        };
        state.all.iter().rev().find(beside).map(|(process, _)| *process)
    }

    pub(crate) fn newest(&self) -> Option<ProcessId> {
        locked(&self.state).servers.last().map(|(process, _)| *process)
    }

    /// Returns all timestamps that reached a client, in the order of arrival.
    pub(crate) fn stamps(&self) -> Vec<Given> {
        locked(&self.state).stamps.clone()
    }

    /// Returns the times of a timestamp's request and of its arrival.
    pub(crate) fn stamp(&self, timestamp: Timestamp) -> Option<(Duration, Duration)> {
        locked(&self.state).by_timestamp.get(&timestamp).map(|given| (given.asked, given.arrived))
    }
}

/// The oracle as one process reaches it.
pub(crate) struct RemoteOracle {
    pub(crate) runtime: ProcessRuntime,
    pub(crate) transport: Transport,
    pub(crate) oracles: Arc<Oracles>,
    pub(crate) timeout: Duration,
    /// Whether the newest oracle can be called in memory, as if it were in this process.
    pub(crate) one_step: bool,
    /// Whether the oracles stand by for one another.
    pub(crate) stand_by: bool,
}

shown_by_name!(RemoteOracle);

impl RemoteOracle {
    /// Sends a request to the oracles until one answers. Each attempt is a new request, so a
    /// late answer to an earlier attempt is ignored and never taken for the current one (H09).
    async fn ask(&self, request: OracleRequest) -> Result<OracleReply> {
        let executor = &self.runtime.executor;
        let from = self.runtime.process;
        let since = executor.now();
        let mut why = "no oracle is known".to_owned();
        while executor.now().saturating_sub(since) < PATIENCE {
            if let Some(server) = self.one() {
                let asked = executor.now();
                let to = (server.0, &server.1);
                let reply = self.transport.call(from, to, encode(&request), self.timeout).await;
                let decoded = reply.map(decode::<OracleReply>);
                match decoded.map(|reply| reply.expect("what an oracle encodes decodes")) {
                    Some(OracleReply::Failed(error)) => why = error,
                    Some(reply) => {
                        self.note(&reply, asked, server.0);
                        return Ok(reply);
                    }
                    None => "no answer".clone_into(&mut why),
                }
            }
            let pause = executor.draw(|rng| rng.between(1, 40));
            executor.sleep(Duration::from_millis(pause)).await;
        }
        Err(Error::Oracle(why))
    }

    /// Chooses an oracle: mostly the newest, sometimes any. If the newest may stand by, the
    /// choice is among all.
    fn one(&self) -> Option<(ProcessId, Arc<dyn Server>)> {
        let state = locked(&self.oracles.state);
        if self.stand_by {
            return self.runtime.executor.draw(|rng| rng.pick(&state.servers).cloned());
        }
        let draw = self.runtime.executor.draw(|rng| rng.below(4 * KNOWN_MAX as u64)) as usize;
        state.servers.get(draw).or(state.servers.last()).cloned()
    }

    fn note(&self, reply: &OracleReply, asked: Duration, by: ProcessId) {
        if let OracleReply::Stamp(stamp) = reply {
            let mut state = locked(&self.oracles.state);
            let arrived = self.runtime.executor.now();
            let given = Given { timestamp: stamp.timestamp, asked, arrived, by };
            state.stamps.push(given);
            state.by_timestamp.insert(stamp.timestamp, given);
        }
    }
}

fn misdirected() -> Error {
    Error::Oracle("the reply answers another request".to_owned())
}

#[async_trait]
impl Oracle for RemoteOracle {
    async fn timestamp(&self) -> Result<Stamp> {
        match self.ask(OracleRequest::Timestamp).await? {
            OracleReply::Stamp(stamp) => Ok(stamp),
            _ => Err(misdirected()),
        }
    }

    fn issues_in_memory(&self) -> bool {
        self.one_step
    }

    fn timestamp_in_memory(&self) -> Option<Stamp> {
        let (process, server) = if self.stand_by {
            self.oracles.leader()?
        } else {
            locked(&self.oracles.state).all.last().cloned()?
        };
        if self.runtime.executor.is_dead(process) {
            return None;
        }
        let stamp = server.leading()?.timestamp_in_memory()?;
        self.note(&OracleReply::Stamp(stamp), self.runtime.executor.now(), process);
        Some(stamp)
    }

    async fn peek(&self) -> Result<Timestamp> {
        match self.ask(OracleRequest::Peek).await? {
            OracleReply::Latest(timestamp) => Ok(timestamp),
            _ => Err(misdirected()),
        }
    }

    async fn schema_version(&self) -> Result<u64> {
        match self.ask(OracleRequest::SchemaVersion).await? {
            OracleReply::SchemaVersion(version) => Ok(version),
            _ => Err(misdirected()),
        }
    }

    async fn raise_schema_version(&self, version: u64) -> Result<()> {
        match self.ask(OracleRequest::RaiseSchemaVersion(version)).await? {
            OracleReply::Done => Ok(()),
            _ => Err(misdirected()),
        }
    }
}
