//! Implements a connection to one oracle process, with one request at a time.

use std::time::Duration;

use cluster_net::{Dialer, Fault};
use futures::SinkExt;
use futures::channel::mpsc;
use percolator_core::Timestamp;
use tonic::{Code, Streaming};

use crate::Address;
use crate::oracle::batch::Given;
use crate::proto::oracle as proto;
use crate::proto::oracle::oracle_client::OracleClient;
use crate::proto::oracle::refusal::Reason;
use crate::proto::oracle::reply::Outcome;

/// Longest reply that the client reads, in bytes: numbers, an address, and a sentence.
const REPLY_BYTES_MAX: usize = 16 * 1024;

/// Interval of pings to a silent server, and longest time for its answer.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection to an oracle process.
#[derive(Debug)]
pub(super) struct Link {
    requests: mpsc::Sender<proto::Request>,
    replies: Streaming<proto::Reply>,
    id: u64,
}

/// The reason why a request has no answer.
#[derive(Debug)]
pub(super) enum Miss {
    /// Another process may answer.
    Elsewhere { why: String, leader: Option<Address> },
    /// The leader cannot answer now.
    Later { why: String },
    /// The connection is unusable.
    Broken { why: String },
    /// The process refuses this client, or the client the process, until a person acts.
    Refused { why: String },
    /// No process will ever answer this request.
    Never { why: String },
}

impl Link {
    /// Connects to the oracle at `address`.
    pub(super) async fn open(address: &Address, dialer: &Dialer) -> Result<Self, Miss> {
        let endpoint = dialer.endpoint(&address.to_string());
        let endpoint = endpoint
            .map_err(|error| broken(&error))?
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let channel = dialer.connect(&endpoint).await.map_err(|error| broken(&error))?;
        let mut client = OracleClient::new(channel).max_decoding_message_size(REPLY_BYTES_MAX);
        let (requests, outgoing) = mpsc::channel(1);
        let replies = client.serve(outgoing).await.map_err(|status| refused(&status))?;
        Ok(Link { requests, replies: replies.into_inner(), id: 0 })
    }

    /// Sends one request, and waits for its reply.
    pub(super) async fn ask(&mut self, timestamps: u32, raise: u64) -> Result<Given, Miss> {
        self.id += 1;
        let request = proto::Request { id: self.id, timestamps, raise_schema_version: raise };
        let gone = || Miss::Broken { why: "it closed the connection".to_owned() };
        self.requests.send(request).await.map_err(|_| gone())?;
        let reply = self.replies.message().await.map_err(|status| refused(&status))?;
        let reply = reply.ok_or_else(gone)?;
        if reply.id != self.id {
            let why = format!("it answered request {} instead of {}", reply.id, self.id);
            return Err(Miss::Broken { why });
        }
        match reply.outcome {
            Some(Outcome::Answer(answer)) => believe(&answer, timestamps),
            Some(Outcome::Refusal(refusal)) => Err(miss(&refusal)),
            None => Err(Miss::Broken { why: "its reply is empty".to_owned() }),
        }
    }
}

/// Checks an answer before anything relies on it.
fn believe(answer: &proto::Answer, timestamps: u32) -> Result<Given, Miss> {
    let proto::Answer { first, latest, schema_version } = *answer;
    let last = first.checked_add(u64::from(timestamps)).map(|end| end.saturating_sub(1));
    let possible = match (timestamps, last) {
        (0, _) => first == 0 && Timestamp::new(latest).is_some(),
        (_, Some(last)) => first > 0 && last <= latest && Timestamp::new(latest).is_some(),
        (_, None) => false,
    };
    if !possible {
        let why = format!(
            "its answer is impossible: {timestamps} timestamps from {first}, and {latest} as \
             the latest"
        );
        return Err(Miss::Broken { why });
    }
    Ok(Given { first, latest, schema_version })
}

fn miss(refusal: &proto::Refusal) -> Miss {
    let why = refusal.why.chars().take(500).collect();
    match Reason::try_from(refusal.reason) {
        Ok(Reason::NotLeader) => Miss::Elsewhere { why, leader: refusal.leader.parse().ok() },
        Ok(Reason::Invalid) => Miss::Never { why },
        Ok(Reason::Failed | Reason::Unspecified) | Err(_) => Miss::Later { why },
    }
}

fn broken(error: &(dyn std::error::Error + 'static)) -> Miss {
    match Fault::find(error) {
        Some(fault) => Miss::Refused { why: fault.to_string() },
        None => Miss::Broken { why: causes(error) },
    }
}

fn refused(status: &tonic::Status) -> Miss {
    if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) {
        return Miss::Refused { why: status.message().to_owned() };
    }
    let why = match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), causes(source)),
        None => format!("{} ({})", status.message(), status.code()),
    };
    Miss::Broken { why }
}

/// The text of an error with its causes, each once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_cannot_be_are_not_believed() {
        let max = Timestamp::MAX.as_u64();
        let answer = |first, latest| proto::Answer { first, latest, schema_version: 0 };
        for (first, latest, timestamps) in [
            (0, 9, 1),
            (5, 5, 2),
            (u64::MAX, u64::MAX, 2),
            (u64::MAX, u64::MAX, 1),
            (max, max + 1, 2),
            (1, u64::MAX, 1),
            (3, 9, 0),
        ] {
            let judged = believe(&answer(first, latest), timestamps);
            assert!(matches!(judged, Err(Miss::Broken { .. })), "{first} {latest} {timestamps}");
        }
        assert!(believe(&answer(5, 6), 2).is_ok() && believe(&answer(0, 6), 0).is_ok());
    }
}
