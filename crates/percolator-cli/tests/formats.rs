//! Stores and exports that earlier releases wrote are read for ever, and hold what was written.
//!
//! `formats/4` was written by the command of 25 November 2026, with `set` and `delete`, and
//! `formats/export-1` by that of the day after. A new format gets a directory of its own. No
//! directory is ever changed or removed.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "other tests use more of it")]
mod shell;

use std::fs;
use std::path::Path;

use shell::run;

/// Copies a store; what Git does not keep, directories without files, is made.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(path, to).unwrap();
        }
    }
    if to.join("current").exists() {
        fs::create_dir_all(to.join("tables")).unwrap();
        fs::create_dir_all(to.join("blobs")).unwrap();
    }
}

#[test]
fn a_store_of_format_4_opens() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    copy(&formats.join("4"), &data);
    let data = data.to_str().unwrap();
    run(&["check", data]).with(0);
    let scan = |table: &str| run(&["scan", "--table", table, "--data", data]).with(0).stdout;
    assert_eq!(scan("default"), "Ann\tbal\tAnn-2\nBob\tbal\tBob-2\n");
    assert_eq!(scan("docs"), "\\x00\\xff\tdoc:empty\t\n");
    run(&["set", "Ann", "bal", "Ann-3", "--data", data]).with(0);
    assert!(scan("default").contains("Ann-3"));
    // It has an id from now on, so that it can be backed up.
    let copy = dir.path().join("copy");
    run(&["backup", "--data", data, "--to", copy.to_str().unwrap()]).with(0);
    run(&["check", copy.to_str().unwrap()]).with(0);
}

#[test]
fn exports_of_version_1_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    for name in ["all.jsonl", "all.csv"] {
        let (file, data) = (formats.join("export-1").join(name), dir.path().join(name));
        let data = data.to_str().unwrap();
        run(&["import", file.to_str().unwrap(), "--data", data]).with(0);
        let scan = |table: &str| run(&["scan", "--table", table, "--data", data]).with(0).stdout;
        assert_eq!(scan("default"), "Ann\tbal\tAnn-2\n", "{name}");
        let docs = "\\x00\\xff\tdoc:empty\t\n\\x00\\xff\tdoc:\\xff\t\\xff\\x00\n";
        assert_eq!(scan("docs"), docs, "{name}");
    }
}
