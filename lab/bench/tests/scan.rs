//! `percolator-bench scan`: the shape of what it reports, and that it checks itself.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod goals;

use std::process::{Command, Output};

use serde_json::Value;

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator-bench"));
    command.args(["scan"]).args(words).output().unwrap()
}

#[test]
fn scans_and_notifications_are_measured_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ran = bench(&[
        "--seconds",
        "0.02",
        "--cells",
        "1500",
        "--few",
        "1000",
        "--clean",
        "3000",
        "--dirty",
        "100",
        "--processed",
        "400",
        "--json",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let check = &result["check"];
    assert_eq!((&check["wrong"], &result["check_ok"]), (&0.into(), &true.into()));
    // A round that warms up and one that counts, of six arms, and what was processed.
    assert!(check["notified"].as_u64() >= Some(12 * 100 + 400), "{check}");
    assert_eq!(check["observed"], check["notified"]);
    // All three tables from end to end, and the clean cells.
    assert!(check["rows"].as_u64() >= Some(3 * 1500 + 1000 + 3000), "{check}");
    assert_eq!(result["arms"].as_array().unwrap().len(), 9);
    let figures = result["figures"].as_array().unwrap();
    for (name, bar, at_most) in [
        ("snapshot_scan/raw_scan", 0.70, false),
        ("snapshot_scan_ten/raw_scan", 0.35, false),
        ("notify_many/notify_few scan", 1.2, true),
        ("notify_many_reopened/notify_few_again scan", 1.2, true),
        ("notify_many_processed/notify_few_last scan", 1.2, true),
    ] {
        let figure = figures.iter().find(|figure| figure["name"] == name).expect(name);
        assert_eq!((&figure["bar"], &figure["at_most"]), (&bar.into(), &at_most.into()));
        assert!(figure["median"].as_f64() > Some(0.0), "{figure}");
    }
    let written = std::fs::read_to_string(out.join("scan.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), result);
    goals::have_their_figures("scan", &out);
    let plot = std::fs::read_to_string(out.join("scan.svg")).unwrap();
    assert!(plot.contains("ten versions") && !plot.contains("NaN"));
}

#[test]
fn bad_settings_are_refused() {
    for (words, what) in [
        (["--seconds", "0"], "--seconds 0"),
        (["--cells", "999"], "--cells 999"),
        (["--dirty", "0"], "--dirty 0"),
        (["--clean", "99999"], "--clean 99999"),
    ] {
        let ran = bench(&words);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains(what) && said.contains("\n  help: "), "{said}");
    }
}
