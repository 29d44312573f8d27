//! Every goal of `percolator-bench check` names a figure that its benchmark has.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Checks those of this benchmark, whose results are in the directory.
pub(crate) fn have_their_figures(benchmark: &str, out: &Path) {
    let check = ["check", "--json", out.to_str().unwrap()];
    let ran = Command::new(env!("CARGO_BIN_EXE_percolator-bench")).args(check).output().unwrap();
    let checked: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let file = format!("{benchmark}.json");
    let rows: Vec<&Value> =
        checked["rows"].as_array().unwrap().iter().filter(|row| row["file"] == file).collect();
    assert!(!rows.is_empty(), "no goal for {benchmark}");
    for row in rows {
        for why in ["why", "why_no_limit"].map(|why| row[why].as_str().unwrap_or_default()) {
            assert!(!why.contains("has no figure") && !why.contains("No such file"), "{row}");
        }
    }
}
