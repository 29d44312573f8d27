//! A client that is no browser, and a small database, for the tests of the console.

#![allow(clippy::unwrap_used, dead_code, reason = "helpers of tests, not all of which each uses")]

use std::sync::Arc;

use percolator::store::{MemoryStore, Store};
use percolator::{Change, Column, Error, Observer, Options, Percolator, Registration, Result};
use percolator::{Transaction, WorkerOptions, Workers};
use percolator_console::{Console, Listening, Recorder};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const TEXT: Column = Column::literal("doc:text");
pub(crate) const WORDS: Column = Column::literal("doc:words");

/// Every route but the console's files. The test
/// `no_route_is_missing_here` compares the list with the source.
pub(crate) const READS: &[&str] = &[
    "/api/v1/about",
    "/api/v1/overview",
    "/api/v1/processes",
    "/api/v1/observers",
    "/api/v1/graph",
    "/api/v1/failures",
    "/api/v1/cell?table=docs&row=a&column=doc:text",
    "/api/v1/why?table=docs&row=a&column=doc:text",
    "/api/v1/keys?metric=write&minutes=60",
    "/api/v1/locks",
    "/api/v1/conflicts",
    "/api/v1/transactions",
    "/api/v1/transaction?start_ts=1",
    "/api/v1/tables",
    "/api/v1/rows?table=docs",
    "/api/v1/app/search?q=x",
    "/api/v1/app/page?key=x",
    "/api/v1/app/stats",
];
pub(crate) struct Words;

impl Observer for Words {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> Result<()> {
        let text = change.value(tx).await?.unwrap_or_default();
        if text == "bad" {
            return Err(Error::application("no words"));
        }
        let words = text.split(|b| *b == b' ').count().to_string();
        tx.set(&change.table, &change.row, &WORDS, words)
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {:?}", self.body))
    }
}

pub(crate) async fn send(console: &Listening, request: String) -> Answer {
    let mut stream = TcpStream::connect(console.addr()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (headers, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, headers: headers.to_ascii_lowercase(), body: body.to_owned() }
}

/// A request; each header that is given takes the place of the usual one of its name, and an empty
/// one leaves it away.
pub(crate) async fn ask(
    console: &Listening,
    method: &str,
    path: &str,
    body: &str,
    given: &[(&str, &str)],
) -> Answer {
    let (host, token) = (console.addr().to_string(), token(console));
    let usual = [
        ("Host", host),
        ("Authorization", format!("Bearer {token}")),
        ("Connection", "close".to_owned()),
        ("Content-Length", body.len().to_string()),
        ("Content-Type", "application/json".to_owned()),
        ("X-Request-Id", format!("request-{:x}", rand::random::<u64>())),
    ];
    let mut headers: Vec<(String, String)> =
        usual.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, value) in given {
        headers.retain(|(other, _)| other != name);
        if !value.is_empty() {
            headers.push(((*name).to_owned(), (*value).to_owned()));
        }
    }
    let headers: String =
        headers.into_iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    send(console, format!("{method} {path} HTTP/1.1\r\n{headers}\r\n{body}")).await
}

pub(crate) async fn get(console: &Listening, path: &str) -> Answer {
    ask(console, "GET", path, "", &[]).await
}

pub(crate) fn token(console: &Listening) -> String {
    console.url().split_once("#t=").map(|(_, token)| token.to_owned()).unwrap_or_default()
}

pub(crate) async fn database(recorder: &Arc<Recorder>) -> Percolator {
    database_over(recorder, Arc::new(MemoryStore::new())).await
}

/// As [`database`], over a store.
pub(crate) async fn database_over(recorder: &Arc<Recorder>, store: Arc<dyn Store>) -> Percolator {
    let options = Options { watch: Some(recorder.clone()), ..Options::default() };
    let db = Percolator::over(store, options).await.unwrap();
    let docs = db.table("docs").await.unwrap();
    db.named("load")
        .transact(async |mut tx| {
            tx.set(&docs, "a", &TEXT, "to be or not")?;
            tx.set(&docs, &b"\xff"[..], &TEXT, "two words")
        })
        .await
        .unwrap();
    db
}

/// Runs the observer, which gives up on a change at its first failure.
pub(crate) async fn observe(db: &Percolator) -> Workers {
    let words = Registration::strong("words", "docs", &TEXT, Words);
    let options = WorkerOptions { failures_max: 1, ..WorkerOptions::default() };
    db.observe(vec![words], options).await.unwrap()
}

pub(crate) async fn console(db: &Percolator, recorder: &Arc<Recorder>) -> Listening {
    let console = Console::new(db).recorder(recorder.clone()).learn(true);
    console.listen("127.0.0.1:0").await.unwrap()
}
