//! Implements one connection to one service of a server: many calls at a time, answers in any
//! order.
//!
//! ```text
//! client -> "HBas" 0x00 0x50                                  (simple authentication)
//! client -> u32 length, ConnectionHeader
//! request:  u32 total, delimited RequestHeader, delimited message
//! response: u32 total, delimited ResponseHeader, delimited message
//! ```
//!
//! The header names no codec for cells, so the server puts them into its messages. Closing a
//! connection always resets it, so that requests which are still queued on this side do not reach
//! the server later. The server drops a request that it has received if it finds the connection
//! closed before it begins, or the request's time over. A request that it has begun may still be
//! applied.
//!
//! A caller may stop waiting at any moment, in the middle of a frame too. The next frame would then
//! be read as the rest of that one, so a connection with part of a frame sends no other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigtable::sync::locked;
use bytes::{Buf, Bytes, BytesMut};
use cluster_net::{Fault, Tls};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::client::{Access, Answer as _};
use crate::failure::Failure;
use crate::proto::{
    ConnectionHeader, MultiResponse, RequestHeader, ResponseHeader, ScanResponse, UserInformation,
};
use crate::regions::Region;

/// The first bytes of a connection: the protocol, its version, simple authentication.
const PREAMBLE: &[u8] = b"HBas\x00\x50";
/// Largest answer that the client reads.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Longest time in which a broken connection says why it broke.
const REASON_MAX: Duration = Duration::from_secs(1);
/// The first two bytes of an alert of TLS, where a frame has the upper half of its length.
const ALERT_BEGINS: usize = 0x1503;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    writer: tokio::sync::Mutex<Writer>,
    calls: Arc<Calls>,
    next_call: AtomicU32,
    reader: JoinHandle<()>,
}

/// The two halves of a stream with or without TLS.
type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// The connection's sending half.
struct Writer {
    /// `None` once the connection was closed.
    half: Option<WriteHalf>,
    /// True while a frame is written, and for ever if its writing was given up.
    within_frame: bool,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("within_frame", &self.within_frame).finish_non_exhaustive()
    }
}

type Answer = Result<Bytes, Failure>;

/// The calls that wait for an answer.
#[derive(Debug, Default)]
struct Calls {
    waiting: Mutex<HashMap<u32, oneshot::Sender<Answer>>>,
    broken: watch::Sender<bool>,
}

impl Calls {
    fn take(&self, call_id: u32) -> Option<oneshot::Sender<Answer>> {
        locked(&self.waiting).remove(&call_id)
    }

    /// Ends all calls, because the connection is gone.
    fn end(&self, why: &str) {
        self.end_with(&Failure::Lost(why.to_owned()));
    }

    fn end_with(&self, failure: &Failure) {
        // A caller that sees the end finds its failure.
        let mut waiting = locked(&self.waiting);
        self.broken.send_replace(true);
        for (_, call) in waiting.drain() {
            let _ = call.send(Err(failure.clone()));
        }
    }

    fn are_over(&self) -> bool {
        *self.broken.borrow()
    }

    /// Waits until the connection is gone.
    async fn over(&self) {
        let _ = self.broken.subscribe().wait_for(|broken| *broken).await;
    }
}

impl Connection {
    /// Connects to a service, such as `ClientService`, within the deadline of a request.
    pub(crate) async fn open(
        address: &str,
        service: &str,
        access: &Access,
    ) -> Result<Self, Failure> {
        let header = ConnectionHeader {
            user_info: Some(UserInformation { effective_user: access.user.clone() }),
            service_name: service.to_owned(),
        };
        let mut hello = PREAMBLE.to_vec();
        hello.extend((header.encoded_len() as u32).to_be_bytes());
        hello.extend(header.encode_to_vec());
        let opening = async {
            let (reader, mut writer) = halves(address, access).await?;
            writer.write_all(&hello).await?;
            writer.flush().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((reader, writer))
        };
        let failed = |why: String| Failure::Moved(format!("connecting to {address}: {why}"));
        let (reader, writer) = tokio::time::timeout(access.deadline, opening)
            .await
            .map_err(|_| failed("no answer in time".to_owned()))?
            .map_err(|error| match Fault::find(&*error) {
                Some(fault) => Failure::Denied(fault.to_string()),
                None => failed(error.to_string()),
            })?;
        let calls = Arc::new(Calls::default());
        let server = Server { address: address.to_owned(), tls: access.tls.clone() };
        let reader = tokio::spawn(read_answers(reader, calls.clone(), server));
        let writer = tokio::sync::Mutex::new(Writer { half: Some(writer), within_frame: false });
        Ok(Connection { writer, calls, next_call: AtomicU32::new(0), reader })
    }

    /// True if no further call can succeed.
    pub(crate) fn is_broken(&self) -> bool {
        self.calls.are_over()
    }

    /// Calls a method, and waits for its answer at most for `timeout`. The server drops a call
    /// that it cannot begin in that time. A call without an answer in time breaks the
    /// connection.
    pub(crate) async fn call<M: Message, R: Message + Default>(
        &self,
        method: &str,
        message: &M,
        timeout: Duration,
    ) -> Result<R, Failure> {
        let call_id = self.next_call.fetch_add(1, Ordering::Relaxed);
        let header = RequestHeader {
            call_id,
            method_name: method.to_owned(),
            request_param: true,
            timeout: timeout.as_millis().clamp(1, u128::from(u32::MAX)) as u32,
        };
        let frame = frame(&header, message);
        let (sender, receiver) = oneshot::channel();
        let calls = &self.calls;
        locked(&calls.waiting).insert(call_id, sender);
        // `end` may have drained the calls before this one was inserted.
        if self.is_broken() {
            calls.take(call_id);
            return Err(Failure::Moved("the connection is broken".to_owned()));
        }
        let exchange = async {
            self.send(&frame).await?;
            let gone = || Failure::Lost("the connection was closed".to_owned());
            receiver.await.unwrap_or_else(|_| Err(gone()))
        };
        let answer = match tokio::time::timeout(timeout, exchange).await {
            Ok(answer) => answer?,
            Err(_) => {
                self.close("a call had no answer in time").await;
                return Err(Failure::Lost("no answer in time".to_owned()));
            }
        };
        R::decode_length_delimited(answer)
            .map_err(|error| Failure::Lost(format!("the answer to {method}: {error}")))
    }

    /// Sends a request. If the connection breaks meanwhile, the call gets the reason as its answer.
    async fn send(&self, frame: &[u8]) -> Result<(), Failure> {
        let mut writer = self.writer.lock().await;
        let Writer { half, within_frame } = &mut *writer;
        let Some(half) = half.as_mut().filter(|_| !*within_frame && !self.is_broken()) else {
            self.calls.end("the connection broke while a request was sent");
            return Err(Failure::Moved("the connection broke before the request was sent".into()));
        };
        *within_frame = true;
        let sent = tokio::select! {
            sent = write(half, frame) => sent.map_err(|error| error.to_string()),
            () = self.calls.over() => Err("the connection was closed".to_owned()),
        };
        *within_frame = sent.is_err();
        if let Err(why) = sent {
            // The reader may know more: a server that refuses the client says so, and then closes.
            let _ = tokio::time::timeout(REASON_MAX, self.calls.over()).await;
            self.calls.end(&format!("the connection broke while a request was sent: {why}"));
        }
        Ok(())
    }

    /// Resets the connection and ends all calls.
    async fn close(&self, why: &str) {
        self.calls.end(why);
        self.reader.abort();
        // The socket closes when both of its halves are dropped.
        self.writer.lock().await.half = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        self.calls.end("the connection was dropped");
    }
}

/// Connects to a server. The stream closes with a reset when both halves are dropped.
async fn halves(
    address: &str,
    access: &Access,
) -> Result<(ReadHalf, WriteHalf), Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(access.way_to(address)).await?;
    stream.set_nodelay(true)?;
    stream.set_zero_linger()?;
    let Some(tls) = &access.tls else {
        let (reader, writer) = stream.into_split();
        return Ok((Box::new(reader), Box::new(writer)));
    };
    let (reader, writer) = tokio::io::split(tls.connect_to_host(stream, address).await?);
    Ok((Box::new(reader), Box::new(writer)))
}

/// Writes a frame, and leaves no part of it in the buffers of TLS.
async fn write(half: &mut WriteHalf, frame: &[u8]) -> std::io::Result<()> {
    half.write_all(frame).await?;
    half.flush().await
}

/// Encodes a request.
fn frame(header: &RequestHeader, message: &impl Message) -> BytesMut {
    let delimited = |len: usize| len + prost::length_delimiter_len(len);
    let total = delimited(header.encoded_len()) + delimited(message.encoded_len());
    let mut frame = BytesMut::with_capacity(4 + total);
    frame.extend((total as u32).to_be_bytes());
    header.encode_length_delimited(&mut frame).expect("a buffer that grows");
    message.encode_length_delimited(&mut frame).expect("a buffer that grows");
    frame
}

/// Passes each answer to its caller until the connection ends.
async fn read_answers(mut reader: ReadHalf, calls: Arc<Calls>, server: Server) {
    let mut answered = false;
    loop {
        let body = match read_frame(&mut reader).await {
            Ok(body) => body,
            Err(error) if answered => return calls.end_with(&server.lost(&error)),
            Err(error) => return calls.end_with(&server.without_answer(&error)),
        };
        let Some((call_id, answer)) = parse(body) else {
            return calls.end(&format!("{} sent an answer that cannot be read", server.address));
        };
        answered = true;
        if let Some(caller) = calls.take(call_id) {
            let _ = caller.send(answer);
        }
    }
}

/// The server at the other end of a connection.
struct Server {
    address: String,
    tls: Option<Tls>,
}

impl Server {
    fn lost(&self, error: &std::io::Error) -> Failure {
        Failure::Lost(format!("the connection to {}: {error}", self.address))
    }

    /// The failure of a connection that ended before the first answer. In TLS 1.3, the server
    /// refuses a certificate only after the client's part of the handshake. A server that demands
    /// TLS just closes a connection in plain text.
    fn without_answer(&self, error: &std::io::Error) -> Failure {
        use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
        if let Some(tls) = &self.tls {
            let fault = tls.fault_of_host(&self.address, error);
            return fault.map_or_else(|| self.lost(error), |f| Failure::Denied(f.to_string()));
        }
        match error.kind() {
            UnexpectedEof | ConnectionReset => Failure::Lost(format!(
                "the connection to {} ended before the first answer ({error}): the server may \
                 demand TLS: give tls=true in the address",
                self.address
            )),
            _ => self.lost(error),
        }
    }
}

async fn read_frame(reader: &mut ReadHalf) -> std::io::Result<Bytes> {
    let length = reader.read_u32().await? as usize;
    if length >> 16 == ALERT_BEGINS {
        let why = "the server demands TLS: give tls=true in the address, and certificates";
        return Err(std::io::Error::other(why));
    }
    if length > ANSWER_BYTES_MAX {
        let why = format!(
            "the server sent an answer of {length} bytes, and at most {ANSWER_BYTES_MAX} are read"
        );
        return Err(std::io::Error::other(why));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    Ok(body.into())
}

/// Splits an answer into the call's number and the message, which still has its length in
/// front.
fn parse(mut body: Bytes) -> Option<(u32, Answer)> {
    let length = prost::decode_length_delimiter(&mut body).ok()?;
    if length > body.remaining() {
        return None;
    }
    let header = ResponseHeader::decode(body.split_to(length)).ok()?;
    let answer = match &header.exception {
        Some(exception) => Err(Failure::from(exception)),
        None => Ok(body),
    };
    Some((header.call_id, answer))
}

/// Reads bytes as a server's answer, of each kind that has cells. It must not panic.
pub(crate) fn check_answer(bytes: &[u8]) {
    let Some((_, Ok(message))) = parse(Bytes::copy_from_slice(bytes)) else { return };
    let changed = MultiResponse::decode_length_delimited(message.clone());
    let _ = changed.is_ok_and(|answer| answer.failure().is_some());
    if let Ok(ScanResponse { results, .. }) = ScanResponse::decode_length_delimited(message) {
        // A row of `hbase:meta` has a message within a cell.
        let regions = results.iter().filter_map(|row| Region::of_meta(&row.cell));
        let _ = regions.filter(|region| region.contains(b"row")).count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_parse_or_are_refused() {
        let mut seed = 7_u64;
        for length in 0..400 {
            let mut bytes = Vec::new();
            for _ in 0..length {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bytes.push((seed >> 33) as u8);
            }
            check_answer(&bytes);
        }
        let header = ResponseHeader { call_id: 3, exception: None };
        let mut body = BytesMut::new();
        header.encode_length_delimited(&mut body).unwrap();
        assert!(matches!(parse(body.freeze()), Some((3, Ok(_)))));
    }

    /// The next frame would be read as the rest of the one that was given up.
    #[tokio::test]
    async fn nothing_is_sent_behind_a_part_of_a_frame() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let access = Access {
            seeds: Vec::new(),
            user: "me".to_owned(),
            deadline: Duration::from_secs(9),
            tls: None,
            plaintext_beyond_loopback: false,
            proxy: None,
        };
        let opened = Connection::open(&address, "ClientService", &access);
        let (connection, _unread) = tokio::join!(opened, server.accept());
        let connection = connection.unwrap();
        let message = |bytes| crate::proto::NamespaceDescriptor { name: vec![7; bytes].into() };
        let call = async |message| {
            connection
                .call::<_, crate::proto::Nothing>("Any", &message, Duration::from_secs(9))
                .await
        };
        {
            // The server reads nothing, so this is more than the sockets hold.
            let mut given_up = std::pin::pin!(call(message(64 << 20)));
            assert!(futures::poll!(given_up.as_mut()).is_pending());
        }
        let next = call(message(1)).await;
        assert!(matches!(next, Err(Failure::Moved(_))), "{next:?}");
        assert!(connection.is_broken());
    }
}
