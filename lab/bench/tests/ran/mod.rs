//! A benchmark that ran, and what it found.

use std::process::{Command, Output};

use serde_json::Value;

/// Runs a benchmark with these flags.
pub(crate) fn bench(name: &str, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator-bench"));
    command.args([name, "-q"]).args(words).output().unwrap()
}

/// The figure of this name.
pub(crate) fn figure<'a>(result: &'a Value, name: &str) -> &'a Value {
    let figures = result["figures"].as_array().unwrap();
    figures.iter().find(|figure| figure["name"] == name).expect(name)
}
