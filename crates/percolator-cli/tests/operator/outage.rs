//! Tests commands during an outage of a cluster's servers, and the end of a server.

use std::time::Instant;

use crate::cluster::{Cluster, Running};

const BASE: &str = "https://fish.example/";

#[test]
fn a_load_outlasts_a_restart_of_the_table_server() {
    let cluster = Cluster::new();
    let site = cluster.site("300");
    cluster.up(&["--workers", "1"]);
    let load = ["webindex", "load", &site, "--base", BASE, "--rate", "40"];
    let mut load = Running::start(cluster.command(&load));
    load.wait_for("loading ");
    cluster.kill_nine("table");
    load.wait_for("the store does not answer: trying again");
    cluster.up(&[]);
    let loaded = load.end().with(0);
    assert!(loaded.stdout.contains(" pages loaded"), "{}", loaded.stdout);
    let verified = cluster.on(&["webindex", "verify"]).with(0);
    assert!(verified.stdout.contains("no difference"), "{}", verified.stdout);
}

#[test]
fn commands_wait_for_servers_that_restart() {
    let cluster = Cluster::new();
    cluster.up(&["--workers", "0"]);
    cluster.on(&["set", "Bob", "bal", "1"]).with(0);
    cluster.kill_nine("table");
    let commands = [&["get", "Bob", "bal"][..], &["set", "Ann", "bal", "2"], &["locks", "ls"]];
    let start = |words: &&[&str]| Running::start(cluster.command(words));
    let mut running: Vec<Running> = commands.iter().map(start).collect();
    for command in &mut running {
        command.wait_for("the store does not answer: trying again");
    }
    cluster.up(&[]);
    let ran: Vec<_> = running.into_iter().map(|command| command.end().with(0)).collect();
    assert_eq!(ran[0].stdout, "1\n");

    for oracle in ["oracle-1", "oracle-2"] {
        cluster.kill_nine(oracle);
    }
    let set = Running::start(cluster.command(&["set", "Joe", "bal", "3"]));
    cluster.up(&[]);
    set.end().with(0);
    let rows = cluster.on(&["scan"]).with(0).stdout;
    assert_eq!(rows, "Ann\tbal\t2\nBob\tbal\t1\nJoe\tbal\t3\n");
}

#[test]
fn patience_ends_and_the_error_says_no_more_than_the_command_knows() {
    let cluster = Cluster::new();
    cluster.up(&["--workers", "0"]);
    cluster.kill_nine("table");
    let begun = Instant::now();
    let ran = cluster.on(&["set", "Bob", "bal", "1", "--json"]).with(4);
    let waited = begun.elapsed();
    assert!((10..30).contains(&waited.as_secs()), "{waited:?}");
    let error = &ran.json()["error"];
    assert_eq!(error["kind"], "unreachable");
    assert_eq!(error["help"], "run the command again");
}

/// The handler of SIGTERM is in place when a server prints its address.
#[cfg(unix)]
#[test]
fn a_server_that_has_printed_its_address_ends_in_order() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let dir = tempfile::tempdir().unwrap();
    let data = |name: &str| dir.path().join(name);
    for (role, name) in [("table", "a"), ("oracle", "b")] {
        for _ in 0..5 {
            let mut command = crate::shell::program();
            command.args(["serve", role, "--listen", "127.0.0.1:0", "--data"]).arg(data(name));
            let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let pid = server.id().to_string();
            assert!(std::process::Command::new("kill").arg(&pid).status().unwrap().success());
            assert_eq!(server.wait().unwrap().code(), Some(0), "serve {role}");
        }
    }
}
