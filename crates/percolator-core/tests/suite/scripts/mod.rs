//! Golden scripts: the protocol step by step, told by files in `tests/scripts`.
//!
//! Each file is a list of commands with what they answer; see `CONTRIBUTING.md` for how to add one.
//! `UPDATE_GOLDENFILES=1` writes the answers down, for a person to read before they are kept.

mod actor;
mod commands;
mod dump;
mod hermitage;
mod runner;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use self::runner::{Finding, Script};
use crate::stores::LEFT_OUT;

/// Runs every script of a folder; returns what they found out about anomalies.
fn run_folder(folder: &str) -> Vec<Finding> {
    // The suite is also a part of other crates beside this one.
    let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../crates/percolator-core/tests/scripts");
    let path = scripts.join(folder);
    let entries = std::fs::read_dir(&path).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no scripts in {folder}");
    let (mut findings, mut failed) = (Vec::new(), Vec::new());
    for file in files {
        let name = format!("{folder}/{}", file.file_name().unwrap().to_string_lossy());
        if LEFT_OUT.iter().any(|(left_out, _)| *left_out == name) {
            continue;
        }
        let run = || {
            let mut script = Script::new(&name);
            goldenscript::run(&mut script, &file).unwrap_or_else(|error| panic!("{error}"));
            script.findings()
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(found) => findings.extend(found),
            Err(_) => failed.push(name),
        }
    }
    assert!(failed.is_empty(), "scripts that came out differently: {failed:?}");
    findings
}

#[test]
fn protocol() {
    run_folder("protocol");
}

#[test]
fn observers() {
    run_folder("observers");
}

/// The tests of talent-plan's Percolator lab, but for the one of an oracle behind a network that
/// loses requests: here the oracle is a library, and whoever puts a network before it tests that.
#[test]
fn lab() {
    run_folder("lab");
}
