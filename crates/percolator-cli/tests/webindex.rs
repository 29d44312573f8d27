//! Tests `webindex` on small sites: output and exit status of loading, removing and generating.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A site, and the store that it is loaded into.
struct Shell {
    dir: TempDir,
}

/// The output of a run, and its exit status.
struct Ran {
    stdout: String,
    stderr: String,
    status: i32,
}

impl Ran {
    #[track_caller]
    fn with(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).expect(&self.stdout)
    }

    #[track_caller]
    fn says(self, what: &str) -> Self {
        // Under `--json` an error is on stdout.
        let said = format!("{}{}", self.stderr, self.stdout);
        assert!(said.contains(what), "{said}");
        self
    }
}

impl Shell {
    /// Makes a site of twenty pages, and loads it into a store.
    fn new() -> Self {
        let shell = Shell { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(shell.path("site")).unwrap();
        for n in 0..20 {
            shell.write(&format!("{n}.html"), &format!("<title>P</title><p>page {n}"));
        }
        shell.load(&[]).with(0);
        shell
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, html: &str) {
        std::fs::write(self.path("site").join(name), html).unwrap();
    }

    fn delete(&self, name: &str) {
        std::fs::remove_file(self.path("site").join(name)).unwrap();
    }

    fn run(&self, words: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.env_remove("PERCOLATOR_DATA").arg("webindex").args(words);
        command.arg("--data").arg(self.path("data")).args(["--durability", "buffered"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        Ran {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            status: output.status.code().unwrap_or(-1),
        }
    }

    fn load(&self, options: &[&str]) -> Ran {
        let site = self.path("site");
        let words = ["load", site.to_str().unwrap(), "--base", "https://site.example/", "--json"];
        self.run(&[&words[..], options].concat())
    }

    fn searchable(&self) -> Value {
        self.run(&["stats", "--json"]).with(0).json()["searchable"].clone()
    }
}

#[test]
fn mirroring_asks_before_it_removes_more_than_a_tenth() {
    let shell = Shell::new();
    for n in 0..3 {
        shell.delete(&format!("{n}.html"));
    }
    let ran = shell.load(&["--mirror"]).with(1).says("3 of 20 stored pages").says("--yes");
    assert_eq!(ran.json()["mirror"]["removed"], 0);
    assert_eq!(shell.searchable(), 20);
    let ran = shell.load(&["--mirror", "--exclude", "5.html"]).with(1).says("--exclude");
    assert_eq!(ran.json()["mirror"]["gone"], 4);
    let ran = shell.load(&["--mirror", "--yes"]).with(0);
    assert_eq!(
        ran.json()["mirror"],
        json!({"stored": 20, "gone": 3, "removed": 3, "refused": null})
    );
    assert_eq!(shell.searchable(), 17);
    shell.load(&["--yes"]).with(2).says("--mirror");
}

#[test]
fn remove_takes_addresses_and_says_which_it_did_not_find() {
    let shell = Shell::new();
    let urls = ["https://site.example/1.html", "https://site.example/nosuch.html"];
    let ran = shell.run(&["remove", urls[0], urls[1], "--json"]).with(1).says(urls[1]);
    assert_eq!(ran.json(), json!({"removed": [urls[0]], "missing": [urls[1]], "idle": true}));
    assert_eq!(shell.searchable(), 19);
    shell.run(&["remove", "https://site.example/2.html", "1.html"]).with(2).says("1.html");
    assert_eq!(shell.searchable(), 19, "a wrong address is found before anything is removed");
    shell.run(&["verify"]).with(0);
}

#[test]
fn strict_sees_pages_that_the_parser_refuses() {
    let shell = Shell::new();
    shell.load(&["--strict"]).with(0);
    shell.write("plain.html", "no markup at all");
    for _ in 0..2 {
        let ran = shell.load(&["--strict"]).with(1).says("no-markup");
        let path = ran.json()["skipped"][0]["path"].clone();
        assert_eq!(path, shell.path("site").join("plain.html").to_str().unwrap());
    }
    shell.load(&[]).with(0);
}

#[cfg(unix)]
#[test]
fn a_skipped_entry_is_named_by_its_own_path() {
    let shell = Shell::new();
    std::os::unix::fs::symlink("nowhere", shell.path("site").join("broken.html")).unwrap();
    let ran = shell.load(&[]).with(0);
    let path = shell.path("site").join("broken.html");
    assert_eq!(ran.json()["skipped"][0]["path"], path.to_str().unwrap());
    assert_eq!(ran.stderr.matches("broken.html").count(), 1, "it is named once: {}", ran.stderr);
}

#[test]
fn loading_nothing_says_why_there_is_nothing() {
    let shell = Shell::new();
    shell.load(&["--exclude", "nosuch"]).with(0).says("--exclude nosuch");
    for n in 0..20 {
        shell.delete(&format!("{n}.html"));
    }
    shell.write("page", "<p>a page without an extension");
    shell.load(&[]).with(0).says(".xhtml");
    shell.load(&["--mirror", "--yes"]).with(1).says("holds no page");
    assert_eq!(shell.searchable(), 20);
}

#[test]
fn generate_says_how_many_texts_are_to_be_found() {
    let shell = Shell { dir: tempfile::tempdir().unwrap() };
    let site = shell.path("site");
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.args(["webindex", "generate"]).arg(&site).args(["--pages", "100"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("with 101 different texts"), "{said}");
    shell.load(&["--strict"]).with(0);
    assert_eq!(shell.searchable(), 101);
}
