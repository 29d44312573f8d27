//! `percolator-bench fig8`: the shape of what it reports, and that it checks itself.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod goals;

use std::process::{Command, Output};

use serde_json::Value;

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator-bench"));
    // Whatever emulator is at hand, these tests need none.
    command.env_remove("BIGTABLE_EMULATOR_HOST").env_remove("CBTEMULATOR");
    command.args(["fig8"]).args(words).output().unwrap()
}

fn figure<'a>(result: &'a Value, name: &str) -> &'a Value {
    let figures = result["figures"].as_array().unwrap();
    figures.iter().find(|figure| figure["name"] == name).expect(name)
}

#[test]
fn every_arm_is_measured_and_every_copy_checked() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let short = ["--seconds", "0.02", "--cells", "40", "--callers", "4", "--json", "--out"];
    let without = ["--without", "emulator", "--without", "postgres"];
    let ran = bench(&[&short[..], &[out.to_str().unwrap()], &without].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let check = &result["check"];
    assert_eq!((&check["wrong"], &result["check_ok"]), (&0.into(), &true.into()));
    assert_eq!(check["copies"], 22);
    assert_eq!(check["cells"], 22 * 40);
    for arm in result["arms"].as_array().unwrap() {
        assert!(arm["operations"].as_u64() > Some(0), "{arm}");
        assert!(arm["p99_us"].as_f64() >= arm["p50_us"].as_f64(), "{arm}");
    }
    for (name, bar) in [
        ("get/raw_get", 0.90),
        ("paper_faithful/raw_set", 0.15),
        ("two_phases/raw_set", 0.40),
        ("tx/raw_set", 0.60),
        ("tx_ten/raw_set", 0.45),
        ("tx_sync/raw_set_sync", 0.80),
        ("two_phases_sync/raw_set_sync", 0.45),
        ("tx_sync_many/raw_set_sync_many", 0.60),
        ("raw_set_blind/fjall_insert", 0.60),
    ] {
        let figure = figure(&result, name);
        assert_eq!(figure["bar"], bar, "{figure}");
        assert!(figure["median"].as_f64() > Some(0.0), "{figure}");
    }
    assert_eq!(figure(&result, "tx/raw_set")["paper"], 0.23);
    if cfg!(target_os = "linux") {
        for (name, calls) in [
            ("fjall_packs", 1.0),
            ("raw_set", 1.0),
            ("tx", 1.0),
            ("two_mutations", 2.0),
            ("two_phases", 2.0),
        ] {
            let figure = figure(&result, &format!("{name}: system calls that write, each"));
            let found = figure["median"].as_f64().unwrap();
            // Timestamps are reserved, and files written, now and then.
            assert!((calls..calls + 1.0).contains(&found), "{figure}");
        }
    }
    assert!(figure(&result, "server_tx/server_raw_set")["median"].as_f64() > Some(0.0));
    goals::have_their_figures("fig8", &out);
    let written = std::fs::read_to_string(out.join("fig8.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), result);
    let plot = std::fs::read_to_string(out.join("fig8.svg")).unwrap();
    assert!(plot.contains("Read/s") && plot.contains("Write/s") && !plot.contains("NaN"));
}

#[test]
fn the_ladder_says_what_each_form_asks_of_the_store() {
    let beside = ["--without", "server", "--without", "emulator", "--without", "postgres"];
    let short = ["--seconds", "0.01", "--cells", "20", "--callers", "2", "--json"];
    let ran = bench(&[&short[..], &beside].concat());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let ladder = result["ladder"].as_array().unwrap();
    let asked = |step: &Value| -> Vec<f64> {
        let each = &step["per_transaction"];
        let names = ["reads", "writes", "conditions", "cells_changed"];
        names.iter().map(|name| each[*name].as_f64().unwrap()).collect()
    };
    // Prewrite looks for lock, tomb and newer write, and leaves lock and value; commit looks for
    // the lock, and leaves the write record in its place.
    assert_eq!(
        (&ladder[0]["arm"], asked(&ladder[0])),
        (&"paper_faithful".into(), vec![0.0, 2.0, 4.0, 4.0])
    );
    assert_eq!(
        (&ladder[3]["arm"], asked(&ladder[3])),
        (&"two_phases".into(), vec![0.0, 2.0, 4.0, 3.0])
    );
    assert_eq!((&ladder[4]["arm"], asked(&ladder[4])), (&"tx".into(), vec![0.0, 1.0, 3.0, 1.0]));
    for step in ladder {
        let mut arms = result["arms"].as_array().unwrap().iter();
        assert!(arms.any(|arm| arm["name"] == step["arm"]), "{step}");
    }
    let figures = result["figures"].as_array().unwrap();
    assert!(!figures.iter().any(|figure| figure["name"].as_str().unwrap().contains("server")));
}

#[test]
fn bad_settings_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    for (words, what) in [
        (&["--seconds", "0"][..], "--seconds 0"),
        (&["--cells", "9", "--callers", "1"], "--cells 9"),
        (&["--cells", "63"], "--cells 63"),
        (&["--callers", "0"], "--callers 0"),
        (&["--data", dir.path().to_str().unwrap()], "the directory is not empty"),
    ] {
        let ran = bench(words);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains(what) && said.contains("\n  help: "), "{said}");
    }
}
