//! Tests a load of a web index that has no time to end.

use crate::cluster::Cluster;
use crate::shell::{Shell, run};

const BASE: &str = "https://fish.example/";

#[test]
fn a_load_whose_time_is_up_says_how_far_it_came_and_goes_on_when_repeated() {
    let shell = Shell::new();
    let site = shell.dir.path().join("site");
    let site = site.to_str().unwrap();
    run(&["webindex", "generate", site, "--pages", "40"]).with(0);
    let load = ["webindex", "load", site, "--base", BASE];
    let slow = ["--rate", "10", "--timeout", "2s"];
    let ran = shell.run(&[&load[..], &slow].concat());
    assert!(ran.stderr.contains("the time of 2.0 s is up: "), "{}", ran.stderr);
    ran.refused(1, " pages are loaded", "run the command again: it skips what is loaded");
    let again = shell.run(&[&load[..], &["--json"]].concat()).with(0).json();
    assert_eq!(again["idle"], true, "{again}");
    assert!(again["unchanged"].as_u64() > Some(0) && again["loaded"].as_u64() > Some(0), "{again}");
    shell.run(&["webindex", "verify"]).with(0);
}

#[test]
fn a_load_whose_observers_do_not_run_ends_when_its_time_is_up() {
    let cluster = Cluster::new();
    let site = cluster.site("3");
    cluster.up(&["--workers", "0"]);
    let load = ["webindex", "load", &site, "--base", BASE, "--timeout", "3s"];
    let ran = cluster.on(&load);
    assert!(ran.stderr.contains("changes wait for observers"), "{}", ran.stderr);
    ran.refused(1, " pages are loaded, and ", "nothing has to be loaded again");
}
