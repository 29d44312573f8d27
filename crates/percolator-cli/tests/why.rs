//! Tests `why` on one recrawled page. The page's trace reaches the search index through each
//! observer of the web index. It has exactly the runs that `--events` reports.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const BASE: &str = "https://site.example/";
const PAGE: &str = "https://site.example/page.html";
/// More links than one transaction places.
const LINKS: usize = 600;

/// The observers of the web index that a page sets off; `export-ranks` follows the ranking job.
const OBSERVERS: [&str; 11] = [
    "attach",
    "export",
    "forward",
    "link",
    "link-more",
    "parse",
    "register",
    "relay",
    "settle",
    "show",
    "spread",
];

/// A site, and a store that it is loaded into.
struct Shell {
    dir: TempDir,
}

impl Shell {
    fn new() -> Self {
        let shell = Shell { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(shell.path("site")).unwrap();
        shell
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, html: &str) {
        std::fs::write(self.path("site").join(name), html).unwrap();
    }

    /// Runs a command on the store, and returns its exit status and both outputs.
    fn run(&self, words: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.env_remove("PERCOLATOR_DATA").args(words);
        command.arg("--data").arg(self.path("data")).args(["--durability", "buffered"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    fn load(&self, options: &[&str]) {
        let site = self.path("site");
        let words = ["webindex", "load", site.to_str().unwrap(), "--base", BASE];
        let (status, _, stderr) = self.run(&[&words[..], options].concat());
        assert_eq!(status, 0, "{stderr}");
    }

    fn why(&self, column: &str) -> Value {
        let words = ["why", PAGE, column, "--table", "documents", "--json"];
        let (status, stdout, stderr) = self.run(&words);
        assert_eq!(status, 0, "{stderr}");
        serde_json::from_str(&stdout).unwrap()
    }

    /// The runs that have committed, as a file of events says: observer and start timestamp.
    fn runs(&self, events: &str) -> BTreeSet<(String, u64)> {
        let lines = std::fs::read_to_string(self.path(events)).unwrap();
        let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let committed = ["observer_committed", "batch_committed"];
        let runs =
            events.filter(|event| event["event"].as_str().is_some_and(|e| committed.contains(&e)));
        runs.map(|event| {
            (event["observer"].as_str().unwrap().to_owned(), event["start_ts"].as_u64().unwrap())
        })
        .collect()
    }
}

/// A page of its own that another one links to; then it declares another page, and links to many.
fn recrawled() -> Shell {
    let shell = Shell::new();
    shell.write("other.html", "<title>Other</title><p>the other page has words of its own");
    shell.write("linking.html", "<title>Linking</title><p>see <a href=page.html>a fine page</a>");
    shell.write("page.html", "<title>Page</title><p>this page has words of its own, too");
    shell.load(&["--trace", "off"]);
    let links: String =
        (0..LINKS).map(|n| format!("<a href=target{n}.html>target {n}</a> ")).collect();
    shell.write(
        "page.html",
        &format!("<title>Page</title><link rel=canonical href={BASE}other.html><p>{links}"),
    );
    let events = shell.path("events");
    shell.load(&["--trace", "all", "--events", events.to_str().unwrap()]);
    shell
}

#[test]
fn a_recrawled_page_is_traced_through_every_observer_to_the_search_index() {
    let shell = recrawled();
    let runs = shell.runs("events");
    let observers: BTreeSet<&str> = runs.iter().map(|(observer, _)| observer.as_str()).collect();
    assert_eq!(observers, BTreeSet::from(OBSERVERS));

    let why = shell.why("doc:content");
    let nodes = why["nodes"].as_array().unwrap();
    assert!(nodes.iter().all(|node| node["recorded"] == true), "{why:#}");
    let (own, effects): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node["side"] == "own");
    assert!(own.len() == 1 && own[0]["commit_ts"] == why["write"]["commit_ts"], "{why:#}");
    let traced: BTreeSet<(String, u64)> = effects
        .iter()
        .map(|node| (node["name"].as_str().unwrap().to_owned(), node["start_ts"].as_u64().unwrap()))
        .collect();
    assert_eq!(traced, runs);
    assert_eq!(why["cut"], false);

    // Searchable: the other page is found by the words of the link that was forwarded to it.
    let (status, found, stderr) = shell.run(&["webindex", "search", "fine page", "--json"]);
    assert_eq!(status, 0, "{stderr}");
    assert!(found.contains("other.html"), "{found}");

    // And up again: the page's place in its cluster is there because of the load.
    let why = shell.why("doc:member");
    let names: Vec<&str> = why["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["side"] != "effect")
        .map(|node| node["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[..3], ["load", "parse", "register"], "{names:?}");
}

#[test]
fn what_is_not_traced_is_not_recorded_and_text_says_so() {
    let shell = Shell::new();
    shell.write("page.html", "<title>Page</title><p>words");
    shell.load(&[]);
    let why = |words: &[&str]| {
        shell.run(&[&["why", PAGE, "doc:content", "--table", "documents"], words].concat())
    };
    let (status, stdout, stderr) = why(&[]);
    assert_eq!(status, 0, "{stderr}");
    assert!(stdout.contains("was written at") && stdout.contains("not recorded"), "{stdout}");
    assert!(stderr.contains("--trace all"), "{stderr}");
    let (status, _, stderr) = why(&["--at", "0"]);
    assert!(status == 1 && stderr.contains("was not written"), "{stderr}");
    let (status, _, stderr) = shell.run(&["why", "none", "doc:content", "--table", "documents"]);
    assert!(status == 1 && stderr.contains("documents/none/doc:content"), "{stderr}");
    let (status, _, stderr) =
        shell.run(&["webindex", "load", "x", "--base", BASE, "--trace", "2/3"]);
    assert!(status == 2 && stderr.contains("1/N"), "{stderr}");
}
