//! Runs golden scripts: files in `tests/scripts` that show the protocol step by step.
//!
//! Each file is a list of commands with their answers; `CONTRIBUTING.md` says how to add one.
//! `UPDATE_GOLDENFILES=1` writes the answers down. A person must read them before they are
//! kept.

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

/// Runs every script of a folder. Returns its findings about anomalies.
fn run_folder(folder: &str) -> Vec<Finding> {
    // Other crates also include this suite.
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

/// The tests of talent-plan's Percolator lab. A test of an oracle behind a network that loses
/// requests is missing, because here the oracle is a library. The crates that put a network in
/// front of it test that.
#[test]
fn lab() {
    run_folder("lab");
}
