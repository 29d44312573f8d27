//! Looks at the processes of a local cluster: which run, which hang, which one leads, and which one
//! writes the search index.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use percolator::cluster::{Config, OracleNode};
use percolator::watch::Sampling;
use percolator_rpc::health;
use tokio::time::timeout;
use webindex::{WebIndex, WriterView};

use super::plan::{Place, Plan, Role};
use super::process;
use crate::cmd::config;
use crate::store::connect;

/// How long a process may take to answer. A process that takes longer hangs.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long the store may take to return the leading oracle, or the writer of the search index.
const STORE_MAX: Duration = Duration::from_secs(3);

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It does not run.
    Ended,
    /// It runs, and does not answer.
    Hangs,
    /// It answers that it cannot serve. A table server accepts no writes then, and an oracle cannot
    /// read the store.
    Refuses,
    Runs,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Ended => "does not run",
            State::Hangs => "hangs",
            State::Refuses => "does not serve",
            State::Runs => "runs",
        }
    }
}

/// One process of the cluster.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) role: Role,
    pub(super) pid: Option<u32>,
    pub(super) address: Option<SocketAddr>,
    pub(super) state: State,
}

/// The cluster as a whole.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) processes: Vec<Seen>,
    /// The address of the leading oracle, as the store has it.
    pub(super) leader: anyhow::Result<Option<String>>,
    pub(super) writer: anyhow::Result<Option<WriterView>>,
}

impl Look {
    /// Whether every process serves, and an oracle leads.
    pub(super) fn is_well(&self) -> bool {
        self.processes.iter().all(|seen| seen.state == State::Runs)
            && matches!(self.leader, Ok(Some(_)))
            && self.writer.is_ok()
    }

    /// The writer of the search index, if it is this process.
    pub(super) fn writer_in(&self, seen: &Seen) -> Option<&WriterView> {
        let writer = self.writer.as_ref().ok()?.as_ref()?;
        writer_is(writer, seen).then_some(writer)
    }

    /// A worker that hangs in a way that the system does not show reports nothing to the store.
    fn find_a_silent_writer(&mut self) {
        let Ok(Some(writer)) = &self.writer else { return };
        let is_writer = |seen: &&mut Seen| writer_is(writer, seen);
        if writer.is_silent()
            && let Some(seen) = self.processes.iter_mut().find(is_writer)
        {
            seen.state = State::Hangs;
        }
    }
}

fn writer_is(writer: &WriterView, seen: &Seen) -> bool {
    matches!(seen.role, Role::Worker(_)) && seen.pid == Some(writer.process)
}

/// Looks at all processes of a cluster.
pub(super) async fn at(place: &Place, plan: &Plan) -> anyhow::Result<Look> {
    let mut processes = Vec::new();
    for role in plan.roles() {
        let (pid, address) = (process::pid(place, role)?, plan.address(role));
        processes.push(Seen { role, pid, address, state: State::Ended });
    }
    let states = join_all(processes.iter().map(state)).await;
    for (seen, state) in processes.iter_mut().zip(states) {
        seen.state = state;
    }
    let silent = processes.iter().any(|seen| seen.role == Role::Table && !seen.answers());
    let leader = if silent {
        Err(anyhow::anyhow!("the table server does not answer"))
    } else {
        in_time(leader(place)).await
    };
    // Only an oracle can say which record is the latest.
    let writer = match &leader {
        Ok(Some(leader)) if processes.iter().any(|seen| seen.answers() && seen.is_at(leader)) => {
            in_time(writer(place)).await
        }
        _ => Ok(None),
    };
    let mut look = Look { processes, leader, writer };
    look.find_a_silent_writer();
    Ok(look)
}

impl Seen {
    fn answers(&self) -> bool {
        matches!(self.state, State::Runs | State::Refuses)
    }

    pub(super) fn is_at(&self, address: &str) -> bool {
        self.address.is_some_and(|own| own.to_string() == address)
    }
}

/// Asks a server whether it serves. Workers listen nowhere, so the system is asked about them.
async fn state(seen: &Seen) -> State {
    let Some(pid) = seen.pid else { return State::Ended };
    if process::is_stopped(pid) {
        return State::Hangs;
    }
    let Some(address) = seen.address else { return State::Runs };
    match timeout(ANSWER_MAX, health::serves(address, "")).await {
        Ok(Ok(true)) => State::Runs,
        Ok(Ok(false)) => State::Refuses,
        // It lives, and does not listen: it is about to start or to end, or another one is there.
        Ok(Err(_)) => State::Refuses,
        Err(_) => State::Hangs,
    }
}

async fn in_time<T>(asked: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    timeout(STORE_MAX, asked).await.unwrap_or_else(|_| {
        anyhow::bail!("the store did not answer within {} s", STORE_MAX.as_secs())
    })
}

fn settings(place: &Place) -> anyhow::Result<Config> {
    // The environment may name another cluster: only the settings of this one are read.
    let mut config = Config::default();
    config.add_file(&place.settings_file()).map_err(config::with_advice)?;
    Ok(config)
}

/// Returns the address of the leading oracle, as the store has it.
async fn leader(place: &Place) -> anyhow::Result<Option<String>> {
    let store = settings(place)?.open_store().await?;
    Ok(OracleNode::leader(&*store).await?)
}

/// Returns the writer of the search index, if there is a web index.
async fn writer(place: &Place) -> anyhow::Result<Option<WriterView>> {
    let db =
        connect(&settings(place)?, "client", None, Sampling::default(), Duration::ZERO).await?;
    Ok(WebIndex::writer_in(&db).await?)
}
