//! `percolator-bench rpc`, for a fraction of a second: what it prints, and its check.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod ran;

use serde_json::{Value, json};

use ran::{bench, figure};

#[test]
fn what_it_wrote_is_checked() {
    let settings = ["--seconds", "0.05", "--cells", "40", "--callers", "3"];
    let dir = tempfile::tempdir().unwrap();
    let out = ["--json", "--out", dir.path().to_str().unwrap()];
    let ran = bench("rpc", &[&settings[..], &out].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let check = &result["check"];
    assert_eq!((&check["cells"], &check["wrong"]), (&json!(80), &json!(0)));
    assert_eq!(check["transactions"], check["committed"]);
    for arm in result["arms"].as_array().unwrap() {
        assert!(arm["operations"].as_u64() > Some(0), "{arm}");
    }
    assert_eq!(figure(&result, "tx/bare_commit")["bar"], json!(0.8));
    for name in ["tx/tx_read_first", "tx_many/tx_read_first_many"] {
        assert!(figure(&result, name)["median"].as_f64() > Some(0.0), "{name}");
    }
    assert_eq!(figure(&result, "get_many/bare_read_many")["bar"], json!(0.9));
    let plot = std::fs::read_to_string(dir.path().join("rpc.svg")).unwrap();
    assert_eq!(plot.matches("<title>Percolator, ").count(), 4, "{plot}");
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for (words, what, help) in [
        (&["--cells", "29", "--callers", "3"][..], "--cells 29", "give 30"),
        (&["--callers", "0"], "--callers 0", "1 to"),
    ] {
        let ran = bench("rpc", words);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(ran.stdout.is_empty() && said.contains(what) && said.contains(help), "{said}");
    }
}
