//! Tests senders that stop in the middle, send too much, or send garbage.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::Service;

use super::slow::{half_a_request, jump};
use super::*;
use crate::server::limits::REQUEST_BYTES_MAX;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const MUTATE: &str = "http://table/google.bigtable.v2.Bigtable/MutateRow";

async fn connect(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// The status code of the answer to a request.
async fn code(channel: &mut Channel, request: http::Request<tonic::body::Body>) -> Code {
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    let answer = channel.call(request).await.unwrap();
    let code = answer.headers().get("grpc-status").expect("the answer is a status");
    Code::from_bytes(code.as_bytes())
}

#[tokio::test]
async fn half_a_preface_holds_nothing_for_ever_and_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let options = ServeOptions { connections_max: 22, ..ServeOptions::default() };
    let address = start(dir.path(), options).await;
    let mut slow = Vec::new();
    for n in 0..21 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&PREFACE[..n]).await.unwrap();
        slow.push(stream);
    }
    let store = ask(address, None).await.unwrap();
    // All connections are in use, so the server closes a further one.
    let mut beyond = TcpStream::connect(address).await.unwrap();
    assert!(matches!(beyond.read(&mut [0]).await, Ok(0) | Err(_)));
    bigtable::Store::table_names(&store).await.unwrap();
    jump(Duration::from_secs(11)).await;
    for mut stream in slow {
        // Reads the server's own frames, up to the end of the connection.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    ask(address, None).await.unwrap();
}

#[tokio::test]
async fn half_a_message_holds_nothing_for_ever_and_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let address = start(dir.path(), ServeOptions::default()).await;
    let channel = connect(address).await;
    let mut slow = Vec::new();
    for _ in 0..CONNECTION_REQUESTS_MAX {
        let mut channel = channel.clone();
        slow.push(tokio::spawn(async move {
            code(&mut channel, half_a_request(MUTATE, 100 << 20, b"half")).await
        }));
    }
    ask(address, None).await.unwrap();
    jump(ARRIVAL + Duration::from_secs(1)).await;
    for slow in slow {
        assert_eq!(slow.await.unwrap(), Code::DeadlineExceeded);
    }
}

#[tokio::test]
async fn a_length_of_four_gibibytes_and_one_beyond_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let address = start(dir.path(), ServeOptions::default()).await;
    let mut channel = connect(address).await;
    let limit = u32::try_from(REQUEST_BYTES_MAX).unwrap();
    for claimed in [u32::MAX, limit + 1] {
        let refused = code(&mut channel, half_a_request(MUTATE, claimed, b"")).await;
        assert_eq!(refused, Code::OutOfRange, "{claimed}");
    }
    // The server waits for a message at the limit.
    let mut other = channel.clone();
    let waits = code(&mut other, half_a_request(MUTATE, limit, b"x"));
    assert!(tokio::time::timeout(Duration::from_millis(200), waits).await.is_err());
    // Requests for tables have a lower limit.
    let create = "http://table/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable";
    let refused = code(&mut channel, half_a_request(create, (4 << 20) + 1, b"")).await;
    assert_eq!(refused, Code::OutOfRange);
}

#[tokio::test]
async fn garbage() {
    let dir = tempfile::tempdir().unwrap();
    let address = start(dir.path(), ServeOptions::default()).await;
    let noise: Vec<u8> =
        (0u32..4096).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let framed = |frame: &[u8]| [PREFACE, frame].concat();
    for garbage in [
        Vec::new(),
        noise.clone(),
        vec![0; 4096],
        vec![0xff; 4096],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        // A TLS handshake.
        [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &noise].concat(),
        framed(&noise),
        framed(&[0xff; 100]),
        // Settings of an invalid length, and invalid headers.
        framed(&[0, 0, 5, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]),
        framed(&[0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may have closed it already.
        let _ = stream.write_all(&garbage).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let rest = stream.read_to_end(&mut rest);
        let ended = tokio::time::timeout(Duration::from_secs(60), rest).await;
        assert!(ended.is_ok(), "the connection stays open after {garbage:?}");
    }
    let mut channel = connect(address).await;
    for method in [
        "v2.Bigtable/ReadRows",
        "v2.Bigtable/SampleRowKeys",
        "v2.Bigtable/MutateRow",
        "v2.Bigtable/MutateRows",
        "v2.Bigtable/CheckAndMutateRow",
        "v2.Bigtable/ReadModifyWriteRow",
        "v2.Bigtable/PingAndWarm",
        "v2.Bigtable/Nothing",
        "admin.v2.BigtableTableAdmin/CreateTable",
        "admin.v2.BigtableTableAdmin/DropRowRange",
        "admin.v2.BigtableInstanceAdmin/GetInstance",
        "v9.Nothing/Nothing",
    ] {
        let path = format!("http://table/google.bigtable.{method}");
        let refused = code(&mut channel, half_a_request(&path, 100, &[0xff; 100])).await;
        assert_ne!(refused, Code::Ok, "{method}");
    }
    ask(address, None).await.unwrap();
}
