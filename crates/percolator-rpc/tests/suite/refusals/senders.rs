//! Tests senders that stop in the middle, send too much, or send garbage.

#[path = "../../../../cluster-net/tests/support/slow.rs"]
mod slow;

use std::sync::Arc;
use std::time::Duration;

use bigtable::MemoryStore;
use percolator::cluster::Oracle;
use percolator_rpc::oracle::{OracleServerOptions, RemoteOracle, RemoteOracleOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tower::Service;

use crate::world::{Process, client, start, start_with};
use slow::{half_a_request, jump};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SERVE: &str = "http://oracle/percolator.oracle.v1.Oracle/Serve";
/// Largest request that the server reads.
const REQUEST_BYTES_MAX: u32 = 256;

async fn connect(process: &Process) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", process.server.address())).unwrap();
    endpoint.connect().await.unwrap()
}

/// The status code at the end of a stream.
async fn code(mut channel: Channel, request: http::Request<tonic::body::Body>) -> Code {
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    let answer = channel.call(request).await.unwrap();
    let of = |headers: &http::HeaderMap| {
        headers.get("grpc-status").map(|code| Code::from_bytes(code.as_bytes()))
    };
    if let Some(code) = of(answer.headers()) {
        return code;
    }
    let mut body = Box::pin(answer.into_body());
    while let Some(frame) =
        std::future::poll_fn(|cx| http_body::Body::poll_frame(body.as_mut(), cx)).await
    {
        if let Some(code) = frame.unwrap().trailers_ref().and_then(of) {
            return code;
        }
    }
    panic!("the stream ends without a status")
}

async fn answers(process: &Process) {
    client([process.address()]).timestamp().await.unwrap();
}

#[tokio::test]
async fn half_a_preface_holds_nothing_for_ever_and_stops_nobody() {
    let process = start(&Arc::new(MemoryStore::new())).await;
    process.leads().await;
    let mut slow = Vec::new();
    for n in 0..PREFACE.len() {
        let mut stream = TcpStream::connect(process.server.address()).await.unwrap();
        stream.write_all(&PREFACE[..n]).await.unwrap();
        slow.push(stream);
    }
    answers(&process).await;
    jump(Duration::from_secs(11)).await;
    for mut stream in slow {
        // Reads the server's own frames, up to the end of the connection.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}

#[tokio::test]
async fn half_a_message_holds_nothing_for_ever_and_stops_nobody() {
    let options = OracleServerOptions { clients_max: 4, ..OracleServerOptions::default() };
    let process = start_with(&Arc::new(MemoryStore::new()), options).await;
    process.leads().await;
    let channel = connect(&process).await;
    let slow = |begun| tokio::spawn(code(channel.clone(), half_a_request(SERVE, 100, begun)));
    let slow: [_; 3] = [&b""[..], b"half", b"half"].map(slow);
    answers(&process).await;
    // The streams end although their connection lives, and then other clients find room.
    for _ in 0..4 {
        jump(Duration::from_secs(100)).await;
        // The answer to the server's ping arrives between these requests.
        for _ in 0..2 {
            let nothing = half_a_request("http://oracle/no.Service/Method", 0, b"");
            assert_eq!(code(channel.clone(), nothing).await, Code::Unimplemented);
        }
    }
    for slow in slow {
        assert_eq!(slow.await.unwrap(), Code::Ok);
    }
    let clients: Vec<_> = (0..4).map(|_| client([process.address()])).collect();
    for client in &clients {
        client.timestamp().await.unwrap();
    }
}

/// An idle client loses its place, and gets another at its next request.
#[tokio::test]
async fn a_client_that_was_idle_does_not_notice() {
    let options = OracleServerOptions { clients_max: 1, ..OracleServerOptions::default() };
    let process = start_with(&Arc::new(MemoryStore::new()), options).await;
    process.leads().await;
    let (idle, other) = (client([process.address()]), client([process.address()]));
    let first = idle.timestamp().await.unwrap().timestamp;
    jump(Duration::from_secs(301)).await;
    let second = other.timestamp().await.unwrap().timestamp;
    assert!(second > first);
    drop(other);
    assert!(idle.timestamp().await.unwrap().timestamp > second);
}

#[tokio::test]
async fn a_length_of_four_gibibytes_and_one_beyond_the_limit() {
    let process = start(&Arc::new(MemoryStore::new())).await;
    process.leads().await;
    let channel = connect(&process).await;
    for claimed in [u32::MAX, REQUEST_BYTES_MAX + 1] {
        let refused = code(channel.clone(), half_a_request(SERVE, claimed, b"")).await;
        assert_eq!(refused, Code::OutOfRange, "{claimed}");
    }
    // The server waits for a message at the limit.
    let waits = code(channel, half_a_request(SERVE, REQUEST_BYTES_MAX, b"x"));
    assert!(tokio::time::timeout(Duration::from_millis(200), waits).await.is_err());
    answers(&process).await;
}

#[tokio::test]
async fn clients_beyond_the_limit() {
    let options = OracleServerOptions { clients_max: 2, ..OracleServerOptions::default() };
    let process = start_with(&Arc::new(MemoryStore::new()), options).await;
    process.leads().await;
    let two = [client([process.address()]), client([process.address()])];
    for client in &two {
        client.timestamp().await.unwrap();
    }
    let deadline = Duration::from_millis(50);
    let options = RemoteOracleOptions { deadline, ..RemoteOracleOptions::default() };
    let third = RemoteOracle::new(vec![process.address()], options).unwrap();
    let refused = third.timestamp().await.unwrap_err().to_string();
    assert!(refused.contains("its maximum number of clients"), "{refused}");
}

#[tokio::test]
async fn garbage() {
    let process = start(&Arc::new(MemoryStore::new())).await;
    process.leads().await;
    let noise: Vec<u8> =
        (0u32..4096).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let framed = |frame: &[u8]| [PREFACE, frame].concat();
    for garbage in [
        noise.clone(),
        vec![0; 4096],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        framed(&noise),
        framed(&[0, 0, 5, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]),
        framed(&[0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
    ] {
        let mut stream = TcpStream::connect(process.server.address()).await.unwrap();
        // The server may have closed it already.
        let _ = stream.write_all(&garbage).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let rest = stream.read_to_end(&mut rest);
        let ended = tokio::time::timeout(Duration::from_secs(60), rest).await;
        assert!(ended.is_ok(), "the connection stays open after {garbage:?}");
    }
    let channel = connect(&process).await;
    for garbage in [&[0xff; 100][..], &[0; 100], &noise[..100]] {
        let refused = code(channel.clone(), half_a_request(SERVE, 100, garbage)).await;
        assert_ne!(refused, Code::Ok, "{garbage:?}");
    }
    answers(&process).await;
}
