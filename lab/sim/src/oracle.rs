//! The simulated oracle: processes that lead in turn, and what clients hold.
//!
//! Each is the core's own oracle over the simulated store: in half of the worlds one that takes
//! over at once ([`WindowOracle::lead`]), in the others an [`OracleNode`], which stands by until
//! nobody leads. Clients know several addresses and may ask any of them: a deposed oracle that
//! wakes must defend itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
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
use crate::given::Given;
use crate::process::ProcessRuntime;
use crate::remote_store::RemoteStore;
use crate::transport::{ReplyTo, Server, Transport};

/// How many oracles clients know of.
const KNOWN_MAX: usize = 3;

/// How long a client tries to get an answer.
const PATIENCE: Duration = Duration::from_secs(8);

/// An oracle process.
pub(crate) struct OracleServer {
    runtime: ProcessRuntime,
    part: Part,
}

/// The part that an oracle process takes.
enum Part {
    /// It takes over as soon as it can.
    Rival(Mutex<Option<Arc<WindowOracle>>>),
    /// One of several, of which the core says who leads.
    Node(Arc<OracleNode>),
}

impl OracleServer {
    /// Starts to lead as soon as the store lets it.
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

    /// Stands by, and leads when its time has come.
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

    /// Makes way for another, if it is one that can.
    pub(crate) fn resign(&self) {
        if let Part::Node(node) = &self.part {
            let node = node.clone();
            // If it fails, the next waits for the end of the lease.
            self.runtime.spawn(Box::pin(async move { drop(node.resign().await) }));
        }
    }

    fn lead(&self, oracle: Arc<WindowOracle>) {
        if let Part::Rival(leading) = &self.part {
            *locked(leading) = Some(oracle);
        }
    }

    /// The oracle that it serves with, if it leads.
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

/// The server as the network knows it.
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

/// The oracles that clients know of, the newest last, and what they answered.
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
    fn state(&self) -> MutexGuard<'_, Known> {
        locked(&self.state)
    }

    /// Adds an oracle, and returns one that clients know no more.
    pub(crate) fn add(
        &self,
        process: ProcessId,
        oracle: Arc<OracleServer>,
        server: Arc<dyn Server>,
    ) -> Option<ProcessId> {
        let mut state = self.state();
        state.servers.push((process, server));
        state.all.push((process, oracle));
        if state.servers.len() <= KNOWN_MAX {
            return None;
        }
        // Clients must go on to know the one that leads.
        let leads = state.leader().map(|(leader, _)| leader);
        let place = state.servers.iter().position(|(process, _)| Some(*process) != leads);
        Some(state.servers.remove(place.unwrap_or(0)).0)
    }

    /// Forgets all but the newest, and returns every other that there ever was.
    pub(crate) fn keep_newest(&self) -> Vec<ProcessId> {
        let mut state = self.state();
        let old = state.servers.len().saturating_sub(1);
        state.servers.drain(..old);
        let newest = state.all.pop();
        let old = std::mem::replace(&mut state.all, newest.into_iter().collect());
        old.into_iter().map(|(process, _)| process).collect()
    }

    /// Forgets one that is dead.
    pub(crate) fn forget(&self, dead: ProcessId) {
        let mut state = self.state();
        state.servers.retain(|(process, _)| *process != dead);
        state.all.retain(|(process, _)| *process != dead);
    }

    /// The newest that leads, or thinks so.
    pub(crate) fn leader(&self) -> Option<(ProcessId, Arc<OracleServer>)> {
        self.state().leader()
    }

    /// An oracle that lives beside the leader, and that clients know.
    pub(crate) fn beside(&self, leader: ProcessId) -> Option<ProcessId> {
        let state = self.state();
        let beside = |(process, oracle): &&(ProcessId, Arc<OracleServer>)| {
            *process != leader
                && !oracle.runtime.executor.is_dead(*process)
                && state.servers.iter().any(|(known, _)| known == process)
        };
        state.all.iter().rev().find(beside).map(|(process, _)| *process)
    }

    pub(crate) fn newest(&self) -> Option<ProcessId> {
        self.state().servers.last().map(|(process, _)| *process)
    }

    /// All timestamps that reached a client, in the order of their arrival.
    pub(crate) fn stamps(&self) -> Vec<Given> {
        self.state().stamps.clone()
    }

    /// When a timestamp was asked for, and when it arrived.
    pub(crate) fn stamp(&self, timestamp: Timestamp) -> Option<(Duration, Duration)> {
        self.state().by_timestamp.get(&timestamp).map(|given| (given.asked, given.arrived))
    }
}

/// The oracle, seen from one process.
pub(crate) struct RemoteOracle {
    pub(crate) runtime: ProcessRuntime,
    pub(crate) transport: Transport,
    pub(crate) oracles: Arc<Oracles>,
    pub(crate) timeout: Duration,
    /// Whether the newest oracle's memory can be reached, as if it were in this process.
    pub(crate) one_step: bool,
    /// Whether the oracles stand by for one another.
    pub(crate) stand_by: bool,
}

impl fmt::Debug for RemoteOracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteOracle")
    }
}

impl RemoteOracle {
    /// Asks the oracles until one answers. A request without an answer is not repeated but made
    /// anew, so that a late answer to it is nobody's (H09).
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

    /// Mostly the newest, sometimes any; any where the newest may stand by.
    fn one(&self) -> Option<(ProcessId, Arc<dyn Server>)> {
        let state = self.oracles.state();
        if self.stand_by {
            return self.runtime.executor.draw(|rng| rng.pick(&state.servers).cloned());
        }
        let draw = self.runtime.executor.draw(|rng| rng.below(4 * KNOWN_MAX as u64)) as usize;
        state.servers.get(draw).or(state.servers.last()).cloned()
    }

    fn note(&self, reply: &OracleReply, asked: Duration, by: ProcessId) {
        if let OracleReply::Stamp(stamp) = reply {
            let mut state = self.oracles.state();
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
            self.oracles.state().all.last().cloned()?
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
