//! `percolator-bench large-txn`, for a fraction of a second: what it prints, and its check.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod ran;

use serde_json::{Value, json};

use ran::{bench, figure};

#[test]
fn large_transactions_and_many_at_once_are_measured_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ran = bench(
        "large-txn",
        &[
            "--json",
            "--seconds",
            "0.05",
            "--cells",
            "1000",
            "--transactions",
            "200",
            "--out",
            out.to_str().unwrap(),
        ],
    );
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(result["check_ok"], json!(true), "{}", result["check"]);
    assert_eq!(result["check"].as_array().unwrap().len(), 4);
    let names: Vec<_> = result["arms"].as_array().unwrap().iter().map(|arm| &arm["name"]).collect();
    assert_eq!(names, ["raw_10", "tx_10", "raw_1000", "tx_1000", "one_by_one", "all_at_once"],);
    assert_eq!(figure(&result, "tx_1000/raw_1000")["bar"], json!(0.45));
    let written = std::fs::read_to_string(out.join("large-txn.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), result);
    assert!(std::fs::read_to_string(out.join("large-txn.svg")).unwrap().contains("</svg>"));
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for (flag, value) in [("--cells", "10"), ("--cells", "100001"), ("--transactions", "0")] {
        let ran = bench("large-txn", &[flag, value]);
        assert_eq!(ran.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&ran.stderr).contains(flag), "{flag} {value}");
    }
}
