//! Tests the commands for operators of a store.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod shell;

use serde_json::{Value, json};

use shell::{Shell, observed};

/// Bob has $10. A transfer to Joe has stopped between its two phases, or after the commit point.
fn stopped(shell: &Shell, step: &str) {
    let seed = "begin\nset Bob bal $10\nset Joe bal $2\ncommit\n";
    let transfer = "begin\nset Bob bal $3\nset Joe bal $9\nprewrite\n";
    shell.tx(&[], &format!("{seed}{transfer}{step}crash\n")).with(0);
}

#[test]
fn a_cell_is_explained() {
    let shell = Shell::new();
    stopped(&shell, "commit-primary\n");
    let explained = shell.run(&["cell", "Joe", "bal", "--explain"]).with(0).stdout;
    let (table, text) = explained.split_once("\n\n").unwrap();
    assert!(table.contains("primary @ Bob.bal"), "{explained}");
    assert!(text.contains("Transaction 3 is committed at 4"), "{explained}");
    assert!(text.contains("returns $9. The reader rolls transaction 3 forward to 4."), "{text}");
    let at = ["cell", "Joe", "bal", "--explain", "--at", "3", "--json"];
    let json = shell.run(&at).with(0).json();
    let reader = &json["explained"]["reader"];
    assert_eq!((&reader["first"], &reader["outcome"]), (&json!("roll_forward"), &json!("value")));
    assert_eq!((&reader["value"], &reader["commit_ts"]), (&json!({ "utf8": "$2" }), &json!(2)));
    assert_eq!(json["explained"]["lines"][0]["kind"], "lock_roll_forward");
    assert_eq!(json["moments"].as_array().unwrap().len(), 3);
    // The explanation has resolved no lock.
    assert_eq!(shell.run(&["locks", "ls", "--json"]).with(0).json().as_array().unwrap().len(), 1);
    let at = ["cell", "Joe", "bal", "--explain", "--at", "99999999"];
    assert!(shell.run(&at).with(0).stdout.contains("was not issued yet"));
    shell.run(&["cell", "Ann", "bal", "--explain"]).refused(1, "was never written", "scan");
    assert!(shell.run(&["cell", "Joe", "bal", "--at", "3"]).with(2).stderr.contains("--explain"));
}

#[test]
fn locks_are_resolved_by_hand() {
    let shell = Shell::new();
    stopped(&shell, "");
    let dry = shell.run(&["locks", "resolve", "--dry-run"]).with(0);
    assert_eq!(dry.stderr, "2 locks would be resolved\n");
    assert_eq!(dry.stdout.matches("owner dead").count(), 2, "{}", dry.stdout);
    let nothing = shell.run(&["locks", "resolve", "--older", "1h", "--json"]).with(0);
    assert_eq!(nothing.json(), json!([]));
    let joe = ["locks", "resolve", "--table", "default", "--prefix", "J", "--json"];
    let joe = shell.run(&joe).with(0).json();
    assert_eq!((joe.as_array().unwrap().len(), &joe[0]["end"]["kind"]), (1, &json!("rolled_back")));
    assert_eq!(joe[0]["cell"]["row"], json!({ "utf8": "Joe" }));
    // The primary lock was removed together with the secondary.
    assert_eq!(shell.run(&["locks", "ls", "--json"]).with(0).json(), json!([]));
    assert_eq!(shell.run(&["get", "Bob", "bal"]).with(0).stdout, "$10\n");
}

#[test]
fn an_observer_is_paused_and_resumed() {
    let shell = Shell::new();
    observed(&shell, false);
    let pause = |words: &[&str]| shell.run(&[&["observers"], words].concat());
    pause(&["pause", "invert"]).refused(1, "no observer is called invert", "observers ls");
    assert!(
        pause(&["pause", "parse", "--dry-run"]).with(0).stderr.starts_with("would pause parse")
    );
    let paused = |shell: &Shell| {
        let ls = shell.run(&["observers", "ls", "--json"]).with(0).json();
        ls[0]["paused"].as_bool().unwrap()
    };
    assert!(!paused(&shell));
    let done = pause(&["pause", "parse", "--json"]).with(0).json();
    assert_eq!(done, json!({ "matched": 1, "paused": 1 }));
    assert!(paused(&shell) && pause(&["ls"]).with(0).stdout.contains("paused"));
    assert!(shell.run(&["backlog"]).with(0).stdout.contains("parse (paused)"));
    shell.run(&["wait"]).refused(1, "paused observers: parse", "observers resume");
    let wait = shell.run(&["wait", "--json"]).with(1).json();
    assert_eq!((&wait["idle"], &wait["paused"]), (&json!(true), &json!(["parse"])));
    pause(&["resume", "parse"]).with(0);
    assert!(!paused(&shell));
    shell.run(&["wait"]).refused(1, "docs/doc:text 1", "observers parse");
}

#[test]
fn what_an_observer_fails_at_is_listed_and_skipped() {
    let shell = Shell::new();
    observed(&shell, true);
    let failing = |words: &[&str]| {
        shell.run(&[&["observers", "failing", "--json"], words].concat()).with(0).json()
    };
    let all = failing(&["parse", "--table", "docs", "--prefix", "a", "--error", "cannot"]);
    assert_eq!((&all[0]["state"], &all[0]["attempts"]), (&json!("set_aside"), &json!(2)));
    assert!(all[0]["age"]["at_least_s"].is_number(), "{all}");
    for others in [&["invert"][..], &["--table", "t"], &["--prefix", "b"], &["--error", "full"]] {
        assert_eq!(failing(others), json!([]), "{others:?}");
    }
    let shown = shell.run(&["observers", "failing"]).with(0).stdout;
    assert!(shown.contains("docs/a/doc:text") && shown.contains("cannot parse"), "{shown}");

    let observers = |words: &[&str]| shell.run(&[&["observers"], words].concat());
    let dry = observers(&["replay", "--dry-run"]).with(0);
    assert_eq!(dry.stderr, "would replay 1 change that an observer failed at\n");
    observers(&["skip", "parse"]).refused(2, "without a terminal", "--yes");
    observers(&["skip", "parse", "--dry-run"]).with(0);
    assert_eq!(failing(&[]).as_array().unwrap().len(), 1);
    let skipped = observers(&["skip", "parse", "--yes", "--json"]).with(0).json();
    assert_eq!(skipped, json!({ "matched": 1, "skipped": 1 }));
    assert_eq!(failing(&[]), json!([]));
    observers(&["skip", "parse", "--yes"]).refused(
        1,
        "no matching change of parse",
        "observers failing",
    );
    // The change is acknowledged, and the next worker clears its notification.
    let words = ["cell", "a", "doc:text", "--table", "docs", "--explain"];
    let cell = shell.run(&words).with(0).stdout;
    assert!(cell.contains("parse @ ") && cell.contains("has acknowledged"), "{cell}");
}

#[test]
fn a_backlog_has_an_age_and_a_rate() {
    let shell = Shell::new();
    observed(&shell, false);
    let first = shell.run(&["backlog", "--json"]).with(0).json();
    assert_eq!(first[0]["paused"], json!([]));
    assert!(first[0]["oldest_age"]["at_least_s"].is_number(), "{first}");
    let rate = shell.run(&["backlog", "--rate", "10ms", "--json"]).with(0).json();
    assert_eq!((&rate[0]["per_s"], &rate[0]["left_s"]), (&json!(0.0), &Value::Null));
    let shown = shell.run(&["backlog", "--rate", "10ms"]).with(0).stdout;
    assert!(shown.contains("empty in") && shown.contains("never"), "{shown}");
}

#[test]
fn tables_are_counted_up_to_a_bound() {
    let shell = Shell::new();
    observed(&shell, false);
    shell.tx(&[], "begin\nset Bob bal 1\nset Joe bal 22\nset Ann bal 3\ncommit\n").with(0);
    shell.run(&["delete", "Ann", "bal"]).with(0);
    let tables = shell.run(&["tables", "--json"]).with(0).json();
    let default = json!({
        "table": "default", "rows": 2, "bytes": 15, "whole": true, "observed": [],
    });
    assert_eq!(tables[0], default);
    assert_eq!(tables[1]["observed"], json!([{ "utf8": "doc:text" }]));
    let shown = shell.run(&["tables", "--rows-max", "1"]).with(0).stdout;
    assert!(shown.contains("at least 1") && shown.contains("doc:text"), "{shown}");
}

#[test]
fn the_status_of_garbage_collection_shows_ages() {
    let shell = Shell::new();
    shell.run(&["set", "Bob", "bal", "1"]).with(0);
    shell.run(&["gc", "run", "--retention", "0s"]).with(0);
    let status = shell.run(&["gc", "status", "--json"]).with(0).json();
    assert!(status["safe_point_age"]["at_least_s"].is_number(), "{status}");
    let shown = shell.run(&["gc", "status"]).with(0).stdout;
    let header = shown.lines().next().unwrap();
    assert!(header.find("age").unwrap() < header.find("timestamp").unwrap(), "{shown}");
}
