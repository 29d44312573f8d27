//! Bounds the time that a silent peer can hold a TCP connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

/// Longest time for the first bytes: those of HTTP/2's preface, or of the TLS handshake.
pub(crate) const GREETING: Duration = Duration::from_secs(10);
/// Number of these first bytes.
const GREETING_BYTES: usize = 24;
/// Longest silence of a connection.
const SILENCE: Duration = Duration::from_secs(120);

/// A TCP connection, which counts until it is dropped. After too long a silence, reading fails.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    /// Bytes received so far, counted up to the size of a greeting.
    greeted: usize,
    heard: Instant,
    alarm: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, permit: OwnedSemaphorePermit) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(
                %error,
                "a connection keeps Nagle's delay, because TCP_NODELAY could not be set"
            );
        }
        let heard = Instant::now();
        let alarm = Box::pin(sleep_until(heard + GREETING));
        Wire { stream, greeted: 0, heard, alarm, _permit: permit }
    }

    /// True until the peer has sent as many bytes as a greeting has.
    pub(crate) fn is_greeting(&self) -> bool {
        self.greeted < GREETING_BYTES
    }

    /// True once the peer has sent a byte.
    pub(crate) fn has_spoken(&self) -> bool {
        self.greeted > 0
    }

    /// The time by which the next bytes must arrive. Bytes that trickle do not extend the
    /// greeting.
    fn due(&self) -> Instant {
        if self.is_greeting() { self.heard + GREETING } else { self.heard + SILENCE }
    }

    fn hear(&mut self, bytes: usize) {
        let greeting = self.is_greeting();
        self.greeted = self.greeted.saturating_add(bytes).min(GREETING_BYTES);
        if !greeting || self.greeted == GREETING_BYTES {
            self.heard = Instant::now();
        }
    }
}

impl AsyncRead for Wire {
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

impl AsyncWrite for Wire {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;

    async fn pair() -> (TcpStream, Wire) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let wire = Wire::new(listener.accept().await.unwrap().0, permit);
        assert!(wire.stream.nodelay().unwrap());
        (client, wire)
    }

    #[tokio::test(start_paused = true)]
    async fn a_greeting_comes_soon_however_it_trickles() {
        let (mut client, mut taken) = pair().await;
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
        let (mut client, mut taken) = pair().await;
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
