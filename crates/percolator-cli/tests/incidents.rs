//! Tests what servers log in incidents: starts, stops, kills, pauses, refused peers.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

#[path = "../../cluster-net/tests/support/authority.rs"]
#[allow(dead_code, reason = "these tests need files, and the other users need settings")]
mod authority;
#[path = "incidents/cast.rs"]
mod cast;
#[path = "incidents/disk.rs"]
mod disk;
#[path = "incidents/peers.rs"]
mod peers;

use cast::{Process, run, wait_until};

/// Each line of a server's log has its time and its level. The log tells the start and the end.
#[test]
fn a_server_logs_its_start_and_its_end_with_time_and_level() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::table(dir.path(), &["--log-format", "text"]);
    server.wait_for("serves");
    let log = server.end("-TERM", 0);
    for line in log.lines() {
        let (time, rest) = line.split_once(' ').expect(line);
        let sound = time.len() > 19 && time.starts_with("20") && time.ends_with('Z');
        assert!(sound && time.contains('T'), "no time in UTC: {line}");
        let level = rest.trim_start().split(' ').next().unwrap();
        assert!(["INFO", "WARN", "ERROR"].contains(&level), "no level: {line}");
    }
    let places: Vec<Option<usize>> = ["starts", "store_opened", "serves", "stops", "ended"]
        .map(|event| log.find(&format!("event=\"{event}\"")))
        .to_vec();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}\n{log}");
    assert!(log.contains("SIGTERM"), "{log}");
}

#[test]
fn a_log_in_json_has_an_object_on_each_line_and_the_error_that_ends_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let server = Process::table(dir.path(), &["--log-format", "json"]);
    server.wait_for("serves");
    let events = server.events();
    assert!(events.iter().all(|event| event["time"].is_string() && event["level"].is_string()));
    assert_eq!(events[0]["event"], "starts");
    assert_eq!(events[0]["role"], "serve table");
    // A second server over the same directory.
    let data = dir.path().join("table");
    let words = ["serve", "table", "--log-format", "json", "--listen", "127.0.0.1:0", "--data"];
    let second = run(&[&words[..], &[data.to_str().unwrap()]].concat());
    assert_eq!(second.status, 2, "{}", second.stderr);
    let lines: Vec<serde_json::Value> =
        second.stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let failed = lines.iter().find(|line| line["event"] == "failed").expect(&second.stderr);
    assert_eq!((&failed["level"], &failed["exit"]), (&"ERROR".into(), &2.into()));
    assert!(failed["message"].as_str().unwrap().contains("is open in"), "{failed}");
    server.end("-TERM", 0);
}

#[test]
fn a_log_in_a_file_is_appended_to_and_errors_of_the_start_are_printed_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log");
    let option = file.to_str().unwrap();
    for run in 1..=2 {
        let server = Process::table(dir.path(), &["--log-file", option]);
        wait_until("the server logs that it serves", || {
            std::fs::read_to_string(&file).unwrap().matches("event=\"serves\"").count() == run
        });
        server.end("-TERM", 0);
    }
    let log = std::fs::read_to_string(&file).unwrap();
    assert_eq!(log.matches("event=\"starts\"").count(), 2, "{log}");
    let nowhere = dir.path().join("none/log");
    let words = ["serve", "table", "--log-file", nowhere.to_str().unwrap(), "--data", "never"];
    let refused = run(&words);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.starts_with("error: ") && refused.stderr.contains("--log-file"));
}

/// An oracle is stopped, another takes over; the store is paused, and is well again.
#[test]
fn oracles_log_take_overs_and_the_end_of_an_outage() {
    let dir = tempfile::tempdir().unwrap();
    let table = Process::table(dir.path(), &[]);
    let store = format!("bigtable://{}/p/i", table.address);
    let first = Process::oracle(&store, &[]);
    first.wait_for("oracle_leads");
    assert!(first.log().contains("no oracle led before"), "{}", first.log());
    let second = Process::oracle(&store, &["--log-format", "json"]);
    first.end("-KILL", -1);
    second.wait_for("oracle_leads");
    let events = second.events();
    let takes = events.iter().find(|event| event["event"] == "oracle_takes_over").unwrap();
    assert!(takes["message"].as_str().unwrap().contains("lease has expired"), "{takes}");
    // The table server dies and comes back at the same address.
    let address = table.address.clone();
    table.end("-KILL", -1);
    second.wait_for("oracle_error");
    let table = Process::table_at(dir.path(), &address, &[]);
    second.wait_for("well_again");
    let events = second.events();
    let well = events.iter().find(|event| event["event"] == "well_again").unwrap();
    assert!(well["failed"].as_u64().unwrap() > 0 && well["level"] == "INFO", "{well}");
    assert!(well["message"].as_str().unwrap().starts_with("well again after "), "{well}");
    second.end("-TERM", 0);
    table.end("-TERM", 0);
}

/// The leading oracle stands still, another one leads, and the first finds that out.
#[test]
fn a_paused_leader_logs_that_it_leads_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let table = Process::table(dir.path(), &[]);
    let store = format!("bigtable://{}/p/i", table.address);
    let first = Process::oracle(&store, &[]);
    first.wait_for("oracle_leads");
    let second = Process::oracle(&store, &[]);
    first.signal("-STOP");
    second.wait_for("oracle_leads");
    first.signal("-CONT");
    first.wait_for("oracle_leads_no_more");
    second.end("-TERM", 0);
    // It is a standby now, and takes over again.
    first.wait_for_more("oracle_leads", 1);
    first.end("-TERM", 0);
    table.end("-TERM", 0);
}
