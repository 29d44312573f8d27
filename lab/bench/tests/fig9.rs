//! `percolator-bench fig9`, for a second per arm: what it prints, and its checks of the books.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod goals;
mod ran;

use std::io::Write as _;
use std::process::Output;

use serde_json::{Value, json};

use ran::{bench, figure};

/// The result of a run that may be void, but only for requests that a busy machine sent late.
fn result(ran: &Output) -> Value {
    let said = String::from_utf8_lossy(&ran.stderr);
    let result: Value = serde_json::from_slice(&ran.stdout).expect(&said);
    let void = result["void"].as_str().unwrap_or_default();
    assert!(void.is_empty() || void.contains("late"), "{void}");
    assert_eq!(ran.status.code(), Some(if void.is_empty() { 0 } else { 3 }), "{said}");
    for store in result["stores"].as_array().unwrap() {
        assert_eq!(store["violations"], json!([]), "{store}");
    }
    result
}

fn each_arm_did_something(result: &Value) {
    for arm in result["arms"].as_array().unwrap() {
        assert_eq!(arm["blocks"].as_array().unwrap().len(), 10);
        assert!(arm["transactions_per_s"]["median"].as_f64() > Some(0.0), "{arm}");
        assert_eq!(arm["types"].as_array().unwrap().len(), 11);
    }
}

#[test]
fn the_brokerage_is_measured_and_its_books_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut words = vec!["--customers", "20", "--seconds", "1", "--json"];
    for store in ["small", "rpc", "postgres", "plpgsql"] {
        words.extend(["--without", store]);
    }
    let ran = bench("fig9", &[&words[..], &["--out", out.to_str().unwrap()]].concat());
    let figures = result(&ran);
    each_arm_did_something(&figures);
    for arm in figures["arms"].as_array().unwrap() {
        let types = arm["types"].as_array().unwrap();
        assert!(types.iter().any(|kind| kind["gets"].as_f64() > Some(10.0)), "{arm}");
    }
    goals::have_their_figures("fig9", &out);
    let written = std::fs::read_to_string(out.join("fig9.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), figures);
}

#[test]
fn postgresql_runs_the_same_in_statements_and_in_functions() {
    if let Err(missing) = tpce::postgres::Server::find() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {missing}");
        return;
    }
    let mut words = vec!["--customers", "20", "--seconds", "1", "--json"];
    for store in ["embedded", "small", "rpc"] {
        words.extend(["--without", store]);
    }
    let ran = bench("fig9", &words);
    let figures = result(&ran);
    each_arm_did_something(&figures);
    let arms: Vec<_> = figures["arms"].as_array().unwrap().iter().map(|arm| &arm["name"]).collect();
    assert_eq!(arms.len(), 2, "{arms:?}");
    let ratio = figure(&figures, "plpgsql/postgres_per_cpu_s");
    assert_eq!(ratio["bar"], Value::Null, "no goal depends on it");
    assert_eq!(figure(&figures, "embedded/plpgsql_per_cpu_s")["median"], Value::Null);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    for (words, what, help) in [
        (["--customers", "3"], "3 customers", "--customers"),
        (["--seconds", "0"], "--seconds 0", "0.1 to"),
    ] {
        let ran = bench("fig9", &words);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(ran.stdout.is_empty() && said.contains(what) && said.contains(help), "{said}");
    }
}
