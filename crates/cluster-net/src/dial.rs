//! Makes the connections of a client, and names the fault if one of the ends refuses.
//!
//! In TLS 1.3 the client's part of the handshake ends before the server has checked the client's
//! certificate. A refusal arrives only after that, instead of the first bytes of HTTP/2. If a
//! request were sent meanwhile, its sender could not tell a refusal from a broken connection. So
//! the dialer greets the server itself. It sends the 24 bytes with which every client of HTTP/2
//! begins, and waits for the first bytes of the answer. Then a refusal is an error of the
//! connection, and no request was sent. In plain text, a server that demands TLS is known by its
//! answer, too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tonic::codegen::StdError;
use tonic::transport::{Channel, Endpoint};
use tower::Service;

use crate::fault::{Ends, Fault, PLAIN, PLAIN_TO_HOST};
use crate::tls::HANDSHAKE;
use crate::{Role, Tls};

/// The first bytes of every client of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Longest time that the dialer waits for the first bytes of a server. Servers of HTTP/2 may wait
/// for more than the preface. After this time the connection is used as it is.
const GREETING: Duration = Duration::from_secs(2);
/// Most bytes that are read as the first ones.
const FIRST_BYTES: usize = 64;
/// The first byte of an alert of TLS, and of its version.
const ALERT_BEGINS: [u8; 2] = [0x15, 0x03];

/// Connects to the servers of one role, with the certificates of this process or in plain text.
///
/// ```
/// use cluster_net::{Dialer, Role};
/// use tonic::transport::Endpoint;
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let dialer = Dialer::to(Role::Oracle, None);
/// let endpoint = dialer.endpoint("127.0.0.1:1")?;
/// assert!(dialer.connect(&endpoint).await.is_err());
/// # Ok::<(), tonic::transport::Error>(()) }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Dialer {
    tcp: HttpConnector,
    role: Role,
    tls: Option<Tls>,
}

impl Dialer {
    /// Makes a dialer for servers of this role.
    pub fn to(role: Role, tls: Option<Tls>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        Dialer { tcp, role, tls }
    }

    /// Makes the endpoint for a server at `HOST:PORT`. Connect it with this dialer.
    ///
    /// # Errors
    /// If the address is malformed.
    pub fn endpoint(&self, address: &str) -> Result<Endpoint, tonic::transport::Error> {
        // Only tonic's own TLS wants the scheme `https` here. The origin is for the server's eyes.
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let origin = Uri::builder().scheme("https").authority(address).path_and_query("/").build();
        match origin {
            Ok(origin) if self.tls.is_some() => Ok(endpoint.origin(origin)),
            _ => Ok(endpoint),
        }
    }

    /// Connects now.
    ///
    /// # Errors
    /// If there is no connection. [`Fault::find`] finds the fault that a person must remove.
    pub async fn connect(&self, endpoint: &Endpoint) -> Result<Channel, tonic::transport::Error> {
        endpoint.connect_with_connector(self.clone()).await
    }

    /// Connects at the first request, and again after a connection has ended.
    pub fn connect_lazy(&self, endpoint: &Endpoint) -> Channel {
        endpoint.connect_with_connector_lazy(self.clone())
    }

    /// Makes the handshake and greets the server over an open TCP connection.
    async fn secure(
        tcp: TcpStream,
        server: &str,
        role: Role,
        tls: &Tls,
    ) -> Result<Dialed, StdError> {
        let loaded = tls.current();
        let (config, shown) = loaded.for_client()?;
        let name = ServerName::try_from(role.name()).expect("names of roles are DNS names");
        let made = timeout(HANDSHAKE, async {
            let stream = TlsConnector::from(config).connect(name, tcp).await?;
            greet(Either::Right(Box::new(stream))).await
        });
        let made = made.await.unwrap_or_else(|_| Err(late()));
        let shown = shown.facts();
        let (name, shown) = (role.name(), shown.as_ref());
        let ends = Ends { server, name, shown, own: loaded.facts(), plain: PLAIN };
        made.map_err(|error| match ends.fault(&error) {
            Some(fault) => fault.into(),
            None => error.into(),
        })
    }
}

fn late() -> io::Error {
    let why = format!("the TLS handshake took longer than {} s", HANDSHAKE.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, why)
}

impl Tls {
    /// Makes the handshake over an open connection with a server at `HOST:PORT` that is identified
    /// by its host. The server may speak any protocol.
    ///
    /// # Errors
    /// If there is no handshake within five seconds, or if one of the ends refuses the other.
    /// [`Fault::find`] finds the fault that a person must remove.
    pub async fn connect_to_host(
        &self,
        tcp: TcpStream,
        address: &str,
    ) -> Result<TlsStream<TcpStream>, StdError> {
        let host = host_of(address);
        let loaded = self.current();
        let (config, shown) = loaded.for_client_of_any()?;
        let name = ServerName::try_from(host.to_owned())?;
        let made = timeout(HANDSHAKE, TlsConnector::from(config).connect(name, tcp)).await;
        let server = format!("the server at {address}");
        let shown = shown.facts();
        let (shown, own) = (shown.as_ref(), loaded.facts());
        let ends = Ends { server: &server, name: host, shown, own, plain: PLAIN_TO_HOST };
        made.unwrap_or_else(|_| Err(late())).map_err(|error| match ends.fault(&error) {
            Some(fault) => fault.into(),
            None => error.into(),
        })
    }

    /// Returns the fault that a server at `HOST:PORT` names in an error of the first read. In TLS
    /// 1.3, the server checks the client's certificate after the client's part of the handshake, so
    /// its refusal arrives only then.
    pub fn fault_of_host(&self, address: &str, error: &io::Error) -> Option<Fault> {
        let (loaded, server) = (self.current(), format!("the server at {address}"));
        let (name, own) = (host_of(address), loaded.facts());
        Ends { server: &server, name, shown: None, own, plain: PLAIN_TO_HOST }.fault(error)
    }
}

/// The host of `HOST:PORT`.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Dialed>;
    type Error = StdError;
    type Future = BoxFuture<'static, Result<Self::Response, StdError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (role, tls) = (self.role, self.tls.clone());
        let address = uri.authority().map(ToString::to_string).unwrap_or_default();
        let server = format!("the {} at {address}", role.noun());
        let connecting = self.tcp.call(uri);
        async move {
            let tcp = connecting.await?.into_inner();
            let dialed = match &tls {
                Some(tls) => Dialer::secure(tcp, &server, role, tls).await?,
                None => greet(Either::Left(tcp)).await?,
            };
            if tls.is_none() && dialed.first.starts_with(&ALERT_BEGINS) {
                return Err(Fault::encrypted(&server).into());
            }
            Ok(TokioIo::new(dialed))
        }
        .boxed()
    }
}

/// A connection that a [`Dialer`] has made. The preface was sent, and perhaps the first bytes were
/// read.
#[derive(Debug)]
pub struct Dialed {
    io: Io,
    /// The first bytes, until they are read.
    first: Vec<u8>,
    /// How much of the preface HTTP/2 has written since.
    sent: usize,
}

type Io = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Sends the preface, and waits for the first bytes of the server.
async fn greet(mut io: Io) -> io::Result<Dialed> {
    io.write_all(PREFACE).await?;
    io.flush().await?;
    let mut first = vec![0; FIRST_BYTES];
    let read = match timeout(GREETING, io.read(&mut first)).await {
        Ok(Ok(0)) => {
            let why = "the server closed the connection before its first byte";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        Ok(read) => read?,
        Err(_) => 0,
    };
    first.truncate(read);
    Ok(Dialed { io, first, sent: 0 })
}

impl Dialed {
    /// Takes bytes of the preface, which the server has already. Returns `None` once it has all.
    fn take_preface(&mut self, bytes: &[u8]) -> Option<io::Result<usize>> {
        let rest = &PREFACE[self.sent..];
        if rest.is_empty() || bytes.is_empty() {
            return None;
        }
        let taken = rest.len().min(bytes.len());
        if rest[..taken] != bytes[..taken] {
            let why = "the client does not begin with the preface of HTTP/2";
            return Some(Err(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        self.sent += taken;
        Some(Ok(taken))
    }
}

impl AsyncRead for Dialed {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let bytes = this.first.len().min(buf.remaining());
        buf.put_slice(&this.first[..bytes]);
        this.first.drain(..bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.take_preface(buf) {
            Some(taken) => Poll::Ready(taken),
            None => Pin::new(&mut this.io).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let first = bufs.iter().find(|buf| !buf.is_empty());
        match first.and_then(|first| this.take_preface(first)) {
            Some(taken) => Poll::Ready(taken),
            None => Pin::new(&mut this.io).poll_write_vectored(cx, bufs),
        }
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
