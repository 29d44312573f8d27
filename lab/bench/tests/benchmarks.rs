//! Runs every benchmark for a fraction of a second: it checks the shape of the report, and that
//! the benchmark checks itself. Only one runs at a time, because each is measured.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::io::Write as _;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn bench(words: &str) -> Output {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator-bench"));
    // These tests must not find an emulator.
    command.env_remove("BIGTABLE_EMULATOR_HOST").env_remove("CBTEMULATOR");
    command.arg("-q").args(words.split_whitespace()).output().unwrap()
}

/// The figure of this name.
fn figure<'a>(result: &'a Value, name: &str) -> &'a Value {
    let figures = result["figures"].as_array().unwrap();
    figures.iter().find(|figure| figure["name"] == name).expect(name)
}

fn median(result: &Value, name: &str) -> f64 {
    figure(result, name)["median"].as_f64().expect(name)
}

fn list<'a>(result: &'a Value, name: &str) -> &'a [Value] {
    result[name].as_array().map_or(&[][..], Vec::as_slice)
}

/// A short run, and its expected results.
#[derive(Default)]
struct Case {
    words: &'static str,
    /// Number of arms.
    arms: usize,
    /// Figures with their bars. Each figure must be positive.
    bars: &'static [(&'static str, f64)],
    /// Plots, with a part of each.
    plots: &'static [(&'static str, &'static str)],
    /// A fault of the run that is allowed on a busy machine.
    void: &'static str,
}

/// Runs the benchmark, and returns its report.
fn run(case: &Case) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ran = bench(&format!("{} --json --out {}", case.words, out.display()));
    let said = String::from_utf8_lossy(&ran.stderr);
    let result: Value = serde_json::from_slice(&ran.stdout).expect(&said);
    let void = result["void"].as_str().unwrap_or_default();
    let may_be = !case.void.is_empty() && void.contains(case.void);
    assert!(void.is_empty() || may_be, "{void}");
    assert_eq!(result["check_ok"], json!(void.is_empty()), "{said}");
    assert_eq!(ran.status.code(), Some(if void.is_empty() { 0 } else { 3 }), "{said}");
    assert_eq!(list(&result, "arms").len(), case.arms);
    for arm in list(&result, "arms").iter().filter(|arm| arm["blocks"].is_null()) {
        assert!(arm["operations"].as_u64() > Some(0), "{arm}");
        assert!(arm["p50_us"].as_f64() > Some(0.0), "{arm}");
        assert!(arm["p99_us"].as_f64() >= arm["p50_us"].as_f64(), "{arm}");
    }
    for (name, bar) in case.bars {
        assert_eq!(figure(&result, name)["bar"], *bar, "{name}");
        assert!(median(&result, name) > 0.0, "{name}");
    }
    let name = result["benchmark"].as_str().unwrap();
    let written = std::fs::read_to_string(out.join(format!("{name}.json"))).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), result);
    for (plot, part) in case.plots {
        let plot = std::fs::read_to_string(out.join(plot)).unwrap();
        assert!(plot.contains(part) && plot.contains("</svg>"), "{part}: {plot}");
        assert!(!plot.contains("NaN"), "{plot}");
    }
    // Every goal of `percolator-bench check` names a figure that exists in its benchmark.
    let checked = bench(&format!("check --json {}", out.display()));
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    for row in list(&checked, "rows").iter().filter(|row| row["file"] == format!("{name}.json")) {
        for why in ["why", "why_no_limit"].map(|why| row[why].as_str().unwrap_or_default()) {
            assert!(!why.contains("has no figure") && !why.contains("No such file"), "{row}");
        }
    }
    result
}

#[test]
fn fig7_is_compared_with_its_rivals_and_with_the_rule() {
    let result = run(&Case {
        // Without the column engine, even if it is installed.
        words: "fig7 --quick --documents 10000 --seconds 0.2 --rounds 1 --python no-such-python",
        bars: &[("documents/s, ours/rows", 0.133)],
        plots: &[("fig7.svg", "over its old files"), ("fig7-rate.svg", "into the engine")],
        void: "generator was in time",
        ..Case::default()
    });
    // No other condition may fail.
    for condition in list(&result, "check").iter().filter(|condition| condition["ok"] == false) {
        let name = condition["condition"].as_str().unwrap();
        assert!(name.ends_with("generator was in time"), "{condition}");
    }
    let held = |who| json!(format!("{who}: every document is where the rule puts it"));
    for who in
        ["first load", "rounds", "rows", "rows over old files", "delta", "engine", "fourth key"]
    {
        assert!(list(&result, "check").iter().any(|c| c["condition"] == held(who)), "{who}");
    }
    let rivals: Vec<&Value> = list(&result, "rivals").iter().map(|rival| &rival["name"]).collect();
    assert_eq!(rivals, ["rows", "rows over old files", "delta", "engine"]);
    assert!(result["missing"][0].as_str().unwrap().contains("DuckDB"), "{}", result["missing"]);
    assert_eq!(figure(&result, "documents/s, ours/rows")["paper"], json!(0.133));
    for name in ["documents/s, engine/rows", "documents/CPU-s, engine/rows", "keys looked up"] {
        assert!(median(&result, name) > 0.0, "{name}");
    }
    // Only the floor is not measured at crawl rates.
    for rival in list(&result, "rivals") {
        let rates = if rival["name"] == "engine" { 0 } else { 6 };
        assert_eq!(list(rival, "rates").len(), rates, "{}", rival["name"]);
    }
}

#[test]
fn fig8_measures_every_arm_and_checks_every_copy() {
    let result = run(&Case {
        words: "fig8 --seconds 0.02 --cells 40 --callers 4 --without emulator --without postgres",
        arms: 41,
        bars: &[
            ("get/raw_get", 0.90),
            ("paper_faithful/raw_set", 0.15),
            ("two_phases/raw_set", 0.40),
            ("tx/raw_set", 0.60),
            ("get_recorded/get", 0.93),
            ("tx_recorded/tx", 0.93),
            ("tx_ten/raw_set", 0.45),
            ("tx_sync/raw_set_sync", 0.80),
            ("two_phases_sync/raw_set_sync", 0.45),
            ("tx_sync_many/raw_set_sync_many", 0.60),
            ("raw_set_blind/fjall_insert", 0.60),
        ],
        plots: &[("fig8.svg", "Read/s"), ("fig8.svg", "Write/s")],
        ..Case::default()
    });
    assert_eq!(result["check"], json!({ "copies": 24, "cells": 24 * 40, "wrong": 0 }));
    assert_eq!(figure(&result, "tx/raw_set")["paper"], 0.23);
    if cfg!(target_os = "linux") {
        for (name, calls) in [
            ("fjall_packs", 1.0),
            ("raw_set", 1.0),
            ("tx", 1.0),
            ("two_mutations", 2.0),
            ("two_phases", 2.0),
        ] {
            let found = median(&result, &format!("{name}: system calls that write, each"));
            // Reserving timestamps and writing files take a few further calls.
            assert!((calls..calls + 1.0).contains(&found), "{name}: {found}");
        }
    }
    assert!(median(&result, "server_tx/server_raw_set") > 0.0);
    let ladder = list(&result, "ladder");
    let asked = |step: &Value| -> Vec<f64> {
        let names = ["reads", "writes", "conditions", "cells_changed"];
        names.map(|name| step["per_transaction"][name].as_f64().unwrap()).into()
    };
    // A prewrite checks for a lock, a rollback record and a newer write, and leaves a lock and a
    // value. A commit checks the lock, and replaces it by the write record.
    for (at, arm, each) in [
        (0, "paper_faithful", [0.0, 2.0, 4.0, 4.0]),
        (3, "two_phases", [0.0, 2.0, 4.0, 3.0]),
        (4, "tx", [0.0, 1.0, 3.0, 1.0]),
    ] {
        assert_eq!((&ladder[at]["arm"], asked(&ladder[at])), (&json!(arm), each.to_vec()));
    }
    for step in ladder {
        assert!(list(&result, "arms").iter().any(|arm| arm["name"] == step["arm"]), "{step}");
    }
}

#[test]
fn fig8_leaves_out_what_it_is_asked_to() {
    let result = run(&Case {
        words: "fig8 --seconds 0.01 --cells 20 --callers 2 --without server --without emulator \
                --without postgres",
        arms: 37,
        ..Case::default()
    });
    let figures = list(&result, "figures");
    assert!(!figures.iter().any(|figure| figure["name"].as_str().unwrap().contains("server")));
}

fn books_are_in_order(result: &Value) {
    for store in list(result, "stores") {
        assert_eq!(store["violations"], json!([]), "{store}");
    }
    for arm in list(result, "arms") {
        assert_eq!(list(arm, "blocks").len(), 10);
        assert!(arm["transactions_per_s"]["median"].as_f64() > Some(0.0), "{arm}");
        assert_eq!(list(arm, "types").len(), 11);
    }
}

#[test]
fn fig9_measures_the_brokerage_and_checks_its_books() {
    let result = run(&Case {
        words: "fig9 --customers 20 --seconds 1 --without small --without rpc --without postgres",
        arms: if cpus() < 2 { 1 } else { 2 },
        plots: &[("fig9.svg", "Percolator, 2010")],
        void: "late",
        ..Case::default()
    });
    books_are_in_order(&result);
    for arm in list(&result, "arms") {
        let types = list(arm, "types");
        assert!(types.iter().any(|kind| kind["gets"].as_f64() > Some(10.0)), "{arm}");
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn fig9_runs_the_same_in_postgresql() {
    if let Err(missing) = tpce::postgres::Server::find() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {missing}");
        return;
    }
    let result = run(&Case {
        words: "fig9 --customers 20 --seconds 1 --without embedded --without small --without rpc",
        arms: 1,
        void: "late",
        ..Case::default()
    });
    books_are_in_order(&result);
    assert_eq!(result["arms"][0]["name"], "postgres_2");
    assert_eq!(figure(&result, "embedded/postgres_per_cpu_s")["median"], Value::Null);
}

#[test]
fn fig10_kills_processes_and_loses_no_commit() {
    let result = run(&Case {
        words: "fig10 --customers 20 --workers 3 --seconds 1 --rounds 1",
        plots: &[("fig10.svg", "1 of 3 workers killed"), ("fig10.svg", "table server killed")],
        // On a busy machine the workers may not reach their capacities.
        void: "capacities",
        ..Case::default()
    });
    let check = &result["check"];
    assert_eq!((&check["violations"], &check["lost"]), (&json!([]), &json!(0)));
    assert!(check["acknowledged"].as_u64() > Some(0));
    assert_eq!(result["settings"]["workers_killed"], 1);
    let moments = ["workers_killed", "workers_returned", "table_killed", "table_returned"];
    let moments = moments.into_iter().chain(["table_listens", "end"]);
    let at = |name| result["rounds"][0][format!("{name}_s")].as_f64().unwrap();
    assert!(moments.map(at).is_sorted(), "{}", result["rounds"]);
    assert_eq!(list(&result, "figures").len(), 9);
    for figure in list(&result, "figures") {
        // There may have been no Trade-Result yet, so the figure may be missing.
        assert!(figure["median"].is_number() || figure["bar"].is_null(), "{figure}");
    }
    assert!(list(&result["series"], "transactions_per_s").len() >= 4);
}

#[test]
fn batching_measures_delays_and_counts_every_commit() {
    let result = run(&Case {
        words: "micro batching --callers 8 --cells 20 --seconds 0.05",
        arms: 4,
        bars: &[("delay_10/delay_0 requests", 0.25)],
        plots: &[("batching.svg", "prewrites and commits")],
        ..Case::default()
    });
    // Read, prewrite and commit each wait for the delay.
    assert!(result["arms"][3]["p50_us"].as_f64() > Some(300_000.0), "{}", result["arms"][3]);
    for (what, least) in [("requests", 3.0), ("reads", 1.0), ("mutations", 2.0)] {
        let each = |arm| median(&result, &format!("{arm}: {what} for a transaction"));
        assert!(each("delay_0") >= least && each("delay_100") < each("delay_0"), "{what}");
    }
}

#[test]
fn large_txn_measures_large_transactions_and_many_at_once() {
    let result = run(&Case {
        words: "micro large-txn --seconds 0.05 --cells 1000 --transactions 200",
        arms: 6,
        bars: &[("tx_1000/raw_1000", 0.45), ("all_at_once/one_by_one", 0.5)],
        plots: &[("large-txn.svg", "transactions")],
        ..Case::default()
    });
    assert_eq!(list(&result, "check").len(), 4);
    let names: Vec<_> = list(&result, "arms").iter().map(|arm| &arm["name"]).collect();
    assert_eq!(names, ["raw_10", "tx_10", "raw_1000", "tx_1000", "one_by_one", "all_at_once"]);
}

#[test]
fn notify_measures_and_checks_every_arm() {
    let result = run(&Case {
        words: "micro notify --seconds 0.05",
        arms: 18,
        bars: &[
            ("start_hinted/hand_off p50", 5.0),
            ("2 s/start_hinted p50", 400.0),
            ("notifications/transactions", 0.5),
            ("notifications_synced/transactions_synced", 3.0),
            ("start_scanned_100 p50/period", 0.75),
        ],
        plots: &[("notify.svg", "hint")],
        ..Case::default()
    });
    assert!(list(&result, "check").len() >= 6);
    let weak = median(&result, "hot_weak: committed of attempted");
    assert_eq!(weak, 1.0, "a weak notification never conflicts");
}

#[test]
fn oracle_checks_every_timestamp() {
    let result = run(&Case {
        words: "micro oracle --seconds 0.05 --callers 20",
        arms: 6,
        bars: &[("batched timestamps per s", 2_000_000.0), ("batched/unbatched", 100.0)],
        plots: &[
            ("oracle.svg", "here, 20 callers, batched: "),
            ("oracle.svg", "the paper, 20 callers"),
        ],
        void: "came late",
    });
    assert!(result["check"]["timestamps"].as_u64() > Some(0));
    assert_eq!(result["check"]["wrong"], json!(0));
    let rounds = result["settings"]["blocks"].as_u64().unwrap();
    let late = result["check"]["late_rounds"].as_u64().unwrap() * 2 > rounds;
    assert_eq!(result["check_ok"], json!(!late));
}

#[test]
fn churn_tells_each_minute_of_each_program_and_checks_what_it_reads() {
    let result = run(&Case {
        words: "micro churn --quick --rows 2000 --rate 1000 --minutes 3 --minute 0.5 \
                --program percolator --program engine --program sqlite",
        bars: &[
            ("CPU of an update, last minute/first", 1.25),
            ("slowest call, ms", 20.0),
            ("bytes on disk/live and retained", 1.5),
        ],
        plots: &[("churn.svg", "engine")],
        ..Case::default()
    });
    let minutes = list(&result, "minutes");
    // SQLite is left out where Python is missing.
    let programs = 3 - list(&result, "left_out").len();
    assert_eq!(minutes.len(), 3 * programs);
    assert!(median(&result, "CPU in the last minute, percolator/engine") > 0.0);
    let updates = minutes.iter().map(|minute| minute["updates"].as_u64().unwrap());
    assert_eq!(result["check"], json!({ "updates": updates.sum::<u64>(), "wrong": 0 }));
    for minute in minutes {
        assert!(minute["updates"].as_u64() > Some(0), "{minute}");
        assert!(minute["slowest_ms"].as_f64() > Some(0.0), "{minute}");
        assert!(minute["disk_mb"].is_number() && minute["memory_mb"].is_number(), "{minute}");
        let keeps_versions = minute["program"] == "percolator";
        assert_eq!(minute["old_get_us"].is_number(), keeps_versions, "{minute}");
    }
}

#[test]
fn churn_runs_our_program_alone_in_its_quick_form() {
    let words = "micro churn --quick --rows 100 --rate 100 --minutes 2 --minute 0.1";
    let result = run(&Case { words, ..Case::default() });
    let programs: Vec<_> = list(&result, "minutes").iter().map(|one| &one["program"]).collect();
    assert_eq!(programs, ["percolator", "percolator"]);
}

#[test]
fn prefetch_counts_reads_ahead() {
    let result = run(&Case {
        words: "micro prefetch --documents 80",
        bars: &[("one_by_one/ahead, short values", 10.0)],
        plots: &[("prefetch.svg", "with columns read ahead")],
        ..Case::default()
    });
    assert_eq!(result["reads"][0]["one_by_one"], 1600);
    assert_eq!(result["reads"][0]["ahead"], 99);
    assert_eq!(result["figures"][1]["verdict"], "reached");
}

#[test]
fn resolve_removes_locks_of_the_dead_and_not_those_of_the_living() {
    let result = run(&Case {
        words: "micro resolve --seconds 0.05",
        arms: 7,
        bars: &[("first_lock/commit p50", 3.0), ("further_lock/commit p50", 1.2)],
        plots: &[("resolve.svg", "goal for the first")],
        ..Case::default()
    });
    assert_eq!(list(&result, "check").len(), 3);
    // No forgotten lock is removed before its lifetime is over.
    let resume = list(&result, "arms").iter().find(|arm| arm["name"] == "resume").unwrap();
    assert!(resume["p50_us"].as_f64() >= Some(500_000.0), "{resume}");
}

#[test]
fn rpc_checks_what_it_wrote() {
    let result = run(&Case {
        words: "micro rpc --seconds 0.05 --cells 40 --callers 3",
        arms: 12,
        bars: &[("tx/bare_commit", 0.8), ("get_many/bare_read_many", 0.9)],
        plots: &[("rpc.svg", "<title>Percolator, a read, 3 callers")],
        ..Case::default()
    });
    let check = &result["check"];
    assert_eq!((&check["cells"], &check["wrong"]), (&json!(80), &json!(0)));
    assert_eq!(check["transactions"], check["committed"]);
}

#[test]
fn scan_measures_scans_and_counts_notifications() {
    let result = run(&Case {
        words: "micro scan --seconds 0.02 --cells 1500 --few 1000 --clean 3000 --dirty 100 \
                --processed 400",
        arms: 9,
        bars: &[
            ("snapshot_scan/raw_scan", 0.70),
            ("snapshot_scan_ten/raw_scan", 0.35),
            ("notify_many/notify_few scan", 1.2),
            ("notify_many_reopened/notify_few_again scan", 1.2),
            ("notify_many_processed/notify_few_last scan", 1.2),
        ],
        plots: &[("scan.svg", "ten versions")],
        ..Case::default()
    });
    let check = &result["check"];
    assert_eq!(check["wrong"], 0);
    // One round that warms up and one that counts, of six arms, and the processed
    // notifications.
    assert!(check["notified"].as_u64() >= Some(12 * 100 + 400), "{check}");
    assert_eq!(check["observed"], check["notified"]);
    // All three tables from end to end, and the clean cells.
    assert!(check["rows"].as_u64() >= Some(3 * 1500 + 1000 + 3000), "{check}");
    assert_eq!(figure(&result, "notify_many/notify_few scan")["at_most"], true);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let in_use = format!("fig8 --data {}", dir.path().display());
    for (words, what, help) in [
        ("fig8 --seconds 0", "--seconds 0", "give 0.01 to 600"),
        ("fig8 --cells 9 --callers 1", "--cells 9", "give 10"),
        ("fig8 --cells 63", "--cells 63", "give 64"),
        ("fig8 --callers 0", "--callers 0", "1 to"),
        (&in_use, "is not empty", "empty directory"),
        ("fig9 --customers 3", "3 customers", "--customers"),
        ("fig9 --seconds 0", "--seconds 0", "0.1 to"),
        ("fig10 --workers 1", "--workers 1", "2 to"),
        ("fig10 --seconds 0.5", "--seconds 0.5", "1 to"),
        ("fig10 --rounds 0", "--rounds 0", "1 to"),
        ("fig10 --customers 3", "3 customers", "--customers"),
        ("micro batching --callers 0", "--callers 0", "give 1 to"),
        ("micro large-txn --cells 10", "--cells 10", "give 1000"),
        ("micro large-txn --cells 100001", "--cells 100001", "100000"),
        ("micro large-txn --transactions 0", "--transactions 0", "give 1"),
        ("micro notify --seconds 0", "--seconds 0", "give 0.01 to 600"),
        ("micro oracle --callers 0", "--callers 0", "give 1 to"),
        ("micro prefetch --documents 0", "--documents 0", "give 1 to"),
        ("micro rpc --cells 29 --callers 3", "--cells 29", "give 30"),
        ("micro rpc --callers 0", "--callers 0", "1 to"),
        ("micro scan --cells 999", "--cells 999", "give 1000"),
        ("micro scan --dirty 0", "--dirty 0", "give 1 to"),
        ("micro scan --clean 99999", "--clean 99999", "give 100000"),
        ("profile --operations 9", "--operations 9", "give 100"),
        ("profile --operations 50010", "--operations 50010", "50000"),
        ("profile --operations 105", "--operations 105", "multiple of 10"),
        ("profile --arm tx_99", "--arm tx_99", "choose from"),
    ] {
        let ran = bench(words);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{words:?}: {said}");
        let told = said.split_once("\n  help: ").expect(&said);
        assert!(told.0.contains(what) && told.1.contains(help), "{words:?}: {said}");
    }
}

/// The arms of `profile` in these tests, with a hundred operations each.
const FEW: &str = "profile --json --operations 100 --arm fjall_insert --arm raw_set \
                   --arm engine_document --arm document";

#[test]
fn profile_counts_what_an_operation_takes() {
    let dir = tempfile::tempdir().unwrap();
    let ran = bench(&format!("{FEW} --out {}", dir.path().display()));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    if let Some(missing) = list(&result, "left_out").first() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {missing}");
        return;
    }
    assert_eq!(result["check_ok"], json!(true));
    let of = |arm: usize, what: &str| result["profile"][arm][what].as_f64().unwrap();
    for arm in [0, 1] {
        let parts = ["ours", "engine", "allocator", "others"].map(|part| of(arm, part));
        assert!(of(arm, "engine") > 100.0, "{result}");
        // Each part is rounded separately.
        assert!((parts.iter().sum::<f64>() - of(arm, "instructions")).abs() <= 2.5, "{result}");
        // One write of the journal, and few other calls.
        assert!((0.9..1.6).contains(&of(arm, "file_calls")), "{result}");
    }
    assert!(of(0, "ours") < 100.0, "the engine alone: {result}");
    assert!(of(1, "ours") > 100.0 && of(1, "allocations") >= 1.0, "{result}");
    assert!(median(&result, "raw_set/fjall_insert instructions") > 1.0, "{result}");
    assert!(of(2, "instructions") > 2.0 * of(0, "instructions"), "two batches: {result}");
    assert!(of(3, "instructions") > 2.0 * of(1, "instructions"), "two transactions: {result}");
    assert!(of(3, "instructions") > of(2, "instructions"), "over the same engine: {result}");
    let plot = std::fs::read_to_string(dir.path().join("profile.svg")).unwrap();
    assert!(plot.contains("the engine's, raw_set: "), "{plot}");
}

#[test]
fn profile_says_how_to_get_valgrind() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator-bench"));
    let ran = command.args(FEW.split(' ')).env("PATH", dir.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(result["left_out"][0].as_str().unwrap().contains("apt-get install valgrind"));
    assert_eq!((&result["profile"], &result["figures"]), (&json!([]), &json!([])));
}
