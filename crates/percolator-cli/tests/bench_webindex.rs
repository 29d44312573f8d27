//! `bench webindex` on three pages: what it prints, and its verification.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn bench(dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.args(["bench", "webindex", "--json", "-q"]).arg(dir).output().unwrap()
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
    let ran = bench(Path::new("/nonexistent"));
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(ran.stdout.is_empty() && said.contains("no such directory"), "{said}");
}
