//! Accepting connections and serving them, within bounds: a flood may use up the console, but not
//! the files that the database's process may have open.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How many connections a console has at a time; others wait to be accepted.
const CONNECTIONS_MAX: usize = 128;
/// How long a client may take to send the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// How long the answers that are on their way may take at the end.
const ENDING_MAX: Duration = Duration::from_secs(2);
/// How long the listener rests where the system has no file for a connection.
const REST: Duration = Duration::from_millis(100);

/// Accepts a connection when it has a place for it.
#[derive(Debug)]
pub(crate) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
    head_max: Duration,
}

impl Bounded {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Bounded::within(listener, CONNECTIONS_MAX, HEAD_MAX)
    }

    fn within(listener: TcpListener, connections_max: usize, head_max: Duration) -> Self {
        Bounded { listener, places: Arc::new(Semaphore::new(connections_max)), head_max }
    }

    /// A connection, and its place, which the next one gets.
    async fn accept(&self) -> (TcpStream, Option<OwnedSemaphorePermit>) {
        // The semaphore is never closed.
        let place = self.places.clone().acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return (stream, place),
                Err(error) => {
                    tracing::debug!(
                        target: "percolator::console",
                        %error,
                        "a connection was not accepted"
                    );
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    /// Serves until the other end of `stopped` is dropped, and finishes the answers that are on
    /// their way.
    pub(crate) async fn serve(self, router: Router, mut stopped: oneshot::Receiver<()>) {
        let ending = GracefulShutdown::new();
        loop {
            let (stream, place) = tokio::select! {
                accepted = self.accept() => accepted,
                _ = &mut stopped => break,
            };
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(self.head_max);
            let service = TowerToHyperService::new(router.clone());
            let connection = ending.watch(server.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(target: "percolator::console", %error, "a connection ended");
                }
                drop(place);
            });
        }
        let _ = tokio::time::timeout(ENDING_MAX, ending.shutdown()).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_connection_waits_for_a_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let bounded = Bounded::within(listener, 1, HEAD_MAX);
        let _clients =
            [TcpStream::connect(addr).await.unwrap(), TcpStream::connect(addr).await.unwrap()];
        let first = bounded.accept().await;
        assert!(bounded.accept().now_or_never().is_none());
        drop(first);
        let _second = bounded.accept().await;
    }

    #[tokio::test]
    async fn a_client_that_does_not_send_its_request_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let bounded = Bounded::within(listener, 1, Duration::from_millis(50));
        let (stop, stopped) = oneshot::channel();
        let router = Router::new().route("/", get(async || "here"));
        let serving = tokio::spawn(bounded.serve(router, stopped));
        let mut slow = TcpStream::connect(addr).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").await.unwrap();
        // The only place is taken until the first client is cut off.
        let mut quick = TcpStream::connect(addr).await.unwrap();
        quick.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        quick.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
        drop(stop);
        serving.await.unwrap();
    }
}
