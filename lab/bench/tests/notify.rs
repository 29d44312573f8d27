//! `percolator-bench notify`, for a fraction of a second: what it prints, and its check.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod goals;
mod ran;

use serde_json::{Value, json};

use ran::{bench, figure};

#[test]
fn every_arm_is_measured_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ran = bench("notify", &["--json", "--seconds", "0.05", "--out", out.to_str().unwrap()]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(result["check_ok"], json!(true), "{}", result["check"]);
    assert!(result["check"].as_array().unwrap().len() >= 6);
    let arms = result["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 17);
    for arm in arms {
        assert!(arm["operations"].as_u64() > Some(0), "{arm}");
        assert!(arm["p50_us"].as_f64() > Some(0.0), "{arm}");
    }
    assert_eq!(figure(&result, "start_hinted/hand_off p50")["bar"], json!(5.0));
    assert_eq!(figure(&result, "notifications/transactions")["bar"], json!(0.5));
    assert_eq!(figure(&result, "start_scanned_100 p50/period")["bar"], json!(0.75));
    goals::have_their_figures("notify", &out);
    let weak = figure(&result, "hot_weak: committed of attempted");
    assert_eq!(weak["median"], json!(1.0), "a weak notification never conflicts");
    let written = std::fs::read_to_string(out.join("notify.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), result);
    assert!(std::fs::read_to_string(out.join("notify.svg")).unwrap().contains("</svg>"));
}

#[test]
fn seconds_that_are_none_are_refused() {
    let ran = bench("notify", &["--seconds", "0"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("give 0.01 to 600"));
}
