//! Tests the command line on a real HBase cluster, which `scripts/hbase.sh` starts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "some of it is for other tests")]
#[path = "operator/cluster.rs"]
mod cluster;
#[allow(dead_code, reason = "some of it is for other tests")]
mod shell;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cluster::Cluster;
use percolator::cluster::Config;
use percolator::observe::SetAside;
use percolator::{Change, Column, Observer, Percolator, Registration, Transaction, WorkerOptions};
use shell::run;

/// The address of a store in a namespace of its own. Without HBase, this prints a warning.
fn store(name: &str) -> Option<String> {
    let Ok(address) = std::env::var("PERCOLATOR_HBASE") else {
        // The test harness captures the macros' output, so this writes to standard error directly.
        let text = b"not run: a test that needs HBase (scripts/hbase.sh cargo test --test hbase)\n";
        let _ = std::io::stderr().write_all(text);
        return None;
    };
    Some(address.replace("/percolator?", &format!("/{name}{}?", std::process::id())))
}

#[test]
fn a_site_is_loaded_ranked_searched_and_verified() {
    let Some(store) = store("site") else { return };
    let cluster = Cluster::new();
    let site = cluster.site("60");
    cluster.cluster(&["up", "--workers", "2", "--store", &store]).with(0);
    let on = |words: &[&str]| cluster.on(words).with(0);
    on(&["set", "Bob", "bal", "10", "--table", "accounts"]);
    let script = cluster.dir.path().join("script");
    std::fs::write(&script, "begin\nget Bob bal\nset Bob bal 7\nset Joe bal 3\ncommit\n").unwrap();
    on(&["tx", script.to_str().unwrap(), "--table", "accounts"]);
    assert_eq!(on(&["get", "Joe", "bal", "--table", "accounts"]).stdout.trim(), "3");
    let all = on(&["scan", "--table", "accounts"]).stdout;
    assert!(all.contains("Bob") && all.contains("Joe"), "{all}");

    // The script's cluster is sound, but it does not wait for the disks.
    let doctor = on(&["doctor", "--json"]).json();
    let verdict = |about: &str| {
        let findings = doctor.as_array().unwrap().iter();
        let mut found = findings.filter(|of| of["about"].as_str().unwrap().starts_with(about));
        found.next().unwrap()["verdict"].clone()
    };
    assert_eq!(verdict("HBase's master"), "sound", "{doctor}");
    assert_eq!(verdict("HBase of 127.0.0.1"), "sound", "{doctor}");
    assert_eq!(verdict("zookeeper.session.timeout"), "sound", "{doctor}");
    assert_eq!(verdict("hbase.wal.hsync"), "advice", "{doctor}");
    assert_eq!(verdict("hbase.regionserver.wal.sync.timeout"), "sound", "{doctor}");
    assert_eq!(verdict("hbase.wal.provider"), "sound", "{doctor}");
    let short = store.replace("busy=2s", "busy=1s");
    let wrong = run(&["doctor", "--store", &short]).with(3).stdout;
    assert!(wrong.contains("or give busy=2s in the address"), "{wrong}");

    on(&["webindex", "load", &site, "--base", "https://example.org/"]);
    on(&["webindex", "rank"]);
    on(&["wait"]);
    on(&["webindex", "verify"]);
    let stats = on(&["webindex", "stats", "--json"]).json();
    // The home page, and 60 pages with texts of their own.
    assert_eq!(stats["searchable"], 61, "{stats}");
    let hits = on(&["webindex", "search", "bridge"]).stdout;
    assert!(hits.contains("https://example.org/"), "{hits}");
}

/// Counts its runs for a row, once it is mended.
struct Parse(Arc<AtomicBool>);

const TEXT: Column = Column::literal("doc:text");
const RUNS: Column = Column::literal("doc:runs");

impl Observer for Parse {
    async fn observe(&self, tx: &mut Transaction, change: &Change) -> percolator::Result<()> {
        if !self.0.load(Relaxed) {
            return Err(percolator::Error::application("cannot parse"));
        }
        let runs = tx.get(&change.table, &change.row, &RUNS).await?.unwrap_or_default();
        tx.set(&change.table, &change.row, &RUNS, [&runs[..], b"I"].concat())
    }
}

/// Waits until an observer has given up on a change.
async fn set_aside(db: &Percolator) -> Vec<SetAside> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = db.set_aside().await.unwrap();
        if !found.is_empty() {
            return found;
        }
        assert!(Instant::now() < deadline, "nothing is set aside");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Records of changes that were set aside are deleted and written again at one timestamp, also
/// while HBase compacts the files of these records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_set_aside_is_replayed_until_its_observer_is_mended() {
    let Some(store) = store("aside") else { return };
    let cluster = Cluster::new();
    cluster.cluster(&["up", "--workers", "1", "--store", &store]).with(0);
    let config = Config::load_file(&cluster.data().join("percolator.toml")).unwrap();
    let db = Percolator::from_config(&config).await.unwrap();
    let mended = Arc::new(AtomicBool::new(false));
    let parse = Registration::strong("parse", "docs", &TEXT, Parse(mended.clone()));
    let delay = Duration::from_millis(1);
    let options =
        WorkerOptions { failures_max: 2, failure_delay: delay, ..WorkerOptions::default() };
    let workers = db.observe(vec![parse], options).await.unwrap();
    let docs = db.table("docs").await.unwrap();
    let write = async |text: &'static str| {
        db.transact(async |mut tx| tx.set(&docs, "a", &TEXT, text)).await.unwrap()
    };
    let runs = async || db.snapshot().await.unwrap().get(&docs, "a", &RUNS).await.unwrap();
    // Waits until nothing else is left, and returns how many records there are. A change is
    // notified with its lock and with its commit. A worker that has seen only the first
    // notification sets that one aside alone.
    let failed = async || {
        set_aside(&db).await;
        let waited = cluster.on(&["wait"]).with(1).stderr;
        assert!(waited.contains("docs/a/doc:text: parse failed 2 times: cannot parse"), "{waited}");
        let aside = db.set_aside().await.unwrap();
        let is_it = |of: &SetAside| (&of.observer[..], &of.row) == ("parse", &"a".into());
        assert!((1..=2).contains(&aside.len()) && aside.iter().all(is_it), "{aside:?}");
        aside.len()
    };
    let replay = |count: usize| {
        let replayed = cluster.on(&["observers", "replay", "parse", "--json"]).with(0).json();
        assert_eq!(replayed, serde_json::json!({ "matched": count, "replayed": count }));
    };
    write("to be").await;
    for _ in 0..3 {
        let count = failed().await;
        // At most one round in five minutes, so only the first call has files compacted.
        db.services().store.reclaim().await.unwrap();
        replay(count);
    }
    let count = failed().await;
    assert_eq!(runs().await, None);
    mended.store(true, Relaxed);
    replay(count);
    cluster.on(&["wait"]).with(0);
    assert_eq!(runs().await.as_deref(), Some(&b"I"[..]));
    cluster.on(&["observers", "replay", "parse"]).refused(1, "no matching change", "failing");

    // Like any other change from now on.
    write("or not").await;
    cluster.on(&["wait"]).with(0);
    assert_eq!(runs().await.as_deref(), Some(&b"II"[..]));
    workers.stop().await;
}

#[test]
fn a_wrong_address_is_refused_with_the_remedy() {
    let up = |store: &str| {
        let cluster = Cluster::new();
        cluster.cluster(&["up", "--store", store]).with(2).stderr
    };
    let error = up("hbase://127.0.0.1:1");
    assert!(error.contains("it has no namespace: give hbase://HOST:PORT"), "{error}");
    let error = up("hbase://127.0.0.1:1/no-such");
    assert!(error.contains("letters, digits and _"), "{error}");

    let oracle = |store: &str, status| {
        run(&["serve", "oracle", "--listen", "127.0.0.1:0", "--store", store]).with(status).stderr
    };
    let error = oracle("hbase://127.0.0.1:1/n?deadline=1s", 4);
    assert!(error.contains("hbase://127.0.0.1:1/n?deadline=1s"), "{error}");
    assert!(error.contains("refused") && error.contains("check that HBase runs there"), "{error}");
    let error = oracle("hbase://192.0.2.1:1/n?deadline=1s", 2);
    assert!(error.contains("plain text to 192.0.2.1:1"), "{error}");
}
