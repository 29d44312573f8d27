//! Tests that others cannot read what a command creates, and that existing directories stay as they
//! are.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::shell::{Shell, run};

#[track_caller]
fn has_mode(path: &Path, mode: u32) {
    let found = fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(found, mode, "{}: {found:o}", path.display());
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn stores_and_backups_are_their_users_alone() {
    let shell = Shell::new();
    let path = |name: &str| shell.dir.path().join(name);
    let (deep, events) = (path("deep/below/data"), path("events"));
    let words = ["set", "Bob", "bal", "1", "--data", text(&deep), "--events", text(&events)];
    run(&words).with(0);
    has_mode(&path("deep"), 0o700);
    has_mode(&deep, 0o700);
    has_mode(&events, 0o600);

    let (backup, restored, repaired) = (path("backup"), path("restored"), path("repaired"));
    run(&["backup", "--data", text(&deep), "--to", text(&backup)]).with(0);
    has_mode(&backup, 0o700);
    let contents = fs::read_dir(backup.join("files")).unwrap().map(|entry| entry.unwrap().path());
    let contents: Vec<_> = contents.collect();
    assert!(!contents.is_empty());
    contents.iter().for_each(|content| has_mode(content, 0o600));
    run(&["restore", "--from", text(&backup), "--data", text(&restored)]).with(0);
    has_mode(&restored, 0o700);
    run(&["check", text(&deep), "--repair", "--to", text(&repaired)]).with(0);
    has_mode(&repaired, 0o700);
}

#[test]
fn a_directory_that_exists_keeps_its_mode() {
    let shell = Shell::new();
    fs::create_dir(shell.data()).unwrap();
    fs::set_permissions(shell.data(), Permissions::from_mode(0o755)).unwrap();
    shell.run(&["set", "Bob", "bal", "1"]).with(0);
    has_mode(&shell.data(), 0o755);
}

#[test]
fn a_search_index_and_rejected_lines_are_their_users_alone() {
    let shell = Shell::new();
    let site = shell.dir.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("a.html"), "<title>Cod</title><p>A fish.").unwrap();
    fs::create_dir(shell.data()).unwrap();
    fs::set_permissions(shell.data(), Permissions::from_mode(0o755)).unwrap();
    shell.run(&["webindex", "load", text(&site), "--base", "https://a.example/"]).with(0);
    has_mode(&shell.data().join("webindex-search"), 0o700);

    let (lines, errors) = (shell.dir.path().join("lines.jsonl"), shell.dir.path().join("errors"));
    fs::write(&lines, "secret\n").unwrap();
    let import = ["import", text(&lines), "--table", "docs", "--key", "id", "--map", "a=doc:a"];
    shell.run(&[&import[..], &["--errors", text(&errors)]].concat()).with(1);
    has_mode(&errors, 0o600);
}

#[test]
fn the_files_of_a_cluster_are_their_users_alone() {
    let shell = Shell::new();
    let cluster = shell.dir.path().join("cluster");
    let data = ["--data", text(&cluster)];
    run(&[&["cluster", "up", "--workers", "0"][..], &data].concat()).with(0);
    let modes = || {
        has_mode(&cluster, 0o700);
        has_mode(&cluster.join("table"), 0o700);
        for file in ["cluster.json", "percolator.toml", "log/table", "log/table.out"] {
            has_mode(&cluster.join(file), 0o600);
        }
    };
    let modes = std::panic::catch_unwind(modes);
    run(&[&["cluster", "down"][..], &data].concat()).with(0);
    modes.unwrap();
}
