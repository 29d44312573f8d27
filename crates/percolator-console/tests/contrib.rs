//! The dashboard and the alerts of `contrib/` name metrics that `/metrics` has.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests and their helpers")]

mod shared;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use percolator::store::MemoryStore;
use percolator::{Percolator, Registration, WorkerOptions, Workers};
use percolator_console::{Console, Gauge, Listening, Recorder};
use serde_json::Value;

use shared::{TEXT, Words, database_over, get, observe};

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(contrib(name)).unwrap()
}

/// The names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    let word = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    text.split(word).filter(|name| name.starts_with("percolator_")).collect()
}

/// The names of the samples in the text of `/metrics`.
fn samples(metrics: &str) -> BTreeSet<&str> {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

fn missing<'t>(text: &'t str, metrics: &str) -> Vec<&'t str> {
    let known = samples(metrics);
    named(text).into_iter().filter(|name| !known.contains(name)).collect()
}

/// Causes everything that the metrics count: commits, a conflict, a failing and a set-aside
/// cell, and a reader that waited for a lock.
async fn seed(db: &Percolator) -> Workers {
    let docs = db.table("docs").await.unwrap();
    let workers = observe(db).await;
    db.transact(async |mut tx| tx.set(&docs, "b", &TEXT, "bad")).await.unwrap();
    db.wait_idle(None).await.unwrap();
    workers.stop().await;
    let (mut loser, mut winner) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    for tx in [&mut winner, &mut loser] {
        tx.set(&docs, "a", &TEXT, "mine").unwrap();
    }
    winner.commit().await.unwrap();
    loser.commit().await.unwrap_err();
    let dead = db.another_client().await.unwrap();
    let mut tx = dead.begin().await.unwrap();
    tx.set(&docs, "left", &TEXT, "never").unwrap();
    drop(tx.prewrite().await.unwrap());
    drop(dead);
    db.snapshot().await.unwrap().get(&docs, "left", &TEXT).await.unwrap();
    db.gc(Duration::ZERO).await.unwrap();
    // This observer fails, and tries again only after an hour.
    let words = Registration::strong("words", "docs", &TEXT, Words);
    let options =
        WorkerOptions { failure_delay: Duration::from_secs(3600), ..WorkerOptions::default() };
    let workers = db.observe(vec![words], options).await.unwrap();
    db.transact(async |mut tx| tx.set(&docs, "fails", &TEXT, "bad")).await.unwrap();
    while db.failing(1).is_empty() {
        tokio::task::yield_now().await;
    }
    workers
}

async fn metrics_of(db: &Percolator, console: &Listening) -> String {
    let docs = db.table("docs").await.unwrap();
    db.transact(async |mut tx| tx.set(&docs, "c", &TEXT, "waits")).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    tx.set(&docs, "locked", &TEXT, "later").unwrap();
    let held = tx.prewrite().await.unwrap();
    // The first answer lacks the facts that only a look through the store finds.
    let mut text = String::new();
    while !text.contains("percolator_lock_oldest_age_seconds ") {
        text = get(console, "/metrics").await.body;
    }
    held.commit_primary().await.unwrap();
    text
}

#[tokio::test]
async fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let recorder = Arc::new(Recorder::new());
    let store = recorder.count_requests(Arc::new(MemoryStore::new()));
    let db = database_over(&recorder, store).await;
    let workers = seed(&db).await;
    // `serve oracle` adds this one.
    let oracle = include_str!("../../percolator-cli/src/cmd/serve/oracle.rs");
    assert!(oracle.contains("(\"oracle_is_leader\", "));
    let console = Console::new(&db).recorder(recorder);
    let console = console.gauge(Gauge::new("oracle_is_leader", "Whether it leads", || Some(1.0)));
    let console = console.listen("127.0.0.1:0").await.unwrap();
    let metrics = metrics_of(&db, &console).await;
    #[cfg(target_os = "linux")]
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
        assert!(samples(&metrics).contains(name), "{name} is not in\n{metrics}");
    }
    for file in ["grafana/percolator.json", "prometheus/alerts.yml"] {
        let text = read(file);
        assert!(named(&text).len() >= 6, "{file}");
        assert_eq!(missing(&text, &metrics), [""; 0], "{file}: no such metric in\n{metrics}");
        // Another name would be found.
        let wrong = text.replacen("percolator_observer_set_aside", "percolator_observers_aside", 1);
        assert_eq!(missing(&wrong, &metrics), ["percolator_observers_aside"], "{file}");
    }
    workers.stop().await;
}

#[test]
fn the_dashboard_has_its_rows_and_variables() {
    let dashboard: Value = serde_json::from_str(&read("grafana/percolator.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let rows: Vec<&str> = panels
        .iter()
        .filter(|panel| panel["type"] == "row")
        .map(|panel| panel["title"].as_str().unwrap())
        .collect();
    assert_eq!(rows, ["Health", "Transactions", "Observers", "Contention", "Store"]);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|v| v["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "instance", "observer"]);
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
}

/// Runs `promtool` on a file; `None` if the program is not installed. `PROMTOOL` names it where it
/// is not in the path.
fn promtool(command: &str, file: &str) -> Option<Output> {
    let program = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    match Command::new(program).args([command, "rules"]).arg(contrib(file)).output() {
        Ok(output) => Some(output),
        Err(error) => {
            println!("SKIPPED: promtool {command}: {error} (Debian: apt-get install prometheus)");
            None
        }
    }
}

#[test]
fn prometheus_takes_the_alerts() {
    if let Some(output) = promtool("check", "prometheus/alerts.yml") {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("6 rules found"), "{output:?}");
    }
}

#[test]
fn the_alert_of_no_oracle_stays_until_one_leads() {
    if let Some(output) = promtool("test", "prometheus/alerts.test.yml") {
        assert!(output.status.success(), "{output:?}");
    }
}
