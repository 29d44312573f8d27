//! Tests `percolator check`: a sound store passes, damage is named with exit status 3, and
//! `--repair` saves what can be saved.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const ROWS: usize = 40;

fn percolator(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_percolator")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Makes a store of forty rows, each written by its own transaction.
fn store() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("S");
    let mut tx = Command::new(env!("CARGO_BIN_EXE_percolator"))
        .args(["tx", "--data", data.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut script = tx.stdin.take().unwrap();
    for row in 0..ROWS {
        writeln!(script, "begin\nset row{row} b v{row}\ncommit").unwrap();
    }
    drop(script);
    assert!(tx.wait().unwrap().success());
    (dir, data)
}

fn rows(data: &Path) -> Output {
    percolator(&["scan", "--data", data.to_str().unwrap()])
}

/// Flips a bit in the middle of the journal.
fn flip(data: &Path) {
    let journal = data.join("engine/0.jnl");
    let mut bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2] ^= 0x40;
    fs::write(journal, bytes).unwrap();
}

#[test]
fn a_sound_store_passes() {
    let (_dir, data) = store();
    let checked = percolator(&["check", data.to_str().unwrap(), "--json"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    let found: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(found["problems"], serde_json::json!([]));
    assert!(found["tables"]["default"].as_u64().unwrap() >= ROWS as u64, "{found}");
    let none = percolator(&["check", data.join("nothing").to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(2), "{}", text(&none));
}

#[test]
fn a_flipped_bit_in_the_journal_is_refused_named_and_repaired() {
    let (dir, data) = store();
    flip(&data);
    // No command reads the damaged store as if it were sound, and the second attempt reports the
    // same as the first.
    for _ in 0..2 {
        let refused = rows(&data);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(refused.stdout.is_empty());
        let told = text(&refused);
        assert!(told.contains("0.jnl") && told.contains("sound batches follow"), "{told}");
        assert!(told.contains("percolator check"), "{told}");
    }
    let checked = percolator(&["check", data.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(3), "{}", text(&checked));
    assert!(text(&checked).contains("0.jnl"), "{}", text(&checked));
    let new = dir.path().join("NEW");
    let arguments = ["check", data.to_str().unwrap(), "--repair", "--to", new.to_str().unwrap()];
    let repaired = percolator(&arguments);
    assert_eq!(repaired.status.code(), Some(0), "{}", text(&repaired));
    assert!(text(&repaired).contains("dropped: "), "{}", text(&repaired));
    let another = dir.path().join("ANOTHER");
    let to = another.to_str().unwrap();
    let told = percolator(&["check", data.to_str().unwrap(), "--repair", "--to", to, "--json"]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let (problems, lost) = (&told["problems"], &told["repaired"]);
    assert!(problems[0]["path"].as_str().unwrap().ends_with("0.jnl"), "{told}");
    assert!(lost["dropped"][0]["path"].as_str().unwrap().ends_with("0.jnl"), "{told}");
    assert!(lost["entries"].as_u64() > Some(0) && lost["unreadable"] == 0, "{told}");
    assert!(lost["timestamps_above"].as_u64() > Some(1 << 40), "{told}");
    // One batch is lost: one transaction of this test, or one record of the database's own.
    let saved = rows(&new);
    let saved_rows = String::from_utf8_lossy(&saved.stdout).lines().count();
    assert!(saved_rows + 1 >= ROWS, "{saved_rows} rows: {}", text(&saved));
    let checked = percolator(&["check", new.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    let set = percolator(&["set", "more", "b", "v", "--data", new.to_str().unwrap()]);
    assert_eq!(set.status.code(), Some(0), "{}", text(&set));
    // The new store's timestamps are above all that were ever seen.
    let get =
        percolator(&["cell", "more", "b", "--history", "--data", new.to_str().unwrap(), "--json"]);
    let moments = String::from_utf8_lossy(&get.stdout).into_owned();
    assert!(moments.contains("\"timestamp\":10995"), "2^40 and a little: {moments}");
}

/// The engine's list of keyspaces or the manifest of a keyspace is lost. Without them the store
/// cannot be opened, but they hold no data, so nothing is lost.
#[test]
fn a_lost_list_of_keyspaces_and_a_lost_manifest_are_repaired() {
    let (dir, data) = store();
    let whole = rows(&data);
    fs::remove_dir_all(data.join("engine/keyspaces/0")).unwrap();
    fs::write(data.join("engine/keyspaces/1/current"), "gibberish").unwrap();
    assert_eq!(rows(&data).status.code(), Some(2));
    let checked = percolator(&["check", data.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(3), "{}", text(&checked));
    let new = dir.path().join("NEW");
    let arguments = ["check", data.to_str().unwrap(), "--repair", "--to", new.to_str().unwrap()];
    let repaired = percolator(&arguments);
    assert_eq!(repaired.status.code(), Some(0), "{}", text(&repaired));
    assert_eq!(text(&repaired).matches("rebuilt: ").count(), 2, "{}", text(&repaired));
    assert_eq!(rows(&new).stdout, whole.stdout);
    assert_eq!(whole.stdout.iter().filter(|byte| **byte == b'\n').count(), ROWS);
    let checked = percolator(&["check", new.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
}

/// In a cluster the oracle's record is in a table of the table server. The repair raises the
/// record there.
#[test]
fn a_table_servers_store_is_repaired_with_the_record_of_its_oracles() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, table) = (dir.path().join("C"), dir.path().join("C/table"));
    let config = cluster.join("percolator.toml");
    let [cluster, config] = [&cluster, &config].map(|path| path.to_str().unwrap());
    let run = |arguments: &[&str]| {
        let output = percolator(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
        text(&output)
    };
    let _down = Down(cluster.to_owned());
    run(&["cluster", "up", "--workers", "0", "--data", cluster]);
    for row in 0..ROWS {
        run(&["set", &format!("row{row}"), "b", &format!("v{row}"), "--config", config]);
    }
    run(&["cluster", "down", "--data", cluster]);
    let path = table.to_str().unwrap();
    run(&["check", path]);
    flip(&table);
    assert_eq!(percolator(&["check", path]).status.code(), Some(3));
    let new = dir.path().join("NEW");
    let told = run(&["check", path, "--repair", "--to", new.to_str().unwrap()]);
    assert!(told.contains("dropped: ") && told.contains("timestamps begin above 10"), "{told}");
    run(&["check", new.to_str().unwrap()]);
    fs::rename(&table, dir.path().join("damaged")).unwrap();
    fs::rename(&new, &table).unwrap();
    run(&["cluster", "up", "--data", cluster]);
    let saved = run(&["scan", "--config", config]).lines().count();
    assert!(saved + 1 >= ROWS, "{saved} rows");
    run(&["set", "more", "b", "v", "--config", config]);
    let moments = run(&["cell", "more", "b", "--history", "--config", config, "--json"]);
    assert!(moments.contains("\"timestamp\":10995"), "2^40 and a little: {moments}");
    run(&["cluster", "down", "--data", cluster]);
}

/// Ends a cluster when the test ends, also if the test fails.
struct Down(String);

impl Drop for Down {
    fn drop(&mut self) {
        percolator(&["cluster", "down", "--data", &self.0]);
    }
}

#[test]
fn damage_of_the_search_index_is_found() {
    let (_dir, data) = store();
    let search = data.join(webindex::SEARCH_DIR);
    let index = webindex::search::SearchIndex::open(&search).unwrap();
    let page =
        webindex::search::IndexedPage { text: "Fresh fish daily.".into(), ..Default::default() };
    let update = webindex::search::Update { url: "https://a/".into(), seq: 1, page: Some(page) };
    index.apply(vec![update]).unwrap();
    drop(index);
    let checked = percolator(&["check", data.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    let files = fs::read_dir(&search).unwrap().map(|entry| entry.unwrap().path());
    let positions = files.filter(|path| path.extension().is_some_and(|e| e == "pos"));
    let positions = positions.max().expect("a file of positions");
    let mut bytes = fs::read(&positions).unwrap();
    bytes[0] ^= 1;
    fs::write(&positions, bytes).unwrap();
    let checked = percolator(&["check", data.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(3), "{}", text(&checked));
    assert!(text(&checked).contains(".pos"), "{}", text(&checked));
}
