//! Tests a short run of `percolator-torture`, and the arguments that it refuses.

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

/// Runs `percolator-torture strike`, and returns its output.
fn strike(words: &[&str]) -> String {
    let ran = program(&[&["strike"], words].concat()).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    String::from_utf8_lossy(&ran.stdout).trim().to_owned()
}

#[test]
fn a_command_is_killed_at_its_moment_unless_it_ends_before() {
    let dir = tempfile::tempdir().unwrap();
    let events = dir.path().join("events");
    let events = events.to_str().unwrap();
    assert_eq!(strike(&["--seed", "7", "--", "sleep", "60"]), "killed");
    assert_eq!(strike(&["--", "true"]), "ended");
    let says = format!("echo '{{\"event\":\"loaded\"}}' > {events}; sleep 60");
    let after = ["--after", "loaded", "--events", events];
    assert_eq!(strike(&[&after[..], &["--", "sh", "-c", &says]].concat()), "killed");
    std::fs::remove_file(events).unwrap();
    assert_eq!(strike(&[&after[..], &["--", "true"]].concat()), "ended");
}

#[test]
fn a_process_is_killed_by_the_file_that_holds_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run");
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    std::fs::write(&file, format!("{}\n", child.id())).unwrap();
    let path = file.to_str().unwrap().to_owned();
    // The child disappears only after its parent has waited for it.
    let waits = std::thread::spawn(move || child.wait().unwrap().code());
    assert_eq!(strike(&["--process", &path]), "killed");
    assert_eq!(waits.join().unwrap(), None, "by a signal");
    std::fs::write(&file, "worker").unwrap();
    let refused = program(&["strike", "--process", &path]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("no process id"), "{}", said(&refused));
}
