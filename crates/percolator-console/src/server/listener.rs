//! Accepts connections and serves them, within bounds. A flood may use up the console's
//! connections, but not the files that the database's process may have open.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long the answers that are on their way may take at the end.
const ENDING_MAX: Duration = Duration::from_secs(2);
/// How long the listener rests where the system has no file for a connection.
const REST: Duration = Duration::from_millis(100);

/// The bounds of connections.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// How many connections a console has at a time; others wait to be accepted.
    connections: usize,
    /// How long a client may take to send the head of a request.
    head: Duration,
    /// How long a connection may last until it takes no more requests.
    age: Duration,
    /// How long the last answer of such a connection may take. A client that does not read it is
    /// then cut off.
    last_answer: Duration,
}

const BOUNDS: Bounds = Bounds {
    connections: 128,
    head: Duration::from_secs(10),
    age: Duration::from_secs(30),
    last_answer: Duration::from_secs(15),
};

/// Accepts a connection when it has a place for it.
#[derive(Debug)]
pub(crate) struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
    bounds: Bounds,
}

impl Bounded {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Bounded::within(listener, BOUNDS)
    }

    fn within(listener: TcpListener, bounds: Bounds) -> Self {
        Bounded { listener, places: Arc::new(Semaphore::new(bounds.connections)), bounds }
    }

    /// A connection, and its place, which the next one gets.
    async fn accept(&self) -> (TcpStream, Option<OwnedSemaphorePermit>) {
        // The semaphore is never closed.
        let place = self.places.clone().acquire_owned().await.ok();
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return (stream, place),
                Err(error) => {
                    tracing::debug!(target: "percolator::console", %error, "a connection was not accepted");
                    sleep(REST).await;
                }
            }
        }
    }

    /// Serves until the other end of `stopped` is dropped, and finishes the answers that are on
    /// their way. No connection outlives this.
    pub(crate) async fn serve(self, router: Router, mut stopped: oneshot::Receiver<()>) {
        let (end, ending) = watch::channel(());
        let mut connections = JoinSet::new();
        loop {
            let (stream, place) = tokio::select! {
                accepted = self.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                _ = &mut stopped => break,
            };
            let (router, bounds, ending) = (router.clone(), self.bounds, ending.clone());
            connections.spawn(async move {
                serve_connection(stream, router, bounds, ending).await;
                drop(place);
            });
        }
        drop(end);
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = timeout(ENDING_MAX, all).await;
        connections.shutdown().await;
    }
}

/// Serves a connection within its bounds, until the other end of `ending` is dropped.
async fn serve_connection(
    stream: TcpStream,
    router: Router,
    bounds: Bounds,
    mut ending: watch::Receiver<()>,
) {
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(bounds.head);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut connection => Ok(ended),
        // This is an error as soon as the other end is dropped.
        _ = timeout(bounds.age, ending.changed()) => {
            connection.as_mut().graceful_shutdown();
            timeout(bounds.last_answer, connection).await
        }
    };
    if !matches!(ended, Ok(Ok(()))) {
        tracing::debug!(target: "percolator::console", ?ended, "a connection was cut off");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;

    use super::*;

    const ONE: Bounds = Bounds { connections: 1, ..BOUNDS };
    const SOON: Duration = Duration::from_millis(50);

    /// A server that answers `/` in few bytes, and `/long` in more than sockets hold.
    struct Server {
        addr: std::net::SocketAddr,
        serving: JoinHandle<()>,
        stop: oneshot::Sender<()>,
        /// The server and its connections hold clones of it.
        database: Arc<()>,
    }

    async fn serve(bounds: Bounds) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let database = Arc::new(());
        let long = async |_: axum::extract::State<Arc<()>>| vec![b'x'; 64 << 20];
        let router = Router::new().route("/", get(async || "here")).route("/long", get(long));
        let router = router.with_state(database.clone());
        let serving = tokio::spawn(Bounded::within(listener, bounds).serve(router, stopped));
        Server { addr, serving, stop, database }
    }

    /// A connection with the beginning of a request.
    async fn begun(server: &Server, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    async fn is_answered(server: &Server) {
        let mut quick =
            begun(server, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        let mut answer = String::new();
        quick.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_waits_for_a_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let bounded = Bounded::within(listener, ONE);
        let _clients =
            [TcpStream::connect(addr).await.unwrap(), TcpStream::connect(addr).await.unwrap()];
        let first = bounded.accept().await;
        assert!(bounded.accept().now_or_never().is_none());
        drop(first);
        let _second = bounded.accept().await;
    }

    /// The only place is taken until the first client is cut off.
    #[tokio::test]
    async fn a_client_that_does_not_send_its_request_is_cut_off() {
        let server = serve(Bounds { head: SOON, ..ONE }).await;
        let _slow = begun(&server, "GET / HTTP/1.1\r\nHost: x\r\n").await;
        is_answered(&server).await;
        drop(server.stop);
        server.serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_answer_is_cut_off() {
        let server = serve(Bounds { age: SOON, last_answer: SOON, ..ONE }).await;
        let _deaf = begun(&server, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n").await;
        is_answered(&server).await;
    }

    #[tokio::test]
    async fn no_connection_outlives_the_server() {
        let server = serve(BOUNDS).await;
        let mut deaf = begun(&server, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n").await;
        deaf.read_u8().await.unwrap();
        drop(server.stop);
        server.serving.await.unwrap();
        assert_eq!(Arc::strong_count(&server.database), 1);
    }
}
