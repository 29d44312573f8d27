//! `percolator-bench fig10`: workers and the table server are killed, and no commit is lost.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod goals;

use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator-bench"));
    command.args(["fig10"]).args(words).output().unwrap()
}

#[test]
fn processes_are_killed_and_no_commit_is_lost() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let small =
        ["--customers", "20", "--workers", "3", "--seconds", "1", "--rounds", "1", "--json"];
    let ran = run(&[&small[..], &["--out", out.to_str().unwrap()]].concat());
    let told = String::from_utf8_lossy(&ran.stderr);
    let result: Value = serde_json::from_slice(&ran.stdout).expect(&told);
    // On a busy machine the workers may be kept from their capacities, and the run then says so.
    let void = result["void"].as_str().unwrap_or_default();
    assert!(void.is_empty() || void.contains("capacities"), "{void}");
    assert_eq!(ran.status.code(), Some(if void.is_empty() { 0 } else { 3 }), "{told}");
    assert_eq!(result["check"]["violations"], json!([]));
    assert_eq!(result["check"]["lost"], 0);
    assert!(result["check"]["acknowledged"].as_u64() > Some(0));
    assert_eq!(result["settings"]["workers_killed"], 1);
    let round = &result["rounds"][0];
    let at = |name: &str| round[name].as_f64().unwrap();
    assert!(at("workers_killed_s") < at("workers_returned_s"));
    assert!(at("workers_returned_s") < at("table_killed_s"));
    assert!(at("table_returned_s") < at("table_listens_s") && at("table_listens_s") < at("end_s"));
    let figures = result["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 9);
    for figure in figures {
        // There may have been no Trade-Result yet.
        let is_there = figure["median"].is_number() || figure["bar"].is_null();
        assert!(is_there, "{figure}");
    }
    assert!(result["series"]["transactions_per_s"].as_array().unwrap().len() >= 4);
    goals::have_their_figures("fig10", &out);
    let written = std::fs::read_to_string(out.join("fig10.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), result);
    let plot = std::fs::read_to_string(out.join("fig10.svg")).unwrap();
    assert!(plot.contains("1 of 3 workers killed") && plot.contains("table server killed"));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for (words, help) in [
        (["--workers", "1"], "2 to"),
        (["--seconds", "0.5"], "1 to"),
        (["--rounds", "0"], "1 to"),
        (["--customers", "3"], "--customers"),
    ] {
        let ran = run(&words);
        let told = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{words:?}: {told}");
        assert!(told.split_once("\n  help: ").unwrap().1.contains(help), "{told}");
    }
}
