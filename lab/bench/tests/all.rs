//! Tests `percolator-bench all` and `percolator-bench check`: results are compared with the
//! goals, and a document is written about them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_percolator-bench")).args(words).output().unwrap()
}

fn stderr_of(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn what_one_benchmark_found_is_checked_and_written_about() {
    let dir = TempDir::new().unwrap();
    let (out, report) = (dir.path().join("out"), dir.path().join("docs").join("experiments.md"));
    std::fs::create_dir(report.parent().unwrap()).unwrap();
    let (out_name, report_name) = (out.to_str().unwrap(), report.to_str().unwrap());
    let all = ["all", "--quick", "--out", out_name, "--report", report_name];
    let ran = run(&[&all[..], &["--only", "prefetch"]].concat());
    // The other benchmarks did not run, so their goals are not measured.
    assert_eq!(ran.status.code(), Some(6), "{}", stderr_of(&ran));
    assert!(
        stderr_of(&ran).contains("fig8.json") && !stderr_of(&ran).contains("bench prefetch ended")
    );
    assert!(read(&out.join("prefetch.txt")).contains("wrong 0"));
    let check: Value = serde_json::from_str(&read(&out.join("check.json"))).unwrap();
    assert_eq!(check["ok"], false);
    let text = read(&report);
    assert_eq!(text.replace("](experiments/", "]("), read(&out.join("experiments.md")));
    assert!(
        text.contains("`percolator-bench micro prefetch --seed 1 --quick --out DIR`"),
        "{text}"
    );
    assert!(text.contains("| one_by_one/ahead, short values | "), "{text}");
    assert!(
        read(&dir.path().join("docs/experiments/prefetch.svg")).contains("with columns read ahead")
    );
    // An existing plot is copied beside the report.
    std::fs::write(out.join("prefetch.svg"), "<svg/>").unwrap();
    assert_eq!(run(&[&all[..], &["--none"]].concat()).status.code(), Some(6));
    assert!(read(&report).contains("](experiments/prefetch.svg)"));
    assert_eq!(read(&dir.path().join("docs/experiments/prefetch.svg")), "<svg/>");
    // A plot keeps its content if the report's directory of plots is that of the results.
    let beside = dir.path().join("out.md");
    let same = ["all", "--none", "--out", out_name, "--report", beside.to_str().unwrap()];
    assert_eq!(run(&same).status.code(), Some(6));
    assert!(read(&beside).contains("](out/prefetch.svg)"));
    assert_eq!(read(&out.join("prefetch.svg")), "<svg/>");
    let ran = run(&[&all[..], &["--only", "nothing"]].concat());
    assert_eq!(ran.status.code(), Some(2));
    assert!(stderr_of(&ran).contains("fig7"), "{}", stderr_of(&ran));
}

#[test]
fn goals_are_checked_against_the_files_of_a_directory() {
    let dir = TempDir::new().unwrap();
    let checked = |words: &[&str]| {
        let ran = run(&[&["check", dir.path().to_str().unwrap()], words].concat());
        (ran.status.code(), stderr_of(&ran), ran.stdout)
    };
    let (status, told, rows) = checked(&["--json"]);
    let rows: Value = serde_json::from_slice(&rows).unwrap();
    assert_eq!((status, &rows["reached"]), (Some(6), &json!(0)));
    assert_eq!(rows["not_measured"], rows["rows"].as_array().unwrap().len());
    assert!(told.contains("prefetch.json"), "{told}");
    // Every row gets its figure, with the value of its bar.
    let mut files = std::collections::BTreeMap::<String, Vec<Value>>::new();
    for row in rows["rows"].as_array().unwrap() {
        let (bar, name) = (&row["bar"], &row["figure"]);
        let figure = json!({ "name": name, "median": bar, "low": bar, "high": bar });
        files.entry(row["file"].as_str().unwrap().to_owned()).or_default().push(figure);
    }
    for (file, figures) in files {
        let settings = json!({
            "documents": 2_000_000, "clean_many": 10_000_000, "processed": 1_000_000, "minutes": 30,
            "rows": 40_000_000,
        });
        let told = json!({
            "check_ok": true, "optimised": true, "settings": settings, "figures": figures,
        });
        std::fs::write(dir.path().join(file), told.to_string()).unwrap();
    }
    let (status, told, _) = checked(&[]);
    assert_eq!(status, Some(0), "{told}");
    std::fs::remove_file(dir.path().join("fig9.json")).unwrap();
    let (status, told, _) = checked(&[]);
    assert_eq!(status, Some(6));
    assert!(told.contains("2 goals") && told.contains("Figure 9: two cores / one"), "{told}");
    assert_eq!(run(&["check", "/no/such/directory"]).status.code(), Some(2));
}
