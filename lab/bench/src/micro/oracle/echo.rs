//! A peer that sends back what it gets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

/// Length of a message that is sent to and fro: about that of a request for timestamps.
pub(super) const MESSAGE_BYTES: usize = 32;

/// A connection to a thread that sends back what it gets, and ends with the connection.
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

/// Callers for whom messages go to and fro, as the oracle's client does it: one at a time, for all
/// who wait when it leaves.
#[derive(Debug)]
pub(super) struct Batches(mpsc::UnboundedSender<oneshot::Sender<()>>);

impl Batches {
    /// Over a connection of its own; ends with this.
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
                    // Nobody may wait any more.
                    let _ = caller.send(());
                }
            }
            Ok::<_, std::io::Error>(())
        });
        Ok(Batches(sender))
    }

    /// Waits for a message that leaves from now on to come back.
    pub(super) async fn ask(&self) -> anyhow::Result<()> {
        let (sender, answer) = oneshot::channel();
        self.0.send(sender).ok().context("the connection ended")?;
        answer.await.context("the connection ended")
    }
}
