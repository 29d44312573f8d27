//! Answers one client's stream of requests while the oracle of this process leads, and refuses
//! them otherwise.
//!
//! Invariant: the lease is checked after a request has arrived. Each method of `WindowOracle` that
//! this module calls checks it, or writes the oracle's record. So a process that was paused and
//! has lost its lead answers with an error, never with a timestamp (H41).

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cluster_net::{Peer, Reason as Refused};
use futures::{Stream, StreamExt, stream};
use percolator_core::{Error, Oracle, OracleNode, OracleRole};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

use crate::proto::oracle as proto;
use crate::proto::oracle::refusal::Reason;
use crate::proto::oracle::reply::Outcome;
use crate::{Role, check_peer};

/// Longest time of a client's stream without a complete request. Then the stream ends, and the
/// client opens another for its next request.
const IDLE: Duration = Duration::from_secs(300);

/// The service that answers clients.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) node: Arc<OracleNode>,
    /// Ends all streams when it changes, or when its sender is dropped.
    pub(super) stop: watch::Receiver<bool>,
    /// One permit for each client.
    pub(super) clients: Arc<Semaphore>,
    /// True if clients must have shown a certificate of their role.
    pub(super) certified: bool,
}

/// One client's stream.
struct Session {
    node: Arc<OracleNode>,
    requests: Streaming<proto::Request>,
    failed: bool,
    _permit: OwnedSemaphorePermit,
}

#[tonic::async_trait]
impl proto::oracle_server::Oracle for Service {
    type ServeStream = Pin<Box<dyn Stream<Item = Result<proto::Reply, Status>> + Send>>;

    async fn serve(
        &self,
        request: Request<Streaming<proto::Request>>,
    ) -> Result<Response<Self::ServeStream>, Status> {
        if self.certified {
            check_peer(&request, &[Role::Client])?;
        }
        let Ok(permit) = self.clients.clone().try_acquire_owned() else {
            if let Some(peer) = request.extensions().get::<Peer>() {
                peer.refuse(Refused::ClientsMax, || {
                    "this oracle serves its maximum number of clients".to_owned()
                });
            }
            return Err(Status::resource_exhausted(
                "this oracle serves its maximum number of clients: ask another one, or raise \
                 `clients_max`",
            ));
        };
        let (node, requests) = (self.node.clone(), request.into_inner());
        let session = Session { node, requests, failed: false, _permit: permit };
        let mut stop = self.stop.clone();
        let stopped = async move {
            // The sender is gone only if the server was dropped.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        let replies = stream::unfold(session, Session::next).take_until(Box::pin(stopped));
        Ok(Response::new(Box::pin(replies)))
    }
}

impl Session {
    async fn next(mut self) -> Option<(Result<proto::Reply, Status>, Self)> {
        if self.failed {
            return None;
        }
        let Ok(request) = timeout(IDLE, self.requests.message()).await else { return None };
        let reply = match request {
            Ok(None) => return None,
            Ok(Some(request)) => Ok(answer(&self.node, &request).await),
            Err(status) => {
                self.failed = true;
                Err(status)
            }
        };
        Some((reply, self))
    }
}

async fn answer(node: &OracleNode, request: &proto::Request) -> proto::Reply {
    let outcome = match node.role() {
        OracleRole::Leads(oracle) => match ask(&oracle, request).await {
            Ok(answer) => Outcome::Answer(answer),
            Err(error) => Outcome::Refusal(refusal(node, &error)),
        },
        OracleRole::StandsBy { .. } => Outcome::Refusal(elsewhere(node)),
    };
    proto::Reply { id: request.id, outcome: Some(outcome) }
}

async fn ask(
    oracle: &percolator_core::WindowOracle,
    request: &proto::Request,
) -> percolator_core::Result<proto::Answer> {
    if request.raise_schema_version > 0 {
        oracle.raise_schema_version(request.raise_schema_version).await?;
    }
    if request.timestamps > 0 {
        let range = oracle.timestamps(request.timestamps).await?;
        let first = range.first.as_u64();
        // Every timestamp issued before this request lies below the first.
        let latest = first + u64::from(range.count) - 1;
        return Ok(proto::Answer { first, latest, schema_version: range.schema_version });
    }
    let schema_version = oracle.schema_version().await?;
    let latest = oracle.peek().await?.as_u64();
    Ok(proto::Answer { first: 0, latest, schema_version })
}

fn refusal(node: &OracleNode, error: &Error) -> proto::Refusal {
    match error {
        Error::Invalid { what, .. } => refuse(Reason::Invalid, what.clone(), None),
        error => match node.role() {
            OracleRole::Leads(_) => refuse(Reason::Failed, error.to_string(), None),
            OracleRole::StandsBy { .. } => elsewhere(node),
        },
    }
}

fn elsewhere(node: &OracleNode) -> proto::Refusal {
    let OracleRole::StandsBy { leader, trouble } = node.role() else {
        return refuse(
            Reason::Failed,
            "this oracle is just becoming the leader, or ceasing to be".to_owned(),
            None,
        );
    };
    let why = match (&leader, trouble) {
        (_, Some(trouble)) => format!("it is a standby, and cannot read the store: {trouble}"),
        (Some(leader), None) => format!("it is a standby; {leader} leads"),
        (None, None) => "it is a standby; no leader is known".to_owned(),
    };
    refuse(Reason::NotLeader, why, leader)
}

fn refuse(reason: Reason, why: String, leader: Option<String>) -> proto::Refusal {
    proto::Refusal { reason: reason.into(), why, leader: leader.unwrap_or_default() }
}
