//! Tests `percolator-bench webindex` on three pages: its output, and its verification.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn bench(dir: &Path) -> Output {
    bench_without(dir, &[])
}

/// Runs the benchmark without these files.
fn bench_without(dir: &Path, excluded: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator-bench"));
    command.args(["webindex", "--json", "-q"]).arg(dir);
    for name in excluded {
        command.args(["--exclude", name]);
    }
    command.output().unwrap()
}

/// Checks that the run was refused without a report, and returns the message.
fn refused(ran: &Output) -> String {
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert_eq!(ran.status.code(), Some(2), "{said}");
    let told: Value = serde_json::from_str(&said).expect(&said);
    assert_eq!(told["error"]["exit"], json!(2), "{said}");
    said
}

#[test]
fn every_page_and_link_is_verified_in_both_runs() {
    let dir = tempfile::tempdir().unwrap();
    for (page, next) in [(1, 2), (2, 3), (3, 1)] {
        let html = format!("<title>{page}</title><p>page {page}, <a href=\"{next}.html\">next</a>");
        std::fs::write(dir.path().join(format!("{page}.html")), html).unwrap();
    }
    let ran = bench(dir.path());
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    for load in ["full_load", "half_load"] {
        let run = &result[load];
        assert_eq!((&run["pages"], &run["links"]), (&json!(3), &json!(3)), "{run}");
        assert_eq!((&run["verify_ok"], &run["differences"]), (&json!(true), &json!([])), "{run}");
        assert!(run["pages_per_s"].as_f64() > Some(0.0), "{run}");
    }
    let (full, half) = (&result["full_load"], &result["half_load"]);
    let offered = half["pages_per_s_offered"].as_f64().unwrap();
    assert!((offered * 2.0 / full["pages_per_s"].as_f64().unwrap() - 1.0).abs() < 0.01, "{half}");
}

#[test]
fn a_directory_that_is_not_there_is_refused() {
    let said = refused(&bench(Path::new("/nonexistent")));
    assert!(said.contains("no such directory"), "{said}");
}

#[test]
fn a_directory_without_pages_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let said = refused(&bench(dir.path()));
    assert!(said.contains("no pages to index"), "{said}");
    assert!(said.contains("percolator webindex generate DIR"), "{said}");
    // With all files excluded, there are no pages either.
    std::fs::write(dir.path().join("page.html"), "<p>here").unwrap();
    let said = refused(&bench_without(dir.path(), &["page.html"]));
    assert!(said.contains("no pages to index") && said.contains("--exclude"), "{said}");
}

#[test]
#[cfg(unix)]
fn pages_that_cannot_be_read_are_named() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("gone.html")).unwrap();
    let said = refused(&bench(dir.path()));
    assert!(said.contains("no pages to index"), "{said}");
    assert!(said.contains("skipped: 1, the first of them") && said.contains("gone.html"), "{said}");
}
