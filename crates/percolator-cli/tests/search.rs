//! Tests `percolator webindex search`: its output, and that it needs only the search index.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use webindex::search::{IndexedPage, SearchIndex, Update};

const BASE: &str = "https://fish.example/";

/// A title that recolours a terminal, rings its bell and turns the direction of writing.
const HOSTILE: &str = "x\u{1b}[31mred\u{7}\u{9b}2J\u{202e}y";

fn percolator(args: &[&str], data: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    command.args(args).arg("--data").arg(data).env_remove("PERCOLATOR_DATA");
    command.output().unwrap()
}

#[track_caller]
fn text(output: &Output, status: i32) -> String {
    let stdout = String::from_utf8(output.stdout.clone()).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "stdout: {stdout}\nstderr: {stderr}");
    format!("{stdout}{stderr}")
}

/// Makes a store with an index of twelve pages, one of them hostile.
fn store() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (site, data) = (dir.path().join("site"), dir.path().join("data"));
    fs::create_dir(&site).unwrap();
    for n in 0..11 {
        let page = format!("<title>Page {n}</title><p>A cod, the number {n}.");
        fs::write(site.join(format!("p{n}.html")), page).unwrap();
    }
    // The page is mostly text; otherwise the loader would take it for binary data.
    let (head, filler) = ("<meta charset=utf-8>", "and other fish ".repeat(20));
    let link = format!("<a href=p1.html>{HOSTILE}</a>");
    let page = format!("{head}<title>{HOSTILE}</title><p>ling {HOSTILE} {filler} {link}");
    fs::write(site.join("hostile.html"), page).unwrap();
    let load = ["webindex", "load", site.to_str().unwrap(), "--base", BASE];
    text(&percolator(&load, &data), 0);
    (dir, data)
}

#[test]
fn nothing_of_a_page_is_obeyed_by_a_terminal() {
    let (_dir, data) = store();
    let hostile = format!("{BASE}hostile.html");
    let linked = format!("{BASE}p1.html");
    for args in [
        vec!["webindex", "search", "ling"],
        vec!["webindex", "page", &hostile],
        vec!["webindex", "page", &linked],
        vec!["webindex", "cluster", &hostile],
    ] {
        let obeyed = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        let shown = text(&percolator(&args, &data), 0);
        assert!(!shown.contains(obeyed), "{args:?}: {shown:?}");
        let json = [&args[..], &["--json"]].concat();
        let shown = text(&percolator(&json, &data), 0);
        assert!(!shown.contains(obeyed), "{json:?}: {shown:?}");
        let json: Value = serde_json::from_str(&shown).unwrap();
        if args[1] == "search" {
            let title = json["hits"][0]["title"].as_str().unwrap();
            assert!(title.contains("\u{1b}[31mred"), "as the page has it: {title:?}");
        }
    }
}

#[test]
fn a_search_goes_on_while_another_process_has_the_store() {
    let (_dir, data) = store();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let db = runtime.block_on(percolator::Percolator::open(&data)).unwrap();
    let other = percolator(&["webindex", "stats"], &data);
    assert!(text(&other, 2).contains("another process has this directory open"));
    let found = text(&percolator(&["webindex", "search", "ling"], &data), 0);
    assert!(found.contains("hostile.html") && found.contains("1 page match"), "{found}");
    drop(db);
}

#[test]
fn a_search_index_that_is_gone_or_old_is_made_anew_by_the_next_search() {
    let (_dir, data) = store();
    let search = ["webindex", "search", "cod", "--limit", "20"];
    // Pages that match equally well come in any order.
    let found = || {
        let shown = text(&percolator(&search, &data), 0);
        let mut lines: Vec<String> = shown.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = found();
    assert!(before.contains(&"11 pages match".to_owned()), "{before:?}");
    fs::remove_dir_all(data.join("webindex-search")).unwrap();
    assert_eq!(found(), before);
    fs::write(data.join("webindex-search").join("FORMAT"), "webindex search index 1").unwrap();
    assert_eq!(found(), before);
}

#[test]
fn a_search_stays_with_the_old_files_until_the_new_ones_are_complete() {
    let (_dir, data) = store();
    let base = data.join("webindex-search");
    // A worker that replaces a hung writer makes such a directory. At first it lacks all pages but
    // one, which nobody must find yet.
    let new = SearchIndex::open(&base.join("generation-1")).unwrap();
    let page = IndexedPage { title: "Cod in the new files".into(), ..IndexedPage::default() };
    let url = format!("{BASE}new.html");
    new.apply(vec![Update { url, seq: u64::MAX >> 16, page: Some(page) }]).unwrap();
    assert!(new.is_incomplete());
    let search = || text(&percolator(&["webindex", "search", "cod"], &data), 0);
    let found = search();
    assert!(found.contains("11 pages match") && !found.contains("new.html"), "{found}");

    new.set_complete().unwrap();
    let found = search();
    assert!(found.contains("1 page match") && found.contains("new.html"), "{found}");
}

#[test]
fn results_come_in_pages_with_their_total() {
    let (_dir, data) = store();
    let search = |args: &[&str]| {
        percolator(&[&["webindex", "search", "cod", "--limit", "4"], args].concat(), &data)
    };
    assert!(text(&search(&[]), 0).contains("11 pages match, these are 1 to 4"));
    assert!(text(&search(&["--offset", "8"]), 0).contains("11 pages match, these are 9 to 11"));
    assert!(text(&search(&["--offset", "50"]), 0).contains("11 pages match, none is shown"));
    let json: Value =
        serde_json::from_str(&text(&search(&["--json", "--offset", "8"]), 0)).unwrap();
    assert_eq!((&json["total"], &json["offset"]), (&11.into(), &8.into()));
    assert_eq!(json["hits"].as_array().unwrap().len(), 3);
    let none = percolator(&["webindex", "search", "cod site:other.example"], &data);
    assert!(text(&none, 1).contains("no page matches"));
}

#[test]
fn queries_that_ask_for_nothing_are_refused() {
    let (dir, data) = store();
    for query in ["", "*", "-cod", &"x ".repeat(300)] {
        let refused = percolator(&["webindex", "search", query], &data);
        assert!(text(&refused, 2).contains("error: the query "), "{query}");
        assert!(refused.stdout.is_empty());
    }
    let nowhere = percolator(&["webindex", "search", "cod"], &dir.path().join("nowhere"));
    assert!(text(&nowhere, 2).contains("no store is there"));
    let without = percolator(&["webindex", "search", "cod"], &dir.path().join("site"));
    assert!(text(&without, 1).contains("holds no web index"));
}
