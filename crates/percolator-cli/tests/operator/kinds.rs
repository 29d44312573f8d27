//! Tests that a command refuses a directory that another kind of program made.

use crate::cluster::Cluster;
use crate::shell::{Shell, run};

#[test]
fn a_table_servers_directory_is_no_database() {
    let cluster = Cluster::new();
    cluster.up(&["--workers", "0"]);
    cluster.on(&["set", "a", "x", "1"]).with(0);
    cluster.cluster(&["down"]).with(0);
    let table = cluster.data().join("table");
    let table = table.to_str().unwrap();
    let (what, help) = ("holds the tables of a table server", "percolator serve table --data DIR");
    for words in [
        &["set", "a", "x", "2"][..],
        &["get", "a", "x"],
        &["scan"],
        &["tables"],
        &["webindex", "stats"],
        &["webindex", "verify"],
        &["export"],
    ] {
        run(&[words, &["--data", table]].concat()).refused(2, what, help);
    }
    // Nothing was written: the cluster has its value, and no database of its own beside it.
    cluster.up(&[]);
    assert_eq!(cluster.on(&["get", "a", "x"]).with(0).stdout.trim(), "1");
}

#[test]
fn a_databases_directory_is_no_table_servers() {
    let shell = Shell::new();
    shell.run(&["set", "a", "x", "1"]).with(0);
    let ran = shell.run(&["serve", "table", "--listen", "127.0.0.1:0"]).with(2);
    assert_eq!(ran.stdout, "");
    let error = ran.stderr.split("error: ").nth(1).unwrap_or_default();
    assert!(error.contains("holds a database that a program opens itself"), "{}", ran.stderr);
    assert!(error.contains("help: give the server a directory of its own"), "{}", ran.stderr);
    assert_eq!(shell.run(&["get", "a", "x"]).with(0).stdout.trim(), "1");
}
