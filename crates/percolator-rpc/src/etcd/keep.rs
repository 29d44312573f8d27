//! Keeps a token's lease alive, and makes the token again should it get lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::SinkExt;
use futures::channel::mpsc;
use percolator_core::Incarnation;
use tokio::time::{sleep, timeout};
use tonic::Streaming;

use crate::etcd::locks::{Inner, Token};
use crate::proto::etcd::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};

/// How many keepalives a lease has in its lifetime.
const KEEPALIVES: u32 = 3;

/// The pause after one that failed.
const AGAIN: Duration = Duration::from_millis(200);

/// A stream of keepalives.
struct Stream {
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    replies: Streaming<LeaseKeepAliveResponse>,
}

/// Runs until the token is given up, or nobody uses the lock service any more.
pub(super) async fn keep(inner: Weak<Inner>, owner: Incarnation, token: Arc<Token>) {
    let mut stream: Option<Stream> = None;
    let Some(lifetime) = inner.upgrade().map(|inner| inner.lifetime()) else { return };
    let mut pause = lifetime / KEEPALIVES;
    loop {
        sleep(pause).await;
        let Some(inner) = inner.upgrade() else { return };
        let mut lease = token.lock().await;
        let Some(id) = *lease else { return };
        pause = AGAIN;
        let alive = timeout(lifetime / KEEPALIVES, once(&inner, &mut stream, id)).await;
        match alive {
            Ok(Some(true)) => pause = lifetime / KEEPALIVES,
            // It ran out, or was taken away: others may have taken this process for dead.
            Ok(Some(false)) => match inner.make_token(owner).await {
                Ok(new) => {
                    tracing::warn!(%owner, "a liveness token was lost, and made again");
                    *lease = Some(new);
                    pause = lifetime / KEEPALIVES;
                }
                Err(error) => tracing::warn!(%owner, %error, "a lost liveness token"),
            },
            Ok(None) | Err(_) => {
                tracing::warn!(%owner, "a liveness token could not be kept alive: etcd is silent");
                stream = None;
            }
        }
    }
}

/// One keepalive: whether the lease is there; `None` without an answer.
async fn once(inner: &Inner, stream: &mut Option<Stream>, id: i64) -> Option<bool> {
    if stream.is_none() {
        let (requests, outgoing) = mpsc::channel(1);
        let mut first = requests.clone();
        first.send(LeaseKeepAliveRequest { id }).await.ok()?;
        let replies = inner.leases().lease_keep_alive(outgoing).await.ok()?.into_inner();
        *stream = Some(Stream { requests, replies });
    } else if let Some(stream) = stream {
        stream.requests.send(LeaseKeepAliveRequest { id }).await.ok()?;
    }
    let reply = stream.as_mut()?.replies.message().await.ok()??;
    Some(reply.id == id && reply.ttl > 0)
}
