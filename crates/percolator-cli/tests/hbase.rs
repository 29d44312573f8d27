//! Tests the command line on a real HBase cluster, which `scripts/hbase.sh` starts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Runs the command line with these arguments. Returns its standard output.
#[track_caller]
fn run(args: &[&str], status: i32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PERCOLATOR_") {
            command.env_remove(name);
        }
    }
    let output = command.args(args).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    let (stdout, stderr) = (stdout.unwrap(), stderr.unwrap());
    assert_eq!(output.status.code(), Some(status), "{args:?}\n{stdout}\n{stderr}");
    if status == 0 { stdout } else { stderr }
}

/// A local cluster of processes over HBase, ended with the test.
struct Cluster(PathBuf);

impl Cluster {
    fn up(dir: &Path, store: &str) -> Cluster {
        let cluster = Cluster(dir.join("cluster"));
        let data = cluster.0.to_str().unwrap();
        run(&["cluster", "up", "--workers", "2", "--store", store, "--data", data], 0);
        cluster
    }

    #[track_caller]
    fn on(&self, args: &[&str]) -> String {
        let config = self.0.join("percolator.toml");
        run(&[args, &["--config", config.to_str().unwrap()]].concat(), 0)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut down = Command::new(env!("CARGO_BIN_EXE_percolator"));
        let _ = down.args(["cluster", "down", "--data"]).arg(&self.0).output();
    }
}

#[test]
fn a_site_is_loaded_ranked_searched_and_verified() {
    let Ok(address) = std::env::var("PERCOLATOR_HBASE") else {
        // The test harness captures the macros' output, so this writes to standard error directly.
        let text = b"not run: a test that needs HBase (scripts/hbase.sh cargo test --test hbase)\n";
        let _ = std::io::stderr().write_all(text);
        return;
    };
    let namespace = format!("/site{}?", std::process::id());
    let store = address.replace("/percolator?", &namespace);
    let dir = tempfile::tempdir().unwrap();
    let site = dir.path().join("site");
    let site = site.to_str().unwrap();
    run(&["webindex", "generate", site, "--pages", "60", "--seed", "7"], 0);

    let cluster = Cluster::up(dir.path(), &store);
    cluster.on(&["set", "Bob", "bal", "10", "--table", "accounts"]);
    let script = dir.path().join("script");
    std::fs::write(&script, "begin\nget Bob bal\nset Bob bal 7\nset Joe bal 3\ncommit\n").unwrap();
    cluster.on(&["tx", script.to_str().unwrap(), "--table", "accounts"]);
    let joe = cluster.on(&["get", "Joe", "bal", "--table", "accounts"]);
    assert!(joe.contains('3'), "{joe}");
    let all = cluster.on(&["scan", "--table", "accounts"]);
    assert!(all.contains("Bob") && all.contains("Joe"), "{all}");

    cluster.on(&["webindex", "load", site, "--base", "https://example.org/"]);
    cluster.on(&["webindex", "rank"]);
    cluster.on(&["wait"]);
    cluster.on(&["webindex", "verify"]);
    let stats = cluster.on(&["webindex", "stats", "--json"]);
    let stats: Value = serde_json::from_str(&stats).unwrap();
    // The home page, and 60 pages with texts of their own.
    assert_eq!(stats["searchable"], 61, "{stats}");
    let hits = cluster.on(&["webindex", "search", "bridge"]);
    assert!(hits.contains("https://example.org/"), "{hits}");
}

#[test]
fn a_wrong_address_is_refused_with_the_remedy() {
    let up = |store: &str, status| {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("cluster");
        run(&["cluster", "up", "--store", store, "--data", data.to_str().unwrap()], status)
    };
    let error = up("hbase://127.0.0.1:1", 2);
    assert!(error.contains("it has no namespace: give hbase://HOST:PORT"), "{error}");
    let error = up("hbase://127.0.0.1:1/no-such", 2);
    assert!(error.contains("letters, digits and _"), "{error}");

    let oracle = |store: &str, status| {
        run(&["serve", "oracle", "--listen", "127.0.0.1:0", "--store", store], status)
    };
    let error = oracle("hbase://127.0.0.1:1/n?deadline=1s", 4);
    assert!(error.contains("hbase://127.0.0.1:1/n?deadline=1s"), "{error}");
    assert!(error.contains("refused") && error.contains("check that HBase runs there"), "{error}");
    let error = oracle("hbase://192.0.2.1:1/n?deadline=1s", 2);
    assert!(error.contains("plain text to 192.0.2.1:1"), "{error}");
}
