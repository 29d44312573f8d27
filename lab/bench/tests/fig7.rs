//! `percolator-bench fig7`: the shape of what it reports, and that it checks itself.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod goals;
mod ran;

use serde_json::{Value, json};

use ran::{bench, figure};

#[test]
fn ours_and_its_rivals_are_measured_and_compared_with_the_rule() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let small = ["--quick", "--documents", "10000", "--seconds", "0.2", "--rounds", "1"];
    // Without the column engine, whether or not it is there.
    let without = ["--python", "no-such-python", "--json", "--out", out.to_str().unwrap()];
    let ran = bench("fig7", &[&small[..], &without].concat());
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    // Beside other tests the generator of arrivals may be late, and then the run is void; nothing
    // else.
    let conditions = result["check"].as_array().unwrap();
    let broken = || conditions.iter().filter(|condition| condition["ok"] == false);
    for condition in broken() {
        assert!(
            condition["condition"].as_str().unwrap().ends_with("generator was in time"),
            "{result}"
        );
    }
    let status = if broken().next().is_some() { 3 } else { 0 };
    assert_eq!(ran.status.code(), Some(status), "{}", String::from_utf8_lossy(&ran.stderr));
    let exact = |who: &str| format!("{who}: every document is where the rule puts it");
    for who in
        ["first load", "rounds", "rows", "rows over old files", "delta", "engine", "fourth key"]
    {
        assert!(conditions.iter().any(|condition| condition["condition"] == exact(who)), "{who}");
    }
    let rivals: Vec<&Value> =
        result["rivals"].as_array().unwrap().iter().map(|rival| &rival["name"]).collect();
    assert_eq!(
        rivals,
        [&json!("rows"), &json!("rows over old files"), &json!("delta"), &json!("engine")]
    );
    assert!(result["missing"][0].as_str().unwrap().contains("DuckDB"), "{}", result["missing"]);
    let ratio = figure(&result, "documents/s, ours/rows");
    assert_eq!((&ratio["bar"], &ratio["paper"]), (&json!(0.133), &json!(0.133)));
    for name in [
        "documents/s, ours/rows",
        "documents/s, engine/rows",
        "documents/CPU-s, engine/rows",
        "keys looked up",
    ] {
        assert!(figure(&result, name)["median"].as_f64() > Some(0.0), "{name}");
    }
    // The floor alone is not asked about crawl rates.
    for rival in result["rivals"].as_array().unwrap() {
        let rates = rival["rates"].as_array().unwrap().len();
        assert_eq!(rates, if rival["name"] == "engine" { 0 } else { 6 }, "{}", rival["name"]);
    }
    goals::have_their_figures("fig7", &out);
    for (plot, told) in [("fig7.svg", "over its old files"), ("fig7-rate.svg", "into the engine")] {
        let plot = std::fs::read_to_string(out.join(plot)).unwrap();
        assert!(plot.contains(told) && !plot.contains("NaN"));
    }
}
