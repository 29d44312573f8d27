//! Tests the console over HTTP, with a client that is no browser. Sends every route every kind of
//! wrong `Host`, `Origin`, method, media type and token, and checks the answers of the routes.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod shared;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use percolator::store::MemoryStore;
use percolator::watch::{Sampling, Watch};
use percolator::{Options, Percolator};
use percolator_console::{Access, Console, Listening, Panel, PanelError, Recorder};
use serde_json::{Value, json};

use shared::{READS, TEXT, WORDS, ask, console, database, get, observe};

const WRITES: &[(&str, &str)] = &[
    ("/api/v1/failures/replay", r#"{"dry_run":true}"#),
    ("/api/v1/failures/skip", r#"{"dry_run":true}"#),
    ("/api/v1/observers/pause", r#"{"observer":"words"}"#),
    ("/api/v1/observers/resume", r#"{"observer":"words"}"#),
    ("/api/v1/locks/resolve", r#"{"dry_run":true}"#),
    ("/api/v1/learn/begin", "{}"),
    ("/api/v1/learn/step", r#"{"rows":["Bob"]}"#),
];

#[tokio::test]
async fn every_route_refuses_what_it_must() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let console = console(&db, &recorder).await;
    for path in READS {
        let refused = async |given: &[(&str, &str)], method: &str| {
            ask(&console, method, path, "", given).await.status
        };
        assert_eq!(refused(&[("Host", "evil.example")], "GET").await, 421, "{path}");
        assert_eq!(refused(&[("Host", "127.0.0.1:1")], "GET").await, 421, "{path}");
        assert_eq!(refused(&[("Authorization", "")], "GET").await, 401, "{path}");
        assert_eq!(refused(&[("Authorization", "Bearer wrong")], "GET").await, 401, "{path}");
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            assert_eq!(refused(&[], method).await, 405, "{method} {path}");
        }
        let answered = get(&console, path).await;
        assert!(matches!(answered.status, 200 | 404), "{path}: {}", answered.status);
    }
    for (path, body) in WRITES {
        let refused =
            async |given: &[(&str, &str)]| ask(&console, "POST", path, body, given).await.status;
        assert_eq!(refused(&[("Host", "evil.example")]).await, 421, "{path}");
        assert_eq!(refused(&[("Origin", "http://evil.example")]).await, 403, "{path}");
        assert_eq!(refused(&[("Origin", "null")]).await, 403, "{path}");
        assert_eq!(refused(&[("Sec-Fetch-Site", "cross-site")]).await, 403, "{path}");
        assert_eq!(refused(&[("Content-Type", "text/plain")]).await, 415, "{path}");
        assert_eq!(refused(&[("Content-Type", "")]).await, 415, "{path}");
        assert_eq!(refused(&[("Authorization", "")]).await, 401, "{path}");
        assert_eq!(refused(&[("X-Request-Id", "")]).await, 400, "{path}");
        assert_eq!(ask(&console, "GET", path, "", &[]).await.status, 405, "{path}");
        let own = format!("http://{}", console.addr());
        let admitted = refused(&[("Origin", &own)]).await;
        assert!(matches!(admitted, 200 | 404), "{path}: {admitted}");
    }
    for path in ["/", "/app.js", "/vendor/uplot.js", "/cell/docs/a"] {
        assert_eq!(
            ask(&console, "GET", path, "", &[("Host", "evil.example")]).await.status,
            421,
            "{path}"
        );
        let file = ask(&console, "GET", path, "", &[("Authorization", "")]).await;
        assert_eq!(file.status, 200, "{path}");
        assert!(!file.body.contains("to be or not"), "{path} holds data");
    }
    for path in ["/healthz", "/readyz"] {
        let given = [("Host", "10.0.0.7"), ("Authorization", "")];
        let health = ask(&console, "GET", path, "", &given).await;
        assert_eq!(health.status, 200, "{path}: {}", health.body);
    }
}

#[tokio::test]
async fn every_answer_has_its_headers_and_none_sets_a_cookie() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let console = console(&db, &recorder).await;
    let others = ["/", "/app.js", "/metrics", "/healthz", "/nothing.js"];
    for path in READS.iter().chain(&others) {
        for token in ["", "Bearer wrong"] {
            let answer = ask(&console, "GET", path, "", &[("Authorization", token)]).await;
            for header in [
                "content-security-policy: default-src 'none'; script-src 'self'",
                "frame-ancestors 'none'",
                "x-content-type-options: nosniff",
                "referrer-policy: no-referrer",
                "cross-origin-resource-policy: same-origin",
            ] {
                assert!(
                    answer.headers.contains(header),
                    "{path} lacks {header}: {}",
                    answer.headers
                );
            }
            assert!(!answer.headers.contains("set-cookie"), "{path}");
        }
    }
    assert!(get(&console, "/api/v1/about").await.headers.contains("cache-control: no-store"));
}

#[tokio::test]
async fn no_route_is_missing_here() {
    let source = include_str!("../src/api/mod.rs");
    let named = source.matches("\"/api/v1/").count();
    assert_eq!(named, READS.len() + WRITES.len(), "add the new route to READS or WRITES");
    for path in READS.iter().copied().chain(WRITES.iter().map(|(path, _)| *path)) {
        let path = path.split('?').next().unwrap();
        assert!(source.contains(&format!("\"{path}\"")), "{path}");
    }
}

#[tokio::test]
async fn the_pages_data_is_what_the_database_did() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let workers = observe(&db).await;
    db.wait_idle(None).await.unwrap();
    let console = console(&db, &recorder).await;
    let overview = get(&console, "/api/v1/overview").await.json();
    let stats = db.stats();
    assert_eq!(overview["totals"]["committed"], stats.committed);
    assert_eq!(overview["totals"]["observer_runs"], 2);

    let names = get(&console, "/api/v1/transactions").await.json();
    let load = names["names"].as_array().unwrap().iter().find(|n| n["name"] == "load").unwrap();
    assert_eq!(load["committed"], 1);

    let graph = get(&console, "/api/v1/graph").await.json();
    let edges = graph["edges"].as_array().unwrap();
    let has = |from: &str, to: &str| edges.iter().any(|e| e["from"] == from && e["to"] == to);
    assert!(has("column docs doc:text", "observer words"), "{graph}");
    assert!(has("observer words", "family docs doc:*"), "{graph}");

    let rows = get(&console, "/api/v1/rows?table=docs&limit=1").await.json();
    assert_eq!(rows["rows"][0]["row"], json!({ "utf8": "a" }));
    assert_eq!(rows["rows"][0]["cells"][1]["value"]["value"], json!({ "utf8": "4" }));
    let next = get(&console, "/api/v1/rows?table=docs&after=a").await.json();
    assert_eq!(next["rows"][0]["row"], json!({ "b64": "/w==" }));
    let cell = get(&console, "/api/v1/cell?table=docs&row=b64:/w==&column=doc:text").await.json();
    assert!(cell["moments"].as_array().unwrap().iter().any(|m| m["write"].is_object()), "{cell}");

    let metrics = get(&console, "/metrics").await.body;
    let committed = "percolator_transactions_total{name=\"load\",outcome=\"committed\"} 1";
    assert!(metrics.contains(committed), "{metrics}");
    assert!(
        metrics
            .contains("percolator_observer_runs_total{observer=\"words\",outcome=\"committed\"} 2")
    );
    assert!(metrics.ends_with("# EOF\n"));
    workers.stop().await;
}

#[tokio::test]
async fn failures_are_listed_and_replayed_once() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let docs = db.table("docs").await.unwrap();
    let workers = observe(&db).await;
    db.transact(async |mut tx| tx.set(&docs, "b", &TEXT, "bad")).await.unwrap();
    db.wait_idle(None).await.unwrap();
    let console = console(&db, &recorder).await;
    let failures = get(&console, "/api/v1/failures?observer=words").await.json();
    assert_eq!(failures[0]["state"], "set_aside", "{failures}");
    assert_eq!(failures[0]["cell"]["row"], json!({ "utf8": "b" }));
    assert_eq!(get(&console, "/api/v1/failures?observer=other").await.json(), json!([]));

    db.transact(async |mut tx| tx.set(&docs, "b", &TEXT, "good")).await.unwrap();
    let replay = async |body: &str, id: &str| {
        let answer =
            ask(&console, "POST", "/api/v1/failures/replay", body, &[("X-Request-Id", id)]).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    };
    let counted = replay(r#"{"observer":"words","dry_run":true}"#, "dry-run-1").await;
    assert_eq!(counted, json!({ "matched": 1, "done": 0 }));
    let first = replay(r#"{"observer":"words"}"#, "replay-01").await;
    assert_eq!(first, json!({ "matched": 1, "done": 1 }));
    // The connection has broken, and the browser repeats the request: it gets the first answer.
    assert_eq!(replay(r#"{"observer":"words"}"#, "replay-01").await, first);
    let other = replay(r#"{"observer":"words"}"#, "replay-02").await;
    assert_eq!(other, json!({ "matched": 0, "done": 0 }));
    workers.stop().await;
}

async fn post(console: &Listening, path: &str, body: Value) -> Value {
    let answer = ask(console, "POST", path, &body.to_string(), &[]).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.json()
}

#[tokio::test]
async fn an_observer_is_paused_and_resumed_and_a_change_is_skipped() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let docs = db.table("docs").await.unwrap();
    let workers = observe(&db).await;
    db.wait_idle(None).await.unwrap();
    let console = console(&db, &recorder).await;
    let named = json!({ "observer": "words" });
    post(&console, "/api/v1/observers/pause", named.clone()).await;
    assert_eq!(get(&console, "/api/v1/observers").await.json()[0]["paused"], true);
    db.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "one two three")).await.unwrap();
    let unhandled = db.snapshot().await.unwrap().get(&docs, "a", &WORDS).await.unwrap();
    assert_eq!(unhandled.as_deref(), Some(&b"4"[..]));
    post(&console, "/api/v1/observers/resume", named.clone()).await;
    db.wait_idle(None).await.unwrap();
    let handled = db.snapshot().await.unwrap().get(&docs, "a", &WORDS).await.unwrap();
    assert_eq!(handled.as_deref(), Some(&b"3"[..]));
    let unknown = r#"{"observer":"nobody"}"#;
    let refused = ask(&console, "POST", "/api/v1/observers/pause", unknown, &[]).await;
    assert_eq!(refused.status, 404, "{}", refused.body);

    db.transact(async |mut tx| tx.set(&docs, "b", &TEXT, "bad")).await.unwrap();
    db.wait_idle(None).await.unwrap();
    let other = json!({ "error": "another error" });
    let none = post(&console, "/api/v1/failures/skip", other).await;
    assert_eq!(none, json!({ "matched": 0, "done": 0 }));
    let skipped = post(&console, "/api/v1/failures/skip", json!({ "error": "no words" })).await;
    assert_eq!(skipped, json!({ "matched": 1, "done": 1 }));
    assert_eq!(get(&console, "/api/v1/failures").await.json(), json!([]));
    assert!(db.wait_idle(None).await.unwrap().idle);
    workers.stop().await;
}

#[tokio::test]
async fn locks_are_resolved_by_the_rule_of_readers() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let docs = db.table("docs").await.unwrap();
    let (alive, dead) = (db.another_client().await.unwrap(), db.another_client().await.unwrap());
    let prewrite = async |client: &Percolator, row: &str| {
        let mut tx = client.begin().await.unwrap();
        tx.set(&docs, row, &TEXT, "never").unwrap();
        tx.prewrite().await.unwrap()
    };
    let kept = prewrite(&alive, "kept").await;
    drop(prewrite(&dead, "left").await);
    drop(dead);
    let console = console(&db, &recorder).await;
    let locks = get(&console, "/api/v1/locks").await.json();
    assert_eq!(locks.as_array().unwrap().len(), 2, "{locks}");
    let dry = post(&console, "/api/v1/locks/resolve", json!({ "dry_run": true })).await;
    assert_eq!(dry, json!({ "matched": 1, "done": 0 }));
    let done = post(&console, "/api/v1/locks/resolve", json!({})).await;
    assert_eq!(done, json!({ "matched": 1, "done": 1 }));
    let locks = get(&console, "/api/v1/locks").await.json();
    assert_eq!(locks[0]["cell"]["row"], json!({ "utf8": "kept" }), "{locks}");
    kept.commit_primary().await.unwrap();
}

#[tokio::test]
async fn a_cell_is_answered_as_soon_as_it_changes() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let docs = db.table("docs").await.unwrap();
    let console = console(&db, &recorder).await;
    let path = "/api/v1/cell?table=docs&row=a&column=doc:text";
    let version = get(&console, path).await.json()["version"].as_str().unwrap().to_owned();
    let path = format!("{path}&since={version}");
    let begun = Instant::now();
    let (held, ()) = tokio::join!(get(&console, &path), async {
        db.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "changed")).await.unwrap();
    });
    assert_ne!(held.json()["version"], *version);
    assert!(begun.elapsed() < Duration::from_millis(1_900), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn why_is_answered_from_the_stored_trace() {
    let recorder = Arc::new(Recorder::new());
    let (watch, trace) = (Some(recorder.clone() as Arc<dyn Watch>), Sampling::All);
    let options = Options { watch, trace, ..Options::default() };
    let db = Percolator::over(Arc::new(MemoryStore::new()), options).await.unwrap();
    let docs = db.table("docs").await.unwrap();
    let workers = observe(&db).await;
    let load = db.named("load");
    load.transact(async |mut tx| tx.set(&docs, "a", &TEXT, "to be or not")).await.unwrap();
    db.wait_idle(None).await.unwrap();
    workers.stop().await;
    let console = console(&db, &recorder).await;
    let ask = async |query: &str| get(&console, &format!("/api/v1/why?{query}")).await;
    // The trace is written within half a second or so.
    let begun = Instant::now();
    let why = loop {
        let why = ask("table=docs&row=a&column=doc:words").await;
        assert_eq!(why.status, 200, "{}", why.body);
        let why = why.json();
        if why["nodes"].as_array().unwrap().len() == 2 || begun.elapsed().as_secs() > 20 {
            break why;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let names: Vec<&Value> =
        why["nodes"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
    assert_eq!(names, ["load", "words"], "{why:#}");
    assert_eq!(
        (&why["nodes"][0]["side"], &why["nodes"][1]["side"]),
        (&json!("cause"), &json!("own"))
    );
    let edge = json!({ "table": "docs", "row": { "utf8": "a" }, "column": { "utf8": "doc:text" } });
    assert_eq!(why["edges"][0]["cell"], edge);
    assert_eq!((&why["nodes"][0]["because"], &why["nodes"][1]["because"]), (&Value::Null, &edge));
    let down = ask("table=docs&row=a&column=doc:text").await.json();
    assert_eq!((&down["nodes"][1]["side"], &down["cut"]), (&json!("effect"), &json!(false)));
    assert_eq!((&down["nodes"][0]["indent"], &down["nodes"][1]["indent"]), (&json!(0), &json!(1)));
    assert_eq!(ask("table=docs&row=none&column=doc:text").await.status, 404);
    assert_eq!(ask("table=none&row=a&column=doc:text").await.status, 404);
    assert_eq!(ask("table=docs&row=a&column=doc:text&at=1").await.status, 404);
    assert_eq!(ask("table=docs&row=a&column=doc:text&at=999999999").await.status, 400);
    assert_eq!(ask("table=docs&row=a").await.status, 400);
}

#[tokio::test]
async fn the_map_of_keys_has_conflicts_locks_writes_and_reads() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let docs = db.table("docs").await.unwrap();
    for n in 0..200 {
        let row = format!("row {}", n % 50);
        db.transact(async |mut tx| tx.set(&docs, &*row, &TEXT, "text")).await.unwrap();
    }
    for _ in 0..200 {
        db.snapshot().await.unwrap().get(&docs, "a", &TEXT).await.unwrap();
    }
    let (mut first, mut second) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    first.set(&docs, "hot", &TEXT, "1").unwrap();
    second.set(&docs, "hot", &TEXT, "2").unwrap();
    first.commit().await.unwrap();
    second.commit().await.unwrap_err();
    let console = console(&db, &recorder).await;
    let map = async |metric: &str| {
        get(&console, &format!("/api/v1/keys?metric={metric}&minutes=60")).await.json()
    };
    let conflicts = map("conflict").await;
    // The recorder knows nothing of the minutes before it began.
    assert!(conflicts["t"].as_array().unwrap().len() <= 2, "{conflicts:#}");
    let hot = json!({ "table": "docs", "row": { "utf8": "hot" }, "count": 1.0 });
    assert_eq!(conflicts["hot"], json!([hot]), "{conflicts:#}");
    assert_eq!(conflicts["values"][0].as_array().unwrap().iter().filter(|v| **v == 1.0).count(), 1);
    assert_eq!(map("wait").await["rows"], json!([]));
    let (writes, reads) = (map("write").await, map("read").await);
    // The recorder samples every 64th event, which counts as 64.
    assert!((64.0..=256.0).contains(&writes["total"].as_f64().unwrap()), "{writes:#}");
    assert_eq!(reads["rows"][0]["from"], json!({ "utf8": "a" }), "{reads:#}");
    for wrong in ["metric=heat", "minutes=-1"] {
        assert_eq!(get(&console, &format!("/api/v1/keys?{wrong}")).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn read_only_hidden_and_open_consoles() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let console = Console::new(&db).read_only(true).hide_values(true).learn(true);
    let console = console.access(Access::OpenReads).base_path("/under/here");
    let console = console.listen("127.0.0.1:0").await.unwrap();
    assert!(console.url().ends_with("/under/here/"), "{}", console.url());
    let rows = get(&console, "/under/here/api/v1/rows?table=docs").await;
    assert_eq!(rows.status, 200);
    assert!(!rows.body.contains("to be or not"), "{}", rows.body);
    assert_eq!(rows.json()["rows"][0]["cells"][0]["value"]["bytes"], 12);
    assert_eq!(get(&console, "/api/v1/rows?table=docs").await.status, 404);
    for (path, body) in WRITES {
        let refused = ask(&console, "POST", &format!("/under/here{path}"), body, &[]).await;
        assert_eq!(refused.status, 403, "{path}");
    }
}

#[tokio::test]
async fn metrics_alone_serve_nothing_else() {
    let db = database(&Arc::new(Recorder::new())).await;
    let metrics = Console::new(&db).metrics_only().listen("127.0.0.1:0").await.unwrap();
    assert_eq!(get(&metrics, "/metrics").await.status, 200);
    assert_eq!(get(&metrics, "/readyz").await.body, "ready\n");
    for path in READS.iter().chain(&["/", "/app.js"]) {
        assert_eq!(get(&metrics, path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn figure_4_is_played_to_its_end_with_a_crash() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let console = console(&db, &recorder).await;
    let step = async |body: Value| {
        let path = "/api/v1/learn/step";
        ask(&console, "POST", path, &body.to_string(), &[]).await
    };
    let begin = async || {
        let begun = ask(&console, "POST", "/api/v1/learn/begin", "{}", &[]).await;
        begun.json()["session"].as_u64().unwrap()
    };
    let first = begin().await;
    for body in [
        json!({ "session": first, "step": "begin" }),
        json!({ "session": first, "step": "set", "row": "Bob", "value": "$10" }),
        json!({ "session": first, "step": "set", "row": "Joe", "value": "$2" }),
        json!({ "session": first, "step": "prewrite" }),
        json!({ "session": first, "step": "commit_primary" }),
    ] {
        let answer = step(body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    // The primary lock is committed; Joe's secondary lock stays.
    let crashed = step(json!({ "session": first, "step": "crash", "rows": ["Bob", "Joe"] })).await;
    let cells = &crashed.json()["cells"];
    assert!(cells[0]["moments"][0]["write"].is_object(), "{cells}");
    assert_eq!(cells[1]["moments"][0]["lock"]["fate"]["kind"], "roll_forward", "{cells}");
    // Another client reads, and rolls Joe's cell forward.
    let read = step(json!({ "read": true, "rows": ["Joe"] })).await.json();
    assert!(read["answer"].as_str().unwrap().ends_with("Bob has $10, Joe has $2"), "{read}");
    assert!(read["cells"][0]["moments"][0]["write"].is_object(), "{read}");
    // A second one crashes before its commit point, and is rolled back.
    let second = begin().await;
    for body in [
        json!({ "session": second, "step": "begin" }),
        json!({ "session": second, "step": "set", "row": "Bob", "value": "$0" }),
        json!({ "session": second, "step": "prewrite" }),
        json!({ "session": second, "step": "crash" }),
    ] {
        assert_eq!(step(body).await.status, 200);
    }
    let read = step(json!({ "read": true, "rows": ["Bob"] })).await.json();
    assert!(read["answer"].as_str().unwrap().contains("Bob has $10"), "{read}");
    assert_eq!(step(json!({ "session": second, "step": "begin" })).await.status, 410);
    let wrong = step(json!({ "session": begin().await, "step": "prewrite" })).await;
    assert_eq!(wrong.status, 400, "{}", wrong.body);
}

/// Finds one page, with a hostile title.
#[derive(Debug)]
struct Shelf;

impl Panel for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        offset: usize,
        _limit: usize,
    ) -> BoxFuture<'a, Result<Value, PanelError>> {
        Box::pin(async move {
            if query.contains("wrong") {
                return Err(PanelError::Asked("<wrong> query".to_owned()));
            }
            let hit = json!({
                "url": "https://a.example/?x=\"1\"", "title": "<script>alert(1)</script>",
                "snippet": query, "highlights": [{ "start": 0, "end": 3 }], "rank": 0.5,
                "in_links": 7, "duplicates": 2, "counted_max": 7,
            });
            Ok(json!({ "total": 25, "offset": offset, "hits": [hit] }))
        })
    }

    fn page<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Value>, PanelError>> {
        let page = json!({ "page": { "url": key, "title": "one", "canonical": key } });
        Box::pin(async move { Ok((key == "here").then_some(page)) })
    }

    fn stats(&self) -> BoxFuture<'_, Result<Value, PanelError>> {
        Box::pin(async { Ok(json!({})) })
    }
}

#[tokio::test]
async fn the_search_page_is_written_where_it_is_open_and_else_it_is_the_shell() {
    let db = database(&Arc::new(Recorder::new())).await;
    let shelf = || Console::new(&db).panel(Arc::new(Shelf)).base_path("/ops");
    let closed = shelf().listen("127.0.0.1:0").await.unwrap();
    let hidden = shelf().open_search(true).hide_values(true).listen("127.0.0.1:0").await.unwrap();
    for console in [&closed, &hidden] {
        for token in ["", "Bearer wrong"] {
            let given = [("Authorization", token)];
            let shell = ask(console, "GET", "/ops/search?q=cod", "", &given).await;
            assert_eq!(shell.status, 200);
            assert!(shell.body.contains("/ops/app.js") && !shell.body.contains("in-links"));
        }
    }
    let open = shelf().open_search(true).listen("127.0.0.1:0").await.unwrap();
    let page = async |path: &str| ask(&open, "GET", path, "", &[("Authorization", "")]).await;
    let found = page("/ops/search?q=cod&site=a.example&page=2").await;
    assert_eq!(found.status, 200);
    assert!(found.headers.contains("content-type: text/html"), "{}", found.headers);
    assert!(found.headers.contains("cache-control: no-store"), "{}", found.headers);
    for part in [
        "25 pages match",
        "<mark>cod</mark> site:a.example",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "href=\"https://a.example/?x=&quot;1&quot;\"",
        "7 or more in-links · 2 duplicates",
        "/ops/search?q=cod&amp;site=a.example&amp;page=3",
        "/ops/search?q=cod&amp;site=a.example&amp;page=1",
        "start=\"11\"",
    ] {
        assert!(found.body.contains(part), "{part}: {}", found.body);
    }
    assert!(!found.body.contains("<script"), "{}", found.body);
    let wrong = page("/ops/search?q=wrong").await;
    assert!(wrong.status == 400 && wrong.body.contains("&lt;wrong&gt; query"), "{}", wrong.body);
    assert_eq!(page("/ops/search?open=here").await.status, 200);
    assert_eq!(page("/ops/search?open=nowhere").await.status, 404);
    assert_eq!(page("/ops/search").await.status, 200);
    let foreign = ask(&open, "GET", "/ops/search?q=cod", "", &[("Host", "evil.example")]).await;
    assert_eq!(foreign.status, 421);
    assert_eq!(ask(&open, "POST", "/ops/search?q=cod", "", &[]).await.status, 405);
    // Open is the page alone: the API still needs the token.
    assert_eq!(page("/ops/api/v1/app/search?q=cod").await.status, 401);
}

#[tokio::test]
async fn a_lock_names_the_readers_that_wait_for_it() {
    let recorder = Arc::new(Recorder::new());
    let db = database(&recorder).await;
    let docs = db.table("docs").await.unwrap();
    let mut tx = db.begin().await.unwrap();
    tx.set(&docs, "a", &TEXT, "later").unwrap();
    let held = tx.prewrite().await.unwrap();
    let console = console(&db, &recorder).await;
    let reader = db.begin().await.unwrap();
    let at = reader.start_ts().as_u64();
    let reading = async { reader.get(&docs, "a", &TEXT).await };
    let looking = async {
        let mut locks = json!([]);
        while locks[0]["waiters"].as_array().is_none_or(Vec::is_empty) {
            locks = get(&console, "/api/v1/locks").await.json();
        }
        held.commit_primary().await.unwrap();
        locks
    };
    let (read, locks) = tokio::join!(reading, looking);
    assert_eq!(read.unwrap().as_deref(), Some(&b"to be or not"[..]));
    assert_eq!(locks[0]["waiters"][0]["at"], at, "{locks}");
}
