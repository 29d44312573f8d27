//! `percolator-bench oracle`, for a fraction of a second: what it prints, and its check.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod ran;

use serde_json::{Value, json};

use ran::{bench, figure};

#[test]
fn every_timestamp_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let out = ["--out", dir.path().to_str().unwrap()];
    let few = ["--seconds", "0.05", "--callers", "20", "--json"];
    let ran = bench("oracle", &[&few[..], &out].concat());
    let said = String::from_utf8_lossy(&ran.stderr);
    let result: Value = serde_json::from_slice(&ran.stdout).expect(&said);
    assert!(result["check"]["timestamps"].as_u64() > Some(0));
    assert_eq!(result["check"]["wrong"], json!(0), "{said}");
    // Void is a run on a busy machine only, where callers came late.
    let rounds = result["settings"]["blocks"].as_u64().unwrap();
    let void = result["check"]["late_rounds"].as_u64().unwrap() * 2 > rounds;
    assert_eq!(result["check_ok"], json!(!void), "{said}");
    assert_eq!(ran.status.code(), Some(if void { 3 } else { 0 }), "{said}");
    assert_eq!(said.contains("came late"), void, "{said}");
    assert_eq!(result["arms"].as_array().unwrap().len(), 6);
    assert_eq!(figure(&result, "batched timestamps per s")["bar"], json!(2_000_000.0));
    let plot = std::fs::read_to_string(dir.path().join("oracle.svg")).unwrap();
    assert!(plot.contains("here, 20 callers, batched: ") && plot.contains("the paper, 20 callers"));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for (words, what, help) in [
        (["--callers", "0"], "--callers 0", "give 1 to"),
        (["--seconds", "0"], "--seconds 0", "give 0.01"),
    ] {
        let ran = bench("oracle", &words);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(ran.stdout.is_empty() && said.contains(what) && said.contains(help), "{said}");
    }
}
