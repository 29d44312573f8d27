//! Tests the backup of a cluster that works on a load.

use crate::cluster::{Cluster, Running};
use crate::shell::run;

const BASE: &str = "https://fish.example/";

#[test]
fn a_cluster_under_load_is_backed_up_and_its_backup_is_an_index_without_a_difference() {
    let cluster = Cluster::new();
    let site = cluster.site("60");
    cluster.up(&["--workers", "1"]);
    let load = ["webindex", "load", &site, "--base", BASE, "--rate", "10"];
    let mut loading = Running::start(cluster.command(&load));
    loading.wait_for("loading ");
    let backup = ["backup", "--to", "weekly", "--json"];
    let first = cluster.on(&backup).with(0).json();
    assert!(first["new_bytes"].as_u64() > Some(0), "{first}");
    loading.end().with(0);
    let second = cluster.on(&backup).with(0).json();
    assert!(second["bytes"].as_u64() > second["new_bytes"].as_u64(), "{second}");

    // The server names the directory of its backups, and not the client.
    cluster.on(&["backup", "--to", "../elsewhere"]).refused(2, "../elsewhere", "");
    let made = cluster.data().join("backups").join("weekly");
    let made = made.to_str().unwrap();
    run(&["check", made]).with(0);
    let loaded = cluster.on(&["webindex", "stats", "--json"]).with(0).json();
    // The restored store takes the place of the table server's.
    cluster.cluster(&["down"]).with(0);
    let table = cluster.data().join("table");
    std::fs::remove_dir_all(&table).unwrap();
    run(&["restore", "--from", made, "--data", table.to_str().unwrap()]).with(0);
    cluster.up(&[]);
    cluster.on(&["webindex", "verify"]).with(0);
    let kept = cluster.on(&["webindex", "stats", "--json"]).with(0).json();
    assert_eq!(loaded["pages"], kept["pages"]);
    assert_eq!(loaded["searchable"], kept["searchable"]);
}
