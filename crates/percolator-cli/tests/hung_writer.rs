//! Tests that another worker replaces the one that writes the search index and hangs.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const BASE: &str = "https://fish.example/";

/// A cluster in a directory of its own, ended with the test.
struct Cluster(TempDir);

impl Cluster {
    fn data(&self) -> PathBuf {
        self.0.path().join("cluster")
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PERCOLATOR_") {
                command.env_remove(name);
            }
        }
        command.args(args).output().unwrap()
    }

    /// Runs a command of the index, which must succeed.
    #[track_caller]
    fn webindex(&self, args: &[&str]) -> String {
        let config = self.data().join("percolator.toml");
        let config = ["--config", config.to_str().unwrap()];
        text(&self.run(&[&["webindex"], args, &config].concat()))
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

impl Drop for Cluster {
    fn drop(&mut self) {
        self.run(&["cluster", "down", "--data", self.data().to_str().unwrap()]);
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

#[track_caller]
fn text(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "stdout: {stdout}\nstderr: {stderr}");
    stdout
}

#[test]
fn a_writer_that_hangs_is_replaced_and_wakes_without_harm() {
    let cluster = Cluster(tempfile::tempdir().unwrap());
    let data = cluster.data();
    let data = data.to_str().unwrap();
    let up = ["cluster", "up", "--data", data, "--workers", "2", "--durability", "buffered"];
    text(&cluster.run(&up));
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
