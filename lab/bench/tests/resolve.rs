//! `percolator-bench resolve`, for a fraction of a second: what it prints, and its check.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod ran;

use serde_json::{Value, json};

use ran::{bench, figure};

#[test]
fn locks_of_the_dead_are_removed_and_those_of_the_living_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ran = bench("resolve", &["--json", "--seconds", "0.05", "--out", out.to_str().unwrap()]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(result["check_ok"], json!(true), "{}", result["check"]);
    assert_eq!(result["check"].as_array().unwrap().len(), 3);
    let arms = result["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 7);
    for arm in arms {
        assert!(arm["operations"].as_u64() > Some(0), "{arm}");
    }
    // No forgotten lock is removed before its lifetime is over.
    let resume = arms.iter().find(|arm| arm["name"] == "resume").unwrap();
    assert!(resume["p50_us"].as_f64() >= Some(500_000.0), "{resume}");
    assert_eq!(figure(&result, "first_lock/commit p50")["bar"], json!(3.0));
    assert_eq!(figure(&result, "further_lock/commit p50")["bar"], json!(1.2));
    let written = std::fs::read_to_string(out.join("resolve.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), result);
    assert!(std::fs::read_to_string(out.join("resolve.svg")).unwrap().contains("</svg>"));
}
