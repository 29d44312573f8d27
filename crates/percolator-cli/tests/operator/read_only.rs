//! Tests commands on a store that cannot be written, and a restore to a mounted directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use crate::mounts::Mounted;
use crate::shell::{Ran, Shell, run};

/// The files below a directory, with their lengths and the times of their last changes.
fn files(dir: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files(&path));
        } else {
            let about = path.metadata().unwrap();
            found.insert(path, (about.len(), about.modified().unwrap()));
        }
    }
    found
}

/// A store with two cells, the locks that a dead client left on them, and a web index.
fn store() -> Shell {
    let shell = Shell::new();
    let site = shell.dir.path().join("site");
    std::fs::create_dir(&site).unwrap();
    for (name, text) in [("a", "<title>Cod</title><p>A <a href=b.html>fish</a>."), ("b", "<p>Ling")]
    {
        std::fs::write(site.join(format!("{name}.html")), text).unwrap();
    }
    let site = site.to_str().unwrap();
    shell.run(&["webindex", "load", site, "--base", "https://a.example/"]).with(0);
    shell.tx(&[], "begin\nset Bob bal $10\nset Joe bal $2\ncommit\n").with(0);
    let script = "begin\nset Bob bal $3\nset Joe bal $9\nprewrite\ncrash\n";
    shell.tx(&[], script).with(0);
    shell
}

#[test]
fn a_store_that_cannot_be_written_can_be_read() {
    let shell = store();
    let before = files(&shell.data());
    let Some(mounted) = Mounted::read_only(&shell.data()) else { return };
    let temporary = shell.dir.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let run = |words: &[&str]| -> Ran {
        let mut command = shell.command(words);
        command.env("TMPDIR", &temporary).stdin(Stdio::null()).output().unwrap().into()
    };
    for (words, expected) in [
        // The transaction whose owner is dead reads as rolled back.
        (&["get", "Bob", "bal"][..], "$10\n"),
        (&["scan"], "Bob\tbal\t$10\nJoe\tbal\t$2\n"),
        (&["cell", "Bob", "bal"], "primary"),
        (&["locks", "ls"], "owner dead: will be rolled back"),
        (&["tables"], "default"),
        (&["export"], "\"Joe\""),
        (&["backlog"], ""),
        (&["observers", "ls"], "parse"),
        (&["gc", "status"], "safe point"),
        (&["webindex", "search", "fish"], "Cod"),
        (&["webindex", "page", "https://a.example/b.html"], "https://a.example/a.html"),
        (&["webindex", "cluster", "https://a.example/a.html"], "canonical"),
        (&["webindex", "stats"], "searchable"),
    ] {
        let ran = run(words).with(0);
        assert!(ran.stdout.contains(expected), "{words:?}: {}{}", ran.stdout, ran.stderr);
    }
    for words in [
        &["set", "Bob", "bal", "1"][..],
        &["delete", "Bob"],
        &["locks", "resolve"],
        &["gc", "run"],
        &["wait"],
        &["webindex", "rank"],
        &["webindex", "load", "site", "--base", "https://a.example/"],
    ] {
        let dir = shell.dir.path();
        let ran: Ran = shell.command(words).current_dir(dir).output().unwrap().into();
        ran.refused(2, "this process cannot write there (Read-only file system", "commands that");
    }
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "stand-ins are removed");
    drop(mounted);
    assert_eq!(files(&shell.data()), before);
    // The lock is still there, for the next client that may write.
    let locks = shell.run(&["locks", "ls"]).with(0);
    assert!(locks.stdout.contains("owner dead"), "{}", locks.stdout);
}

#[test]
fn a_store_that_is_read_cannot_be_opened_for_writing_meanwhile() {
    let shell = store();
    let stand_in = bigtable_fjall::StandIn::of(shell.data()).unwrap();
    shell.run(&["set", "Bob", "bal", "1"]).refused(2, "another process", "stop that process");
    drop(stand_in);
    shell.run(&["set", "Bob", "bal", "1"]).with(0);
}

#[test]
fn a_restore_does_not_begin_where_a_directory_is_mounted() {
    let shell = store();
    let path = |name: &str| shell.dir.path().join(name);
    let (backup, to) = (path("backup"), path("to"));
    run(&["backup", "--data", shell.data().to_str().unwrap(), "--to", backup.to_str().unwrap()])
        .with(0);
    for name in ["to", "elsewhere"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let Some(_mounted) = Mounted::bind(&path("elsewhere"), &to) else { return };
    let restore = ["restore", "--from", backup.to_str().unwrap(), "--data", to.to_str().unwrap()];
    run(&restore).refused(2, "the root of a file system", "name a directory inside it");
    assert!(!path("to.restoring").exists(), "nothing was copied");
}
