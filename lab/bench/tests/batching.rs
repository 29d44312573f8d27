//! `percolator-bench batching`, for a fraction of a second: what it prints, and its check.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod ran;

use serde_json::{Value, json};

use ran::{bench, figure};

#[test]
fn delays_are_measured_and_every_commit_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let settings = ["--callers", "8", "--cells", "20", "--seconds", "0.05"];
    let ran =
        bench("batching", &[&settings[..], &["--json", "--out", out.to_str().unwrap()]].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(result["check_ok"], json!(true), "{}", result["check"]);
    let arms = result["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 4);
    for arm in arms {
        assert!(arm["operations"].as_u64() > Some(0), "{arm}");
    }
    // Read, prewrite and commit each wait.
    assert!(arms[3]["p50_us"].as_f64() > Some(300_000.0), "{}", arms[3]);
    let median = |arm: &str, what: &str| {
        let name = format!("{arm}: {what} for a transaction");
        figure(&result, &name)["median"].as_f64().unwrap()
    };
    for (what, least) in [("requests", 3.0), ("reads", 1.0), ("mutations", 2.0)] {
        assert!(median("delay_0", what) >= least, "{what}: {result:#}");
        assert!(median("delay_100", what) < median("delay_0", what), "{what}: {result:#}");
    }
    assert_eq!(figure(&result, "delay_10/delay_0 requests")["bar"], json!(0.25));
    assert!(std::fs::read_to_string(out.join("batching.svg")).unwrap().contains("</svg>"));
    let ran = bench("batching", &["--callers", "0"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("give 1 to"));
}
