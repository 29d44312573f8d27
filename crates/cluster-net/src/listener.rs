//! Implements a listener that strangers cannot exhaust.
//!
//! Anyone who reaches the server can open a connection and send nothing, or half a word. So the
//! listener bounds the number of connections. It demands the first bytes soon, and ends a
//! silent connection. A live client is never silent for so long, because it answers the pings
//! of HTTP/2, which servers send more often. After an error of the listener, such as a lack of
//! file descriptors, it pauses and goes on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Longest time for the first bytes: those of HTTP/2's preface, or of the TLS handshake.
const GREETING: Duration = Duration::from_secs(10);
/// Number of these first bytes.
const GREETING_BYTES: usize = 24;
/// Longest silence of a connection.
const SILENCE: Duration = Duration::from_secs(120);
/// Pause after an error of the listener.
const PAUSE: Duration = Duration::from_millis(50);

/// The connections of a server, for `serve_with_incoming`. They are without Nagle's delay.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use cluster_net::Incoming;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let incoming = Incoming::new(listener, 1000);
/// # drop(incoming);
/// # Ok::<(), std::io::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// Accepts at most this many connections at a time, and closes further ones at once.
    pub fn new(listener: TcpListener, connections_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Incoming { listener, permits, pause: None }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, peer)) => match self.permits.clone().try_acquire_owned() {
                    Ok(permit) => return Poll::Ready(Some(Ok(Connection::new(stream, permit)))),
                    Err(_) => tracing::debug!(%peer, "no room for another connection"),
                },
                Err(error) => {
                    tracing::warn!(%error, "the listener cannot accept a connection at the moment");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }
}

/// A connection, which counts until it is dropped. After too long a silence, reading fails.
///
/// See [`Incoming`].
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Bytes received so far, counted up to the size of a greeting.
    greeted: usize,
    heard: Instant,
    alarm: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: TcpStream, permit: OwnedSemaphorePermit) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(
                %error,
                "a connection keeps Nagle's delay, because TCP_NODELAY could not be set"
            );
        }
        let heard = Instant::now();
        let alarm = Box::pin(sleep_until(heard + GREETING));
        Connection { stream, greeted: 0, heard, alarm, _permit: permit }
    }

    /// The time by which the next bytes must arrive. Bytes that trickle do not extend the
    /// greeting.
    fn due(&self) -> Instant {
        if self.greeted < GREETING_BYTES { self.heard + GREETING } else { self.heard + SILENCE }
    }

    fn hear(&mut self, bytes: usize) {
        let greeting = self.greeted < GREETING_BYTES;
        self.greeted = self.greeted.saturating_add(bytes).min(GREETING_BYTES);
        if !greeting || self.greeted == GREETING_BYTES {
            self.heard = Instant::now();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.hear(buf.filled().len() - before);
            return Poll::Ready(read);
        }
        loop {
            ready!(this.alarm.as_mut().poll(cx));
            let due = this.due();
            if due <= Instant::now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            this.alarm.as_mut().reset(due);
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn listen(connections_max: usize) -> (Incoming, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Incoming::new(listener, connections_max), address)
    }

    #[tokio::test]
    async fn connections_are_counted_and_without_delay() {
        let (mut incoming, address) = listen(1).await;
        let _client = TcpStream::connect(address).await.unwrap();
        let first = incoming.next().await.unwrap().unwrap();
        assert!(first.stream.nodelay().unwrap());
        let mut beyond = TcpStream::connect(address).await.unwrap();
        let mut taken = tokio::spawn(async move { incoming.next().await.unwrap().unwrap() });
        // The listener closes this connection without reading from it.
        assert!(matches!(beyond.read(&mut [0]).await, Ok(0) | Err(_)));
        assert!(!taken.is_finished());
        drop(first);
        let _third = TcpStream::connect(address).await.unwrap();
        (&mut taken).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_greeting_comes_soon_however_it_trickles() {
        let (mut incoming, address) = listen(1).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let mut taken = incoming.next().await.unwrap().unwrap();
        let (began, mut read) = (Instant::now(), 0);
        let error = loop {
            client.write_all(b"x").await.unwrap();
            read += taken.read(&mut [0; 100]).await.unwrap();
            let mut next = [0; 100];
            let next = taken.read(&mut next);
            if let Ok(ended) = tokio::time::timeout(Duration::from_secs(3), next).await {
                break ended.unwrap_err();
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!((read, began.elapsed().as_secs()), (4, GREETING.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_silent_is_ended_and_one_that_speaks_is_not() {
        let (mut incoming, address) = listen(1).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let mut taken = incoming.next().await.unwrap().unwrap();
        for _ in 0..5 {
            client.write_all(&[b'x'; 100]).await.unwrap();
            assert_eq!(taken.read(&mut [0; 100]).await.unwrap(), 100);
            tokio::time::advance(SILENCE - Duration::from_secs(1)).await;
        }
        client.write_all(b"x").await.unwrap();
        taken.read_exact(&mut [0]).await.unwrap();
        let began = Instant::now();
        assert_eq!(taken.read(&mut [0]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!((SILENCE..SILENCE * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}
