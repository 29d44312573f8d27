//! A short run of `percolator-torture`, and what it refuses.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::process::{Command, Output};

use serde_json::{Value, json};

fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator-torture"));
    command.args(words);
    command
}

fn said(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

#[test]
fn torture_finds_no_damage_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program(&["--kills", "3", "--seed", "1", "--json"]);
    let ran = command.env("TMPDIR", dir.path()).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&report["kills"], &report["violations"]), (&json!(3), &json!(0)));
    assert!(report["checks"].as_u64().unwrap() > 100, "{report}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn torture_refuses_what_it_cannot_use() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(program(&["--kills", "0"]).output().unwrap().status.code(), Some(2));
    std::fs::write(dir.path().join("mine"), "precious").unwrap();
    let kept = dir.path().to_str().unwrap();
    let ran = program(&["--kills", "1", "--data", kept]).output().unwrap();
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(2), &b""[..]));
    let text = said(&ran);
    let (error, next) = text.split_once("\n  help: ").expect(&text);
    assert!(error.starts_with("error: ") && error.contains("not empty"), "{text}");
    assert!(next.contains("--data"), "{text}");
}
