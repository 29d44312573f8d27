//! Tests that another worker replaces the one that writes the search index and hangs.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "some of it is for other tests")]
#[path = "operator/cluster.rs"]
mod cluster;
#[allow(dead_code, reason = "some of it is for other tests")]
mod shell;

use std::fs;

use cluster::Cluster;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const BASE: &str = "https://fish.example/";

impl Cluster {
    /// Runs a command of the index, which must succeed.
    #[track_caller]
    fn webindex(&self, words: &[&str]) -> String {
        self.on(&[&["webindex"], words].concat()).with(0).stdout
    }

    /// Loads a page, and waits until it can be found.
    #[track_caller]
    fn load(&self, name: &str) {
        let site = tempfile::tempdir().unwrap();
        let page = format!("<title>{name}</title><p>All about {name}, a fish.");
        fs::write(site.path().join(format!("{name}.html")), page).unwrap();
        self.webindex(&["load", site.path().to_str().unwrap(), "--base", BASE]);
        assert!(self.webindex(&["search", name]).contains(&format!("{BASE}{name}.html")));
    }

    fn writer(&self) -> Value {
        let stats: Value = serde_json::from_str(&self.webindex(&["stats", "--json"])).unwrap();
        stats["writer"].clone()
    }
}

/// A process that stands still until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(process: &Value) -> Self {
        let process = i32::try_from(process.as_u64().unwrap()).unwrap();
        let process = Pid::from_raw(process).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        Stopped(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Otherwise `cluster down` would wait for it.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn a_writer_that_hangs_is_replaced_and_wakes_without_harm() {
    let cluster = Cluster::new();
    cluster.up(&["--workers", "2"]);
    cluster.load("cod");
    let hung = cluster.writer();
    assert_eq!(hung["generation"], 0);

    let stopped = Stopped::new(&hung["process"]);
    // The load ends when the observers have caught up, so after the take-over.
    cluster.load("ray");
    let writer = cluster.writer();
    assert_eq!(writer["generation"], 1);
    assert_ne!(writer["process"], hung["process"]);
    assert!(cluster.webindex(&["search", "cod"]).contains(&format!("{BASE}cod.html")));

    drop(stopped);
    cluster.load("eel");
    assert!(cluster.webindex(&["verify"]).contains("no difference"));
    assert_eq!(cluster.writer()["generation"], 1);
}
