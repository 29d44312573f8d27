//! Implements a peer that sends each message back.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

/// Length of a message, in bytes: about that of a request for timestamps.
pub(super) const MESSAGE_BYTES: usize = 32;

/// Connects to a thread that sends each message back, and ends with the connection.
pub(super) fn echo() -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let (mut peer, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    peer.set_nodelay(true)?;
    std::thread::spawn(move || {
        let mut message = [0; MESSAGE_BYTES];
        while peer.read_exact(&mut message).and_then(|()| peer.write_all(&message)).is_ok() {}
    });
    Ok(stream)
}

/// Sends messages for waiting callers as the oracle's client does: one at a time, for all
/// callers that wait when it leaves.
#[derive(Debug)]
pub(super) struct Batches(mpsc::UnboundedSender<oneshot::Sender<()>>);

impl Batches {
    /// Opens a connection, which ends when this is dropped.
    pub(super) fn start() -> anyhow::Result<Self> {
        let stream = echo()?;
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::TcpStream::from_std(stream)?;
        let (sender, mut callers) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
        tokio::spawn(async move {
            let (mut batch, mut message) = (Vec::new(), [7; MESSAGE_BYTES]);
            while callers.recv_many(&mut batch, usize::MAX).await > 0 {
                stream.write_all(&message).await?;
                stream.read_exact(&mut message).await?;
                for caller in batch.drain(..) {
                    // The caller may have given up.
                    let _ = caller.send(());
                }
            }
            Ok::<_, std::io::Error>(())
        });
        Ok(Batches(sender))
    }

    /// Waits for the return of a message that leaves after this call.
    pub(super) async fn ask(&self) -> anyhow::Result<()> {
        let (sender, answer) = oneshot::channel();
        self.0.send(sender).ok().context("the connection ended")?;
        answer.await.context("the connection ended")
    }
}
