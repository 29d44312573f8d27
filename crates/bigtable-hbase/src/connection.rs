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
//! A task of the connection reads and writes. If callers wrote, one that gives up in the middle of
//! a frame would spoil the next frame. A caller that is not polled would keep the lock of the
//! socket, and all others would wait for it forever.
//!
//! The task resets the connection when a request that it began to send has no answer at its
//! deadline. It does so whether or not a caller still waits. So no part of a request is sent later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use cluster_net::{Fault, Tls};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::calls::{Answer, Call, Calls, Wait};
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
/// Small requests that wait together are written together, up to about this size.
const WRITTEN_AT_ONCE: usize = 64 << 10;
/// Longest time in which a broken connection says why it broke.
const REASON_MAX: Duration = Duration::from_secs(1);
/// The first two bytes of an alert of TLS, where a frame has the upper half of its length.
const ALERT_BEGINS: usize = 0x1503;

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Numbers of calls whose requests are to be written.
    requests: mpsc::UnboundedSender<u32>,
    calls: Arc<Calls>,
    next_call: AtomicU32,
}

/// The two halves of a stream with or without TLS.
type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

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
        let (requests, queue) = mpsc::unbounded_channel();
        tokio::spawn(serve(reader, writer, queue, EndsCalls(calls.clone()), server));
        Ok(Connection { requests, calls, next_call: AtomicU32::new(0) })
    }

    /// True if no further call can succeed.
    pub(crate) fn is_broken(&self) -> bool {
        self.calls.are_over()
    }

    /// Calls a method, and waits for its answer at most for `timeout`. The server drops a call
    /// that it cannot begin in that time. A call that was sent, and has no answer in time, breaks
    /// the connection.
    pub(crate) async fn call<M: Message, R: Message + Default>(
        &self,
        method: &str,
        message: &M,
        timeout: Duration,
    ) -> Result<R, Failure> {
        let until = Instant::now() + timeout;
        let call_id = self.next_call.fetch_add(1, Ordering::Relaxed);
        let header = RequestHeader {
            call_id,
            method_name: method.to_owned(),
            request_param: true,
            timeout: timeout.as_millis().clamp(1, u128::from(u32::MAX)) as u32,
        };
        let frame = Some(frame(&header, message));
        let (caller, mut answer) = oneshot::channel();
        let added = self.calls.add(call_id, Call { caller, frame, until });
        let _wait = Wait(&self.calls, call_id);
        if !added || self.requests.send(call_id).is_err() {
            return Err(Failure::Moved("the connection is broken".to_owned()));
        }
        let answer = match tokio::time::timeout_at(until, &mut answer).await {
            Ok(answer) => answer,
            Err(_) if self.calls.withdraw(call_id) => {
                return Err(Failure::Moved("the request was not sent in time".to_owned()));
            }
            Err(_) => {
                if self.calls.has(call_id) {
                    self.calls.end(&Failure::Lost("a call had no answer in time".to_owned()));
                }
                answer.await
            }
        };
        let gone = |_| Err(Failure::Lost("the connection was closed".to_owned()));
        R::decode_length_delimited(answer.unwrap_or_else(gone)?)
            .map_err(|error| Failure::Lost(format!("the answer to {method}: {error}")))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.calls.end(&Failure::Lost("the connection was dropped".to_owned()));
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

/// Ends the calls of a connection also if its task is dropped, as at the end of its runtime.
struct EndsCalls(Arc<Calls>);

impl Drop for EndsCalls {
    fn drop(&mut self) {
        self.0.end(&Failure::Lost("the task of the connection has ended".to_owned()));
    }
}

/// Reads and writes until the connection ends, and resets it.
async fn serve(
    mut reader: ReadHalf,
    mut writer: WriteHalf,
    mut requests: mpsc::UnboundedReceiver<u32>,
    ends: EndsCalls,
    server: Server,
) {
    let calls = &*ends.0;
    let failure = tokio::select! {
        // Nothing is written any more once one of the first two is ready.
        biased;
        () = calls.over() => Failure::Lost("the connection was closed".to_owned()),
        () = calls.overdue() => Failure::Lost("a call had no answer in time".to_owned()),
        failure = read_answers(&mut reader, calls, &server) => failure,
        failure = write_requests(&mut writer, &mut requests, calls) => failure,
    };
    // The socket closes when both of its halves are dropped.
    drop((reader, writer));
    calls.end(&failure);
}

/// Writes requests until that fails.
async fn write_requests(
    half: &mut WriteHalf,
    requests: &mut mpsc::UnboundedReceiver<u32>,
    calls: &Calls,
) -> Failure {
    while let Some(first) = requests.recv().await {
        let (mut frames, mut earliest, mut next) = (BytesMut::new(), None, Some(first));
        while let Some(call_id) = next {
            if let Some((frame, until)) = calls.send(call_id) {
                // This copies no frame that is alone.
                frames.unsplit(frame);
                earliest = Some(earliest.map_or(until, |other| until.min(other)));
            }
            let full = frames.len() >= WRITTEN_AT_ONCE;
            next = if full { None } else { requests.try_recv().ok() };
        }
        let Some(until) = earliest else { continue };
        let written = async {
            half.write_all(&frames).await?;
            // This leaves nothing in the buffers of TLS.
            half.flush().await
        };
        match tokio::time::timeout_at(until, written).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // The reader may know more: a server that refuses the client says so, and closes.
                tokio::time::sleep(REASON_MAX).await;
                let why = format!("the connection broke while a request was sent: {error}");
                return Failure::Lost(why);
            }
            Err(_) => return Failure::Lost("a request could not be sent in time".to_owned()),
        }
    }
    Failure::Lost("the connection was dropped".to_owned())
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

/// Passes each answer to its caller until that fails.
async fn read_answers(reader: &mut ReadHalf, calls: &Calls, server: &Server) -> Failure {
    let mut answered = false;
    loop {
        let body = match read_frame(reader).await {
            Ok(body) => body,
            Err(error) if answered => return server.lost(&error),
            Err(error) => return server.without_answer(&error),
        };
        let Some((call_id, answer)) = parse(body) else {
            let why = format!("{} sent an answer that cannot be read", server.address);
            return Failure::Lost(why);
        };
        answered = true;
        if let Some(call) = calls.take(call_id) {
            let _ = call.caller.send(answer);
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
    use std::sync::Mutex;

    use bigtable::sync::locked;

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

    /// A server, and a connection to it.
    async fn connected() -> (TcpStream, Connection) {
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
        let (connection, accepted) = tokio::join!(opened, server.accept());
        (accepted.unwrap().0, connection.unwrap())
    }

    async fn call(connection: &Connection, bytes: usize, timeout: Duration) -> Result<(), Failure> {
        let message = crate::proto::NamespaceDescriptor { name: vec![7; bytes].into() };
        let answer: Result<crate::proto::Nothing, _> =
            connection.call("Any", &message, timeout).await;
        answer.map(drop)
    }

    /// Reads requests, notes their numbers, and sends an empty answer to each.
    async fn answer(server: TcpStream, read: Arc<Mutex<Vec<u32>>>) -> std::io::Result<()> {
        let (reader, mut writer) = server.into_split();
        let mut reader: ReadHalf = Box::new(reader);
        let mut preamble = [0; PREAMBLE.len()];
        reader.read_exact(&mut preamble).await?;
        read_frame(&mut reader).await?;
        loop {
            let body = read_frame(&mut reader).await?;
            let RequestHeader { call_id, .. } = RequestHeader::decode_length_delimited(body)?;
            locked(&read).push(call_id);
            let header = ResponseHeader { call_id, exception: None };
            let mut answer = header.encode_length_delimited_to_vec();
            answer.push(0);
            writer.write_all(&(answer.len() as u32).to_be_bytes()).await?;
            writer.write_all(&answer).await?;
        }
    }

    /// Waits until the first request is on its way.
    async fn first_is_sent(connection: &Connection) {
        let sent = async {
            while !connection.calls.is_sent(0) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, sent).await.expect("the request is sent");
    }

    /// More than the sockets hold.
    const MUCH: usize = 64 << 20;
    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn a_request_behind_one_that_the_server_does_not_read_is_not_sent() {
        let (_server, connection) = connected().await;
        let mut first = std::pin::pin!(call(&connection, MUCH, LONG));
        assert!(futures::poll!(first.as_mut()).is_pending());
        first_is_sent(&connection).await;
        let next = call(&connection, 1, SHORT).await;
        assert!(matches!(next, Err(Failure::Moved(_))), "{next:?}");
        assert!(!connection.is_broken(), "the first call still has time");
    }

    /// Whether or not its caller is polled.
    #[tokio::test]
    async fn a_request_without_an_answer_at_its_deadline_resets_the_connection() {
        let (mut server, connection) = connected().await;
        // Long enough to encode the request on a busy machine.
        let mut first = std::pin::pin!(call(&connection, MUCH, 3000 * SHORT));
        assert!(futures::poll!(first.as_mut()).is_pending());
        first_is_sent(&connection).await;
        let mut behind = std::pin::pin!(call(&connection, 1, LONG));
        assert!(futures::poll!(behind.as_mut()).is_pending());
        tokio::time::timeout(LONG, connection.calls.over()).await.expect("it is reset");
        let (first, behind) = (first.await, behind.await);
        assert!(matches!(first, Err(Failure::Lost(_))), "{first:?}");
        assert!(matches!(behind, Err(Failure::Moved(_))), "{behind:?}");
        let later = call(&connection, 1, LONG).await;
        assert!(matches!(later, Err(Failure::Moved(_))), "{later:?}");
        let mut read = Vec::new();
        let end = server.read_to_end(&mut read).await.expect_err("a reset");
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
        assert!(read.len() < MUCH, "the request was sent whole");
    }

    /// A test's runtime may end, and a store may outlive it.
    #[test]
    fn a_connection_whose_runtime_has_ended_is_broken() {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().expect("a runtime")
        };
        let (_server, connection) = runtime().block_on(async {
            let (server, connection) = connected().await;
            (server.into_std().expect("a socket"), connection)
        });
        assert!(connection.is_broken());
        let later = runtime().block_on(call(&connection, 1, LONG));
        assert!(matches!(later, Err(Failure::Moved(_))), "{later:?}");
    }

    /// A branch of `select!` that awaits leaves the other futures unpolled.
    #[tokio::test]
    async fn h77_a_call_that_is_not_polled_holds_up_no_other() {
        let (server, connection) = connected().await;
        let mut first = std::pin::pin!(call(&connection, MUCH, LONG));
        let mut unpolled = std::pin::pin!(call(&connection, 1, LONG));
        assert!(futures::poll!(first.as_mut()).is_pending());
        assert!(futures::poll!(unpolled.as_mut()).is_pending());
        let answers = tokio::spawn(answer(server, Arc::default()));
        first.await.unwrap();
        call(&connection, 1, LONG).await.unwrap();
        unpolled.await.unwrap();
        answers.abort();
    }

    #[tokio::test]
    async fn a_request_that_was_given_up_or_is_late_is_not_sent() {
        let (server, connection) = connected().await;
        let mut first = Box::pin(call(&connection, MUCH, LONG));
        let mut given_up = Box::pin(call(&connection, 1, LONG));
        let mut late = Box::pin(call(&connection, 1, SHORT));
        assert!(futures::poll!(first.as_mut()).is_pending());
        first_is_sent(&connection).await;
        assert!(futures::poll!(given_up.as_mut()).is_pending());
        drop(given_up);
        assert!(futures::poll!(late.as_mut()).is_pending());
        let passed = Instant::now() + SHORT;
        tokio::time::sleep_until(passed).await;
        let read = Arc::default();
        let answers = tokio::spawn(answer(server, Arc::clone(&read)));
        first.await.unwrap();
        call(&connection, 1, LONG).await.unwrap();
        assert_eq!(*locked(&read), [0, 3]);
        let late = late.await;
        assert!(matches!(late, Err(Failure::Moved(_))), "{late:?}");
        assert!(connection.calls.is_empty());
        answers.abort();
    }

    /// The server must not read the next frame as the rest of that one.
    #[tokio::test]
    async fn a_request_that_was_given_up_in_the_middle_is_sent_whole() {
        let (server, connection) = connected().await;
        let mut first = Box::pin(call(&connection, MUCH, LONG));
        assert!(futures::poll!(first.as_mut()).is_pending());
        first_is_sent(&connection).await;
        drop(first);
        let read = Arc::default();
        let answers = tokio::spawn(answer(server, Arc::clone(&read)));
        call(&connection, 1, LONG).await.unwrap();
        assert_eq!(*locked(&read), [0, 1]);
        answers.abort();
    }
}
