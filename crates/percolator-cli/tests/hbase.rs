//! Tests the command line on a real HBase cluster, which `scripts/hbase.sh` starts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "some of it is for other tests")]
#[path = "operator/cluster.rs"]
mod cluster;
#[allow(dead_code, reason = "some of it is for other tests")]
mod shell;

use std::io::Write;

use cluster::Cluster;
use shell::run;

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
