//! Keeps a token's lease alive, and makes a lost token again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::SinkExt;
use futures::channel::mpsc;
use percolator_core::Incarnation;
use tokio::time::{sleep, timeout};
use tonic::Streaming;

use crate::etcd::locks::{Inner, Token};
use crate::proto::etcd::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};

/// Number of keepalives in a lease's lifetime.
const KEEPALIVES: u32 = 3;

/// Pause after a failed keepalive.
const AGAIN: Duration = Duration::from_millis(200);

/// A stream of keepalives.
struct Stream {
    requests: mpsc::Sender<LeaseKeepAliveRequest>,
    replies: Streaming<LeaseKeepAliveResponse>,
}

/// Runs until the token is given up, or the lock service is dropped.
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
            // The lease expired or was revoked. Other processes may have taken this one for
            // dead.
            Ok(Some(false)) => match inner.make_token(owner).await {
                Ok(new) => {
                    tracing::warn!(
                        %owner,
                        "a liveness token was lost, and this client created it again"
                    );
                    *lease = Some(new);
                    pause = lifetime / KEEPALIVES;
                }
                Err(error) => {
                    tracing::warn!(
                        %owner,
                        %error,
                        "this client could not create a lost liveness token again"
                    )
                }
            },
            Ok(None) | Err(_) => {
                tracing::warn!(
                    %owner,
                    "a liveness token could not be kept alive: etcd did not answer"
                );
                stream = None;
            }
        }
    }
}

/// Sends one keepalive: true if the lease exists, `None` without an answer.
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
