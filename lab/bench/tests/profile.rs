//! `percolator-bench profile`, for a few operations: what it counts, and what it says without
//! Valgrind.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod ran;

use std::io::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use ran::{bench, figure};

/// The arms of this test, of a hundred operations each.
const FEW: [&str; 11] = [
    "--json",
    "--operations",
    "100",
    "--arm",
    "fjall_insert",
    "--arm",
    "raw_set",
    "--arm",
    "engine_document",
    "--arm",
    "document",
];

#[test]
fn what_an_operation_takes_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let ran = bench("profile", &[&FEW[..], &["--out", dir.path().to_str().unwrap()]].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    if !result["left_out"].as_array().unwrap().is_empty() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {}", result["left_out"][0]);
        return;
    }
    assert_eq!(result["check_ok"], json!(true));
    let of = |arm: usize, what: &str| result["profile"][arm][what].as_f64().unwrap();
    for arm in [0, 1] {
        let parts = ["ours", "engine", "allocator", "others"].map(|part| of(arm, part));
        assert!(of(arm, "engine") > 100.0, "{result}");
        // Each is rounded by itself.
        assert!((parts.iter().sum::<f64>() - of(arm, "instructions")).abs() <= 2.5, "{result}");
    }
    for arm in [0, 1] {
        // One write of the journal; what else there is, is little.
        assert!((0.9..1.6).contains(&of(arm, "file_calls")), "{result}");
    }
    assert!(of(0, "ours") < 100.0, "the engine alone: {result}");
    assert!(of(1, "ours") > 100.0 && of(1, "allocations") >= 1.0, "{result}");
    let ratio = figure(&result, "raw_set/fjall_insert instructions")["median"].as_f64().unwrap();
    assert!(ratio > 1.0, "{result}");
    assert!(of(2, "instructions") > 2.0 * of(0, "instructions"), "two batches: {result}");
    assert!(of(3, "instructions") > 2.0 * of(1, "instructions"), "two transactions: {result}");
    assert!(of(3, "instructions") > of(2, "instructions"), "over the same engine: {result}");
    let plot = std::fs::read_to_string(dir.path().join("profile.svg")).unwrap();
    assert!(plot.contains("the engine's, raw_set: "), "{plot}");
    let written = std::fs::read_to_string(dir.path().join("profile.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), result);
}

#[test]
fn without_valgrind_it_says_how_to_get_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator-bench"));
    let ran = command.args(["profile"]).args(FEW).env("PATH", dir.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(result["left_out"][0].as_str().unwrap().contains("apt-get install valgrind"));
    assert_eq!((&result["profile"], &result["figures"]), (&json!([]), &json!([])));
}

#[test]
fn what_cannot_be_counted_is_refused() {
    for (flag, value) in [
        ("--operations", "9"),
        ("--operations", "50010"),
        ("--operations", "105"),
        ("--arm", "tx_99"),
    ] {
        let ran = bench("profile", &[flag, value]);
        assert_eq!(ran.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&ran.stderr).contains(flag), "{flag} {value}");
    }
}
