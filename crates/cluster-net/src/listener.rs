//! Implements a listener that strangers cannot exhaust.
//!
//! Anyone who reaches the server can open a connection and send nothing, or half a word. So the
//! listener bounds the number of connections, those in a TLS handshake included. It demands the
//! first bytes soon, and ends a silent connection. A live client is never silent for so long,
//! because it answers the pings of HTTP/2, which servers send more often. After an error of the
//! listener, such as a lack of file descriptors, it pauses and goes on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep};

use crate::accept::Connection;
use crate::refusals::{Reason, Refusals};
use crate::tls::Tls;
use crate::wire::Wire;

/// Interval at which the refusals are logged that were only counted.
const REMIND_EVERY: Duration = Duration::from_secs(5);
/// Pause after an error of the listener.
const PAUSE: Duration = Duration::from_millis(50);

/// The connections of a server, for `serve_with_incoming`. They are without Nagle's delay. With
/// certificates, each has completed its TLS handshake. Refused connections are logged.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use cluster_net::Incoming;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let incoming = Incoming::new(listener, 1000, None);
/// # drop(incoming);
/// # Ok::<(), std::io::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    connections_max: usize,
    permits: Arc<Semaphore>,
    tls: Option<Tls>,
    refusals: Arc<Refusals>,
    /// The handshakes in progress. They end with this value.
    handshakes: JoinSet<Option<Connection>>,
    remind: Interval,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// Accepts at most this many connections at a time, and closes further ones at once. Without
    /// certificates, the connections are in plain text. Runs in a tokio runtime.
    pub fn new(listener: TcpListener, connections_max: usize, tls: Option<Tls>) -> Self {
        let connections_max = connections_max.min(Semaphore::MAX_PERMITS);
        let mut remind = interval_at(Instant::now() + REMIND_EVERY, REMIND_EVERY);
        remind.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Incoming {
            listener,
            connections_max,
            permits: Arc::new(Semaphore::new(connections_max)),
            tls,
            refusals: Arc::default(),
            handshakes: JoinSet::new(),
            remind,
            pause: None,
        }
    }

    /// Returns the next connection whose handshake is complete, if there is one now.
    fn poll_handshakes(&mut self, cx: &mut Context<'_>) -> Option<Connection> {
        while let Poll::Ready(Some(made)) = self.handshakes.poll_join_next(cx) {
            // The handshakes do not panic, and nobody aborts them.
            if let Ok(Some(connection)) = made {
                return Some(connection);
            }
        }
        None
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.remind.poll_tick(cx).is_ready() {
            self.refusals.remind();
        }
        loop {
            if let Some(connection) = self.poll_handshakes(cx) {
                return Poll::Ready(Some(Ok(connection)));
            }
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            let (stream, peer) = match ready!(self.listener.poll_accept(cx)) {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "the listener cannot accept a connection at the moment");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                    continue;
                }
            };
            let Ok(permit) = self.permits.clone().try_acquire_owned() else {
                let max = self.connections_max;
                self.refusals.refuse(Reason::ConnectionsMax, peer, || {
                    format!("all {max} connections of the server are in use")
                });
                continue;
            };
            let (wire, refusals) = (Wire::new(stream, permit), self.refusals.clone());
            match self.tls.clone() {
                None => {
                    return Poll::Ready(Some(Ok(Connection::plain(wire, peer, refusals))));
                }
                Some(tls) => {
                    self.handshakes.spawn(Connection::secured(wire, peer, tls, refusals));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
