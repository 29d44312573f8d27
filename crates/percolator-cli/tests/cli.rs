//! Tests the command as people and scripts use it: the output, where it goes, and the exit
//! status.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[allow(dead_code, reason = "some of it is for other tests")]
mod shell;

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use shell::{Ran, Shell, observed, program, run};

#[test]
fn gc_drops_what_was_overwritten_and_says_how_far() {
    let shell = Shell::new();
    let data = shell.data();
    let data = data.to_str().unwrap();
    run(&["gc", "run", "--data", data]).refused(2, "no store is there", "--data");
    for value in ["10", "3", "7"] {
        run(&["set", "Bob", "bal", value, "--data", data]).with(0);
    }
    let status = run(&["gc", "status", "--json", "--data", data]).with(0).json();
    assert_eq!((&status["safe_point"], &status["last_round"]), (&json!(0), &Value::Null));
    // All versions are younger than the retention.
    let kept = run(&["gc", "run", "--json", "--data", data]).with(0).json();
    assert_eq!(kept["counts"]["writes"], 0);
    let ran = run(&["gc", "run", "--retention", "0s", "--json", "--data", data]).with(0).json();
    assert_eq!((&ran["counts"]["writes"], &ran["blocked_by"]), (&json!(2), &Value::Null));
    let status = run(&["gc", "status", "--json", "--data", data]).with(0).json();
    assert_eq!(status["safe_point"], ran["safe_point"]);
    assert_eq!(status["last_round"]["counts"], ran["counts"]);
    let table = run(&["gc", "status", "--data", data]).with(0);
    assert!(
        table.stdout.contains("safe point") && table.stdout.contains("writes"),
        "{}",
        table.stdout
    );
    assert_eq!(run(&["get", "Bob", "bal", "--data", data]).with(0).stdout, "7\n");
    run(&["get", "Bob", "bal", "--at", "3", "--data", data]).refused(2, "safe point", "--at");
    // The collection resolves the lock that a crash left, and drops its rollback record.
    let crash = shell.dir.path().join("crash");
    std::fs::write(&crash, "begin\nset Bob bal 1\nprewrite\ncrash\n").unwrap();
    run(&["tx", crash.to_str().unwrap(), "--data", data]);
    let ran = run(&["gc", "run", "--retention", "0s", "--data", data]).with(0);
    let line = |what: &str| ran.stdout.lines().find(|line| line.contains(what)).unwrap().to_owned();
    assert!(line("locks").ends_with('1') && line("tombs").ends_with('1'), "{}", ran.stdout);
}

// ---- Reading and writing ------------------------------------------------------------------------

#[test]
fn cells_are_written_read_and_deleted() {
    let shell = Shell::new();
    let set = shell.run(&["set", "Bob", "bal", "$10"]).with(0);
    assert_eq!(
        (set.stdout.as_str(), set.stderr.as_str()),
        ("", "1 cell written by transaction 1, committed at 2\n")
    );
    shell.run(&["set", "Bob", "doc:text", "two words"]).with(0);
    assert_eq!(shell.run(&["get", "Bob", "bal"]).with(0).stdout, "$10\n");
    let row = shell.run(&["get", "Bob"]).with(0);
    assert_eq!(row.stdout, "bal\t$10\ndoc:text\ttwo words\n");
    assert_eq!(shell.run(&["get", "Bob", "bal", "no"]).with(0).stdout, "bal\t$10\n");
    shell.run(&["delete", "Bob", "bal"]).with(0);
    shell.run(&["get", "Bob", "bal"]).refused(1, "row Bob has no bal", "percolator scan");
    shell.run(&["delete", "Bob", "bal"]).refused(1, "row Bob has no bal", "percolator scan");
    let past = shell.run(&["get", "Bob", "bal", "--at", "2"]).with(0);
    assert_eq!(past.stdout, "$10\n");
    assert!(shell.run(&["delete", "Bob"]).with(0).stderr.starts_with("1 cell deleted"));
    shell.run(&["get", "Bob"]).refused(1, "no row Bob", "percolator scan");
}

#[test]
fn scans_take_prefixes_ranges_columns_and_limits() {
    let shell = Shell::new();
    let rows: String = ["Ann", "Bob", "Bonny", "Joe"]
        .iter()
        .map(|who| format!("set {who} bal 1\nset {who} age 30\n"))
        .collect();
    shell.tx(&[], &format!("begin\n{rows}commit\n")).with(0);
    let scan = |words: &[&str]| shell.run(&[&["scan"], words].concat()).with(0).stdout;
    assert_eq!(scan(&["--prefix", "Bo", "-c", "bal"]), "Bob\tbal\t1\nBonny\tbal\t1\n");
    assert_eq!(scan(&["--start", "Bonny", "--end", "Joe"]), "Bonny\tage\t30\nBonny\tbal\t1\n");
    assert_eq!(scan(&["-c", "age", "-c", "bal", "--limit", "1"]), "Ann\tage\t30\nAnn\tbal\t1\n");
    assert_eq!(scan(&["--prefix", "Zed"]), "");
    assert_eq!(scan(&["--prefix", "Zed", "--json"]), "[]\n");
    assert_eq!(scan(&["--at", "1"]), "");
}

#[test]
fn keys_and_values_may_be_any_bytes() {
    let shell = Shell::new();
    shell.run(&["set", r"a\x00b", r"f:\xff", "b64:AP8="]).with(0);
    let value = shell.command(&["get", "hex:610062", "hex:663aff"]).output().unwrap();
    assert_eq!(value.stdout, [0, 0xff, b'\n']);
    assert_eq!(shell.run(&["scan"]).with(0).stdout, "a\\x00b\tf:\\xff\t\\x00\\xff\n");
    let json = shell.run(&["scan", "--json"]).with(0).json();
    let cell = json!({ "column": { "b64": "Zjr/" }, "value": { "b64": "AP8=" } });
    assert_eq!(json, json!([{ "row": { "b64": "YQBi" }, "cells": [cell] }]));
}

#[test]
fn json_has_one_shape_whatever_is_found() {
    let shell = Shell::new();
    let set = shell.run(&["set", "Bob", "bal", "$10", "--json"]).with(0);
    assert_eq!(set.json(), json!({ "start_ts": 1, "commit_ts": 2, "cells": 1 }));
    let cell = json!({ "column": { "utf8": "bal" }, "value": { "utf8": "$10" } });
    let get = shell.run(&["get", "Bob", "--at", "2", "--json"]).with(0).json();
    assert_eq!(get, json!({ "row": { "utf8": "Bob" }, "timestamp": 2, "cells": [cell] }));
    let history = shell.run(&["cell", "Bob", "bal", "--json"]).with(0).json();
    let moment = |timestamp: u64, data: Value, write: Value| {
        json!({
            "timestamp": timestamp, "data": data, "lock": null, "write": write,
            "rolled_back": false, "notify": false, "acks": [],
        })
    };
    let committed = moment(2, Value::Null, json!({ "start_ts": 1, "delete": false }));
    assert_eq!(history, json!([committed, moment(1, json!({ "utf8": "$10" }), Value::Null)]));
}

#[test]
fn tables_are_apart_and_must_be_there_to_be_read() {
    let shell = Shell::new();
    shell.run(&["set", "Bob", "bal", "1", "--table", "accounts"]).with(0);
    shell.run(&["get", "Bob"]).refused(1, "no table \"default\"", "--table: accounts");
    assert_eq!(shell.run(&["get", "Bob", "bal", "--table", "accounts"]).with(0).stdout, "1\n");
    shell.run(&["set", "Bob", "bal", "1", "--table", "a b"]).refused(2, "a b", "");
}

// ---- The paper's Figure 4 -----------------------------------------------------------------------

/// The balances of Figure 4, written by transaction 5 and committed at 6.
const SEED: &str = "\
# Timestamps 1 to 4 go to others.
begin\nabort\nbegin\nabort\nbegin\nabort\nbegin\nabort
begin
set Bob bal $10
set Joe bal $2
commit
";

/// Bob gives Joe $7, in transaction 7.
const TRANSFER: &str = "begin\nset Bob bal $3\nset Joe bal $9\n";

const BOB_AFTER: &str = "\
\x20ts │ bal:data │ bal:lock │ bal:write
────┼──────────┼──────────┼───────────
  8 │          │          │ data @ 7
  7 │ $3       │          │
  6 │          │          │ data @ 5
  5 │ $10      │          │
";

const JOE_AFTER: &str = "\
\x20ts │ bal:data │ bal:lock │ bal:write
────┼──────────┼──────────┼───────────
  8 │          │          │ data @ 7
  7 │ $9       │          │
  6 │          │          │ data @ 5
  5 │ $2       │          │
";

const BOB_LOCKED: &str = "\
\x20ts │ bal:data │ bal:lock │ bal:write
────┼──────────┼──────────┼───────────
  7 │ $3       │ primary  │
  6 │          │          │ data @ 5
  5 │ $10      │          │
";

const JOE_LOCKED: &str = "\
\x20ts │ bal:data │ bal:lock          │ bal:write
────┼──────────┼───────────────────┼───────────
  7 │ $9       │ primary @ Bob.bal │
  6 │          │                   │ data @ 5
  5 │ $2       │                   │
";

const JOE_BEFORE: &str = "\
\x20ts │ bal:data │ bal:lock │ bal:write
────┼──────────┼──────────┼───────────
  6 │          │          │ data @ 5
  5 │ $2       │          │
";

const BOB_ROLLED_BACK: &str = "\
\x20ts │ bal:data │ bal:lock │ bal:write │ bal:rollback
────┼──────────┼──────────┼───────────┼──────────────
  7 │          │          │           │ rolled back
  6 │          │          │ data @ 5  │
  5 │ $10      │          │           │
";

#[test]
fn figure_4_a_transfer() {
    // A second process would begin at the next window of timestamps, so one script does all
    // steps.
    let shell = Shell::new();
    let ran = shell.tx(&[], &format!("{SEED}{TRANSFER}commit\n")).with(0);
    assert!(ran.stdout.ends_with("set Joe bal $9 -> ok\ncommit -> committed @ 8\n"));
    assert_eq!(shell.cell("Bob"), BOB_AFTER);
    assert_eq!(shell.cell("Joe"), JOE_AFTER);
    shell.run(&["set", "Bob", "bal", "$4"]).with(0);
    for form in [&[][..], &["--json"]] {
        let newest = shell.run(&[&["cell", "Bob", "bal"], form].concat()).with(0);
        assert!(newest.stderr.starts_with("2 older timestamps"), "{}", newest.stderr);
    }
    shell.run(&["cell", "Ann", "bal"]).refused(1, "Ann/bal was never written", "percolator scan");
}

#[test]
fn figure_4_stopped_after_prewrite_is_rolled_back_by_a_reader() {
    let shell = Shell::new();
    let ran = shell.tx(&[], &format!("{SEED}{TRANSFER}prewrite\ncrash\ncommit\n")).with(0);
    assert!(ran.stdout.ends_with("prewrite -> locked\n"), "{}", ran.stdout);
    assert!(ran.stderr.starts_with("crash: "), "{}", ran.stderr);
    assert_eq!(shell.cell("Bob"), BOB_LOCKED);
    assert_eq!(shell.cell("Joe"), JOE_LOCKED);
    let locks = shell.run(&["locks", "ls"]).with(0).stdout;
    assert_eq!(locks.matches("owner dead: will be rolled back").count(), 2, "{locks}");

    assert_eq!(shell.run(&["get", "Joe", "bal"]).with(0).stdout, "$2\n");
    assert_eq!(shell.cell("Joe"), JOE_BEFORE);
    assert_eq!(shell.cell("Bob"), BOB_ROLLED_BACK);
    let locks = shell.run(&["locks", "ls", "--json"]).with(0);
    assert_eq!(locks.json(), json!([]));
}

#[test]
fn figure_4_stopped_after_the_commit_point_is_rolled_forward_by_a_reader() {
    let shell = Shell::new();
    let script = format!("{SEED}{TRANSFER}prewrite\ncommit-primary\ncrash\n");
    let ran = shell.tx(&[], &script).with(0);
    assert!(ran.stdout.ends_with("commit-primary -> committed @ 8\n"), "{}", ran.stdout);
    assert_eq!(shell.cell("Bob"), BOB_AFTER);
    assert_eq!(shell.cell("Joe"), JOE_LOCKED);
    let locks = shell.run(&["locks", "ls", "--json"]).with(0).json();
    assert_eq!(locks[0]["verdict"], json!({ "kind": "roll_forward", "commit_ts": 8 }));
    assert_eq!(locks[0]["primary"]["row"], json!({ "utf8": "Bob" }));
    assert_eq!(shell.run(&["locks", "ls", "--older", "1h", "--json"]).with(0).json(), json!([]));

    let events = shell.dir.path().join("events");
    let get = ["get", "Joe", "bal", "--events", events.to_str().unwrap()];
    assert_eq!(shell.run(&get).with(0).stdout, "$9\n");
    assert_eq!(shell.cell("Joe"), JOE_AFTER);
    let events = std::fs::read_to_string(events).unwrap();
    let event: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    assert_eq!(event["event"], "rolled_forward");
    assert_eq!((&event["start_ts"], &event["commit_ts"]), (&json!(7), &json!(8)));
}

// ---- Scripts ------------------------------------------------------------------------------------

#[test]
fn interleaved_transactions_conflict_and_the_script_says_so() {
    let shell = Shell::new();
    let script = "a: begin\nb: begin\na: set Bob bal 1\nb: set Bob bal 2\na: commit\nb: commit\n";
    let ran = shell.tx(&[], script).with(1);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "a: begin -> begun @ 1");
    assert_eq!(lines[4], "a: commit -> committed @ 3");
    let conflict = "b: commit -> aborted: conflict on default/Bob/bal with transaction 1, ";
    assert!(lines[5].starts_with(conflict), "{}", lines[5]);

    let ran = shell.tx(&["--json"], script).with(1);
    let last: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["transaction"], &last["line"]), (&json!("b"), &json!(6)));
    assert_eq!(last["conflict"]["cell"], "default/Bob/bal");
}

#[test]
fn scripts_read_their_own_writes_and_report_what_is_left_open() {
    let shell = Shell::new();
    let script = "begin\nset Bob bal 1\nset Ann bal 2\ndelete Ann bal\nget Ann bal\nscan B\n";
    let ran = shell.tx(&[], script).with(0);
    let expected = "get Ann bal -> not there\nscan B -> 1 rows\n  Bob\tbal\t1\n";
    assert!(ran.stdout.ends_with(expected), "{}", ran.stdout);
    assert_eq!(ran.stderr, "the transaction was left open: none of its writes was sent\n");
    assert_eq!(shell.run(&["scan"]).status, 0);
}

#[test]
fn malformed_scripts_are_refused_before_anything_runs() {
    let shell = Shell::new();
    shell.tx(&[], "begin\nset Bob bal 1\ncommit\nhop\n").refused(2, "line 4", "commands are");
    assert!(!shell.data().exists());
    let ran = shell.tx(&[], "set Bob bal 1\n").with(2);
    assert!(ran.stderr.contains("line 1: the transaction is not open"), "{}", ran.stderr);
    let ran = shell.tx(&[], "begin\nprewrite\n").with(2);
    assert!(ran.stderr.contains("line 2: invalid request"), "{}", ran.stderr);
    shell.run(&["tx", "/no/such/script"]).refused(2, "/no/such/script", "file of commands");
}

// ---- Bad input ----------------------------------------------------------------------------------

#[test]
fn directories_that_cannot_be_used_are_refused() {
    let shell = Shell::new();
    shell.run(&["get", "Bob", "bal"]).refused(2, "no store is there", "--data");
    assert!(!shell.data().exists(), "reading must not create a store");
    std::fs::create_dir(shell.data()).unwrap();
    shell.run(&["scan"]).refused(2, "the directory is empty", "--data");
    std::fs::write(shell.data().join("letter.txt"), "Dear Ann").unwrap();
    for words in [&["get", "Bob"][..], &["set", "Bob", "bal", "1"]] {
        shell.run(words).refused(2, "letter.txt", "choose an empty directory");
    }
    let file = shell.dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    run(&["set", "a", "b", "c", "--data", file.to_str().unwrap()]).refused(2, "file", "");
}

#[test]
fn one_process_at_a_time_has_a_directory() {
    let shell = Shell::new();
    shell.open(async |_db| {
        for words in [&["get", "Bob"][..], &["set", "Bob", "bal", "1"], &["wait"]] {
            shell.run(words).refused(2, "another process", "stop that process");
        }
    });
    shell.run(&["set", "Bob", "bal", "1"]).with(0);
}

#[test]
fn data_of_a_newer_format_is_refused() {
    let shell = Shell::new();
    shell.run(&["set", "Bob", "bal", "1"]).with(0);
    let format = shell.data().join("FORMAT");
    let text = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, text.replace("format 5", "format 99")).unwrap();
    shell.run(&["get", "Bob"]).refused(2, "format 99", "or a newer one");
}

#[test]
fn malformed_rows_columns_and_timestamps_are_refused() {
    let shell = Shell::new();
    shell.run(&["set", "Bob", "bal", "1"]).with(0);
    let long = "k".repeat(4097);
    shell.run(&["get", &long]).refused(2, "4097 bytes", "use a hash");
    shell.run(&["get", ""]).refused(2, "0 bytes", "1 to 4096 bytes");
    shell.run(&["set", "Bob", "a b", "1"]).refused(2, "\"a b\"", "family:qualifier");
    shell.run(&["set", "Bob", "ack:x", "1"]).refused(2, "\"ack:x\"", "not `ack`");
    shell.run(&["cell", "Bob", ":x"]).refused(2, "\":x\"", "family:qualifier");
    shell.run(&["get", r"B\q", "bal"]).refused(2, r"B\\q", r"\xNN");
    shell.run(&["get", "Bob", "--at", "99999999"]).refused(2, "not issued", "--history");
    shell.run(&["get", "Bob", "--at", "9999999999999999"]).refused(2, "not a timestamp", "from 0");
    let misspelt = shell.run(&["scann", "Bob"]).with(2);
    assert!(misspelt.stderr.contains("similar subcommand exists: 'scan'"), "{}", misspelt.stderr);
    run(&["get", "Bob"]).refused(2, "no store is named", "--data DIR");
}

#[test]
fn colours_come_only_when_asked_for() {
    let shell = Shell::new();
    assert!(!shell.run(&["get", "Bob"]).stderr.contains('\x1b'));
    let colored = shell.run(&["get", "Bob", "--color", "always"]);
    assert!(colored.stderr.starts_with("\x1b[1;31merror:\x1b[0m"), "{}", colored.stderr);
}

#[test]
fn the_directory_may_come_from_the_environment() {
    let shell = Shell::new();
    let mut set = program();
    set.args(["set", "Bob", "bal", "1"]).env("PERCOLATOR_DATA", shell.data());
    assert!(set.output().unwrap().status.success());
    assert_eq!(shell.run(&["get", "Bob", "bal"]).with(0).stdout, "1\n");
}

#[test]
fn a_typed_directory_and_a_cluster_are_two_stores() {
    let shell = Shell::new();
    let with = |variable: &std::path::Path, args: &[&str]| {
        let mut command = program();
        command.args(args).env("PERCOLATOR_DATA", variable);
        Ran::from(command.output().unwrap())
    };
    let (data, elsewhere) = (shell.data(), shell.data().join("elsewhere"));
    let typed = ["--config", "cluster.toml", "--data", data.to_str().unwrap()];
    let of = |words: &[&'static str]| [words, &typed[..]].concat();
    let delete = of(&["delete", "Bob", "bal"]);
    run(&delete).refused(2, "name two stores", "omit one of them");
    with(&elsewhere, &delete).refused(2, "name two stores", "omit one of them");
    let backup = of(&["backup", "--to", "weekly"]);
    with(&elsewhere, &backup).refused(2, "name two stores", "omit one of them");
    // A directory of the environment gives way to a typed option.
    for words in [&["get", "Bob"][..], &["backup", "--to", "weekly"], &["serve", "oracle"]] {
        let ran = with(&data, &[words, &typed[..2]].concat());
        assert!(ran.stderr.contains("cluster.toml"), "{}", ran.stderr);
    }
    let store = ["serve", "oracle", "-q", "--store", "bigtable://127.0.0.1:1/p/i", "--data", "D"];
    run(&store).refused(2, "name two stores", "omit one of them");
}

#[test]
fn a_server_takes_at_least_one_peer() {
    for (server, option) in [("table", "--connections-max"), ("oracle", "--clients-max")] {
        let ran = run(&["serve", server, option, "0"]).with(2);
        assert!(ran.stderr.contains(option), "{}", ran.stderr);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let shell = Shell::new();
    let rows: String = (0..20_000).map(|i| format!("set row{i} bal 1\n")).collect();
    shell.tx(&["-q"], &format!("begin\n{rows}commit\n")).with(0);
    let mut scan = shell.command(&["scan"]);
    let mut scan = scan.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(scan.stdout.take());
    let ran = Ran::from(scan.wait_with_output().unwrap()).with(0);
    assert_eq!(ran.stderr, "");
}

// ---- Observers ----------------------------------------------------------------------------------

#[test]
fn an_empty_store_is_idle() {
    let shell = Shell::new();
    shell.tx(&[], "").with(0);
    assert_eq!(shell.run(&["wait", "--timeout", "5s"]).with(0).stdout, "");
    let wait = shell.run(&["wait", "--json"]).with(0).json();
    assert_eq!(wait, json!({ "idle": true, "backlog": [], "set_aside": [], "paused": [] }));
    for words in [&["backlog"][..], &["locks", "ls"], &["observers", "ls"]] {
        assert_eq!(shell.run(words).with(0).stdout, "");
        assert_eq!(shell.run(&[words, &["--json"]].concat()).with(0).json(), json!([]));
    }
}

#[test]
fn what_nobody_handles_is_named() {
    let shell = Shell::new();
    observed(&shell, false);
    let backlog = shell.run(&["backlog", "--json"]).with(0).json();
    assert_eq!((&backlog[0]["cells"], &backlog[0]["observers"]), (&json!(1), &json!(["parse"])));
    assert!(shell.run(&["backlog"]).with(0).stdout.contains("docs/doc:text │     1 │"));
    shell.run(&["wait"]).refused(1, "docs/doc:text 1", "observers parse");
    let wait = shell.run(&["wait", "--json"]).with(1);
    assert_eq!(wait.json()["idle"], json!(false));
    let cell = shell.run(&["cell", "a", "doc:text", "--table", "docs"]).with(0).stdout;
    assert!(cell.contains("doc:text:notify") && cell.contains("dirty"), "{cell}");
}

#[test]
fn what_was_set_aside_is_named_and_brought_back() {
    let shell = Shell::new();
    observed(&shell, true);
    shell.run(&["wait"]).refused(
        1,
        "docs/a/doc:text: parse failed 2 times: cannot parse",
        "replay",
    );
    let observers = shell.run(&["observers", "ls", "--json"]).with(0).json();
    assert_eq!(
        (&observers[0]["observer"], &observers[0]["set_aside"]),
        (&json!("parse"), &json!(1))
    );
    let invert = shell.run(&["observers", "replay", "invert"]);
    invert.refused(1, "no matching change of invert", "observers failing");
    let replay = shell.run(&["observers", "replay", "parse", "--json"]).with(0).json();
    assert_eq!(replay, json!({ "matched": 1, "replayed": 1 }));
    assert_eq!(shell.run(&["backlog", "--json"]).with(0).json()[0]["cells"], json!(1));

    shell.run(&["observers", "retire", "parse"]).refused(2, "docs/doc:text", "--yes");
    shell.run(&["observers", "retire", "parse", "--dry-run"]).with(0);
    let told = shell.run(&["observers", "retire", "parse", "--dry-run", "--json"]);
    assert_eq!(told.with(0).json(), json!({ "matched": 1, "retired": 0 }));
    let told = shell.run(&["observers", "retire", "parse", "--yes", "--json"]);
    assert_eq!(told.with(0).json(), json!({ "matched": 1, "retired": 1 }));
    shell.run(&["observers", "retire", "parse", "--yes"]).refused(1, "parse", "observers ls");
    assert_eq!(shell.run(&["observers", "ls", "--json"]).with(0).json(), json!([]));
}

/// Starts an oracle process, and returns it with the address that it prints.
fn serve(shell: &Shell) -> (std::process::Child, percolator_rpc::Address) {
    use std::io::BufRead;

    let mut serve = shell.command(&["serve", "oracle", "--listen", "127.0.0.1:0", "--json"]);
    let mut child = serve.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    (child, told["address"].as_str().unwrap().parse().unwrap())
}

/// An oracle process that was killed or stopped is followed by one that issues only higher
/// timestamps (H40, H41).
#[test]
fn oracle_processes_that_follow_one_another_never_go_back() {
    use percolator::cluster::Oracle;
    use percolator_rpc::oracle::RemoteOracle;

    let shell = Shell::new();
    let mut last = 0;
    for signal in ["-TERM", "-KILL", "-INT", "-TERM"] {
        let (mut child, address) = serve(&shell);
        let status = run(&["oracle", "status", "--oracles", &address.to_string(), "--json"]);
        let looked = status.with(0).json();
        assert!(looked["latest_ts"].as_u64().unwrap() >= last);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let oracle = RemoteOracle::new(vec![address], Default::default()).unwrap();
            for _ in 0..10 {
                let timestamp = oracle.timestamp().await.unwrap().timestamp.as_u64();
                assert!(timestamp > last);
                last = timestamp;
            }
        });
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let code = child.wait().unwrap().code();
        assert_eq!(code, if signal == "-TERM" { Some(0) } else { code.filter(|c| *c == 130) });
    }
}

#[test]
fn an_oracle_listens_beyond_this_machine_only_when_asked_to() {
    let shell = Shell::new();
    let serve = |words: &[&str]| shell.run(&[&["serve", "oracle", "-q"], words].concat());
    let ran = serve(&["--listen", "0.0.0.0:0"]).with(2);
    assert!(ran.stderr.contains("other machines") && ran.stderr.contains("--insecure"));
    assert_eq!(ran.stdout, "");
    serve(&["--tls-authority", "ca.pem"]).with(2);
    let files = ["--tls-authority", "/no/ca", "--tls-certificate", "/no/c", "--tls-key", "/no/k"];
    assert!(serve(&files).with(2).stderr.contains("/no/ca"));
    serve(&["--listen", "0.0.0.0:0", "--insecure"]).refused(2, "cannot connect to", "--advertise");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let ran = serve(&["--listen", &taken]).with(2);
    assert!(ran.stderr.contains("choose another address"), "{}", ran.stderr);
    serve(&["--advertise", "nowhere"]).with(2);
}

#[test]
fn settings_are_shown_with_their_sources_and_slips_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = |words: &[&str], file: &str| -> Ran {
        std::fs::write(dir.path().join("percolator.toml"), file).unwrap();
        let mut command = program();
        command.current_dir(dir.path()).env("XDG_CONFIG_HOME", dir.path());
        command.env("PERCOLATOR_LOCKS__KIND", "etcd").args(words).output().unwrap().into()
    };
    let view = ["config", "view", "--sources", "--json"];
    let shown = config(&view, "oracles = [\"a:1\"]").with(0).json();
    assert_eq!(shown["oracles"], json!({ "value": ["a:1"], "source": "percolator.toml" }));
    assert_eq!(shown["locks.kind"]["source"], "PERCOLATOR_LOCKS__KIND");
    assert_eq!(shown["locks.prefix"]["source"], "default");
    let plain = config(&["config", "view"], "").with(0).stdout;
    assert!(plain.contains("locks.kind") && !plain.contains("PERCOLATOR"), "{plain}");
    let slip = "percolator.toml: there is no setting \"orakles\"";
    config(&view, "orakles = []").refused(2, slip, "config view --help");
    config(&["oracle", "status"], "").refused(2, "no oracles", "config view --help");
}

#[cfg(unix)]
#[test]
fn serve_table_says_where_it_listens_and_ends_when_asked_to() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let serve = |listen: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.args(["serve", "table", "--listen", listen, "--data"]).arg(&data);
        command
    };
    let mut server = serve("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = address.trim();
    std::net::TcpStream::connect(address).expect("it listens there");

    let second = serve(address).output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{text}");
    assert!(text.contains("cannot listen") && text.contains("--listen"), "{text}");
    let second = serve("127.0.0.1:0").output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{text}");
    assert!(text.contains("is open in `percolator serve table"), "{text}");

    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

// ---- Serving ------------------------------------------------------------------------------------

/// A server that other machines can reach needs certificates, or the option to do without.
#[test]
fn servers_refuse_plain_text_beyond_this_machine_and_files_that_are_no_certificates() {
    let shell = Shell::new();
    let data = shell.data();
    let data = data.to_str().unwrap();
    for server in ["table", "oracle"] {
        let serve = ["serve", server, "--data", data, "--listen"];
        let open = run(&[&serve[..], &["0.0.0.0:0"]].concat()).with(2);
        assert!(open.stderr.contains("--insecure"), "{}", open.stderr);
        let files = ["--tls-authority", "/nonexistent", "--tls-certificate", "c", "--tls-key", "k"];
        let none = run(&[&serve[..], &["127.0.0.1:0"], &files].concat()).with(2);
        assert!(none.stderr.contains("/nonexistent"), "{}", none.stderr);
        run(&[&serve[..], &["127.0.0.1:0"], &files[..2]].concat()).with(2);
    }
}
