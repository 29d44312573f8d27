//! Makes the TLS handshake of an accepted connection, and names the reason if it is refused.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::{AlertDescription, InvalidMessage};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

use crate::certificate::Facts;
use crate::fault::{Flaw, of_tls};
use crate::peer::Peer;
use crate::refusals::{Reason, Refusals};
use crate::tls::{HANDSHAKE, Tls};
use crate::verify::Shown;
use crate::wire::{GREETING, Wire};

/// Longest time that a refused peer may take to read the reason, and the most bytes that it may
/// send meanwhile.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_BYTES: u64 = 64 << 10;

/// The first byte of a TLS connection, and of its version: a handshake message, TLS 1.0 to 1.3.
const TLS_BEGINS: [u8; 2] = [0x16, 0x03];

/// A connection of a server: over TLS if the server has certificates.
///
/// See [`Incoming`](crate::Incoming).
#[derive(Debug)]
pub struct Connection {
    io: Io,
    peer: Peer,
}

type Io = Either<Wire, Box<TlsStream<Wire>>>;

impl Connection {
    pub(crate) fn plain(wire: Wire, address: SocketAddr, refusals: Arc<Refusals>) -> Self {
        Connection { io: Io::Left(wire), peer: Peer::new(address, None, refusals) }
    }

    /// Makes the handshake. Returns `None`, and logs the reason, if the peer is refused.
    pub(crate) async fn secured(
        wire: Wire,
        address: SocketAddr,
        tls: Tls,
        refusals: Arc<Refusals>,
    ) -> Option<Self> {
        let loaded = tls.current();
        let (config, shown) = match loaded.for_server() {
            Ok(made) => made,
            Err(error) => {
                let why = || format!("the server's certificates cannot be used: {error}");
                refusals.refuse(Reason::Handshake, address, why);
                return None;
            }
        };
        let handshake = TlsAcceptor::from(config).accept(wire).into_fallible();
        let Ok(made) = timeout(HANDSHAKE, handshake).await else {
            refusals.refuse(Reason::TooSlow, address, || {
                format!("its TLS handshake took longer than {} s", HANDSHAKE.as_secs())
            });
            return None;
        };
        match made {
            Ok(stream) => {
                let peer = Peer::new(address, shown.facts(), refusals);
                Some(Connection { io: Io::Right(Box::new(stream)), peer })
            }
            Err((error, wire)) => {
                match why_not(&error, &shown, loaded.facts()) {
                    Some((reason, why)) => refusals.refuse(reason, address, || why),
                    // Probes of load balancers connect and close, for example.
                    None => tracing::debug!(
                        peer = %address, %error, "a connection ended during the TLS handshake"
                    ),
                }
                farewell(wire).await;
                None
            }
        }
    }

    /// Refuses TLS, of which this server cannot read a word, and a peer that does not greet.
    fn check_plain(&self, first: Option<&[u8]>, read: &Poll<io::Result<()>>) -> io::Result<()> {
        let Io::Left(wire) = &self.io else { return Ok(()) };
        if first.is_some_and(|bytes| bytes.starts_with(&TLS_BEGINS)) {
            self.peer.refuse(Reason::Encrypted, || {
                "it sends TLS, and this server has no certificate".to_owned()
            });
            return Err(io::Error::new(io::ErrorKind::InvalidData, "TLS instead of plain text"));
        }
        if let Poll::Ready(Err(error)) = read
            && error.kind() == io::ErrorKind::TimedOut
            && wire.is_greeting()
        {
            self.peer.refuse(Reason::TooSlow, || {
                format!("it did not send its first bytes within {} s", GREETING.as_secs())
            });
        }
        Ok(())
    }
}

/// The reason of a failed handshake, and a sentence about it. `None` if the peer has gone.
fn why_not(error: &io::Error, shown: &Shown, own: &Facts) -> Option<(Reason, String)> {
    let error = of_tls(error)?;
    let shown = shown.facts();
    let certificate = match &shown {
        Some(facts) => format!("its certificate ({facts})"),
        None => "its certificate".to_owned(),
    };
    let (begin, end) = match &shown {
        Some(facts) => (facts.begin(), facts.end()),
        None => Default::default(),
    };
    Some(match error {
        rustls::Error::NoCertificatesPresented => {
            (Reason::NoCertificate, "it shows no certificate".to_owned())
        }
        rustls::Error::InvalidCertificate(error) => match Flaw::of(error) {
            Flaw::Expired => (Reason::Expired, format!("{certificate} expired on {end}")),
            Flaw::NotYetValid => {
                (Reason::NotYetValid, format!("{certificate} is valid only from {begin}"))
            }
            Flaw::Foreign => {
                (Reason::ForeignAuthority, format!("another authority has signed {certificate}"))
            }
            Flaw::WrongName | Flaw::Other => {
                (Reason::BadCertificate, format!("{certificate} is not accepted: {error}"))
            }
        },
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            let why = "it sends plain text, and this server demands TLS";
            (Reason::PlainText, why.to_owned())
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => (
            Reason::NotTrusted,
            format!(
                "it takes the certificate of this server ({own}, valid until {}) for expired",
                own.end()
            ),
        ),
        rustls::Error::AlertReceived(alert) => (
            Reason::NotTrusted,
            format!("it does not accept the certificate of this server ({own}): {alert:?}"),
        ),
        error => (Reason::Handshake, format!("the TLS handshake failed: {error}")),
    })
}

/// Closes a refused connection so that the peer can read the reason. A socket that is closed with
/// unread bytes would be reset, and the peer may then lose the last bytes sent to it.
async fn farewell(mut wire: Wire) {
    let read = async {
        wire.shutdown().await?;
        tokio::io::copy(&mut wire.take(FAREWELL_BYTES), &mut tokio::io::sink()).await
    };
    let _ = timeout(FAREWELL, read).await;
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let wire = match &mut this.io {
            Io::Right(stream) => return Pin::new(stream).poll_read(cx, buf),
            Io::Left(wire) => wire,
        };
        if !wire.is_greeting() {
            return Pin::new(wire).poll_read(cx, buf);
        }
        let is_first = !wire.has_spoken();
        let before = buf.filled().len();
        let read = Pin::new(wire).poll_read(cx, buf);
        let first = is_first.then(|| &buf.filled()[before..]);
        this.check_plain(first, &read)?;
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
