//! Stores and exports that earlier releases wrote are read for ever, and hold what was written.
//!
//! `formats/4` was written by the command of 25 November 2026, with `set` and `delete`, and
//! `formats/export-1` by that of the day after. `formats/4-cells` and `formats/4-webindex` were
//! written by `write_stores_to_keep` on 26 November 2026, and those of format 5 three days later. A
//! new format gets directories of its own:
//!
//! ```text
//! KEEP=tests/formats/6 cargo test -p percolator-cli --test formats write_stores -- --ignored
//! ```
//!
//! No directory is ever changed or removed.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod kept;
#[allow(dead_code, reason = "other tests use more of it")]
mod shell;

use std::fs;
use std::path::{Path, PathBuf};

use shell::run;

/// Copies a store; what Git does not keep, directories without files, is made.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(path, to).unwrap();
        }
    }
    if to.join("current").exists() {
        fs::create_dir_all(to.join("tables")).unwrap();
        fs::create_dir_all(to.join("blobs")).unwrap();
    }
}

fn formats() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

/// Copies a kept store, and returns the new directory.
fn copy_of(name: &str, dir: &Path) -> String {
    let data = dir.join("data");
    copy(&formats().join(name), &data);
    data.to_str().unwrap().to_owned()
}

#[test]
fn a_store_of_format_4_opens() {
    let dir = tempfile::tempdir().unwrap();
    let data = &*copy_of("4", dir.path());
    run(&["check", data]).with(0);
    let scan = |table: &str| run(&["scan", "--table", table, "--data", data]).with(0).stdout;
    assert_eq!(scan("default"), "Ann\tbal\tAnn-2\nBob\tbal\tBob-2\n");
    assert_eq!(scan("docs"), "\\x00\\xff\tdoc:empty\t\n");
    run(&["set", "Ann", "bal", "Ann-3", "--data", data]).with(0);
    assert!(scan("default").contains("Ann-3"));
    // It has an id from now on, so that it can be backed up.
    let copy = dir.path().join("copy");
    run(&["backup", "--data", data, "--to", copy.to_str().unwrap()]).with(0);
    run(&["check", copy.to_str().unwrap()]).with(0);
}

#[test]
fn exports_of_version_1_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let formats = formats();
    for name in ["all.jsonl", "all.csv"] {
        let (file, data) = (formats.join("export-1").join(name), dir.path().join(name));
        let data = data.to_str().unwrap();
        run(&["import", file.to_str().unwrap(), "--data", data]).with(0);
        let scan = |table: &str| run(&["scan", "--table", table, "--data", data]).with(0).stdout;
        assert_eq!(scan("default"), "Ann\tbal\tAnn-2\n", "{name}");
        let docs = "\\x00\\xff\tdoc:empty\t\n\\x00\\xff\tdoc:\\xff\t\\xff\\x00\n";
        assert_eq!(scan("docs"), docs, "{name}");
    }
}

/// Checks every cell of a kept store against its listing, and the files.
#[track_caller]
fn assert_holds_its_cells(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let data = copy_of(name, dir.path());
    run(&["check", &data]).with(0);
    let listing = fs::read_to_string(formats().join(format!("{name}.txt"))).unwrap();
    let found = kept::listing(Path::new(&data));
    for (found, listed) in found.lines().zip(listing.lines()) {
        assert_eq!(found, listed, "in {name}");
    }
    assert_eq!(found.lines().count(), listing.lines().count(), "in {name}");
    // The directory is now as this release writes it.
    run(&["check", &data]).with(0);
    assert_eq!(kept::listing(Path::new(&data)), listing, "{name}, opened again");
}

#[test]
fn every_cell_of_a_kept_store_is_there() {
    for name in ["4-cells", "4-webindex", "5-cells", "5-webindex"] {
        assert_holds_its_cells(name);
    }
}

#[test]
fn a_kept_store_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let data = &*copy_of("4-cells", dir.path());
    let on = |words: &[&str]| run(&[words, &["--data", data]].concat());
    let get = |table: &str, row: &str, column: &str, status: i32| {
        on(&["get", row, column, "--table", table]).with(status).stdout
    };
    // The locks belong to transactions of dead processes: one is past its commit point, one is not,
    // and of one the primary is rolled back. These two commands come first. The others collect
    // garbage in the background, which resolves old locks and removes old versions.
    assert_eq!(on(&["locks", "ls", "--json"]).with(0).json().as_array().unwrap().len(), 4);
    let history = on(&["cell", "hot", "bal", "--history", "--table", "accounts"]).with(0).stdout;
    assert!(history.contains("version 0 ") && history.contains("version 39 "), "{history}");
    let backlog = on(&["backlog", "--json"]).with(0).json();
    let waits = |column: &str| {
        let of = backlog.as_array().unwrap().iter();
        of.filter(|of| of["column"].to_string().contains(column))
            .map(|of| of["cells"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!((waits("doc:text"), waits("doc:queue")), (3, 1), "{backlog}");
    assert!(on(&["observers", "failing"]).with(0).stdout.contains("cannot parse"));

    assert_eq!(get("accounts", "collected", "bal", 0), "second\n");
    get("accounts", "gone", "bal", 1);
    get("accounts", "deleted", "bal", 1);
    assert!(get("accounts", "hot", "bal", 0).starts_with("version 39 of a long history"));
    assert_eq!(get("accounts", "large-1", "bal", 0), "1 ".repeat(2200) + "\n");
    assert_eq!(get("docs", "b", "doc:length", 0), "6\n");

    assert_eq!(get("default", "Joe", "bal", 0), "9\n");
    get("default", "Eve", "bal", 1);
    on(&["locks", "resolve"]).with(0);
    assert_eq!(on(&["locks", "ls", "--json"]).with(0).json(), serde_json::json!([]));
    on(&["set", "Ann", "bal", "7"]).with(0);
    assert_eq!(get("default", "Ann", "bal", 0), "7\n");
    on(&["gc", "run", "--retention", "0s"]).with(0);
    run(&["check", data]).with(0);
}

#[test]
fn a_kept_web_index_is_searched_verified_and_loaded_into() {
    let dir = tempfile::tempdir().unwrap();
    let data = &*copy_of("4-webindex", dir.path());
    let index =
        |words: &[&str]| run(&[&["webindex"], words, &["--data", data]].concat()).with(0).stdout;
    let cod = format!("{}cod.html", kept::BASE);
    // The search index is the kept one: a search makes no new one unless it must.
    let format = fs::read(formats().join("4-webindex/webindex-search/FORMAT")).unwrap();
    assert!(index(&["search", "very long fish"]).contains(&cod));
    assert_eq!(fs::read(Path::new(data).join("webindex-search/FORMAT")).unwrap(), format);
    assert!(index(&["search", "title:eel"]).contains("1 page match"));
    assert!(index(&["verify"]).contains("no difference"));

    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("cod.html"), "<title>cod</title><p>A fish of today.").unwrap();
    index(&["load", site.path().to_str().unwrap(), "--base", kept::BASE]);
    assert!(index(&["search", "today"]).contains(&cod));
    assert!(index(&["verify"]).contains("no difference"));
    run(&["check", data]).with(0);
}

#[test]
#[ignore = "writes stores that are kept for ever, into new directories whose names begin with KEEP"]
fn write_stores_to_keep() {
    let keep = std::env::var("KEEP").expect("KEEP begins the names of the new directories");
    for (kind, write) in [("cells", kept::store as fn(&Path)), ("webindex", kept::webindex)] {
        let name = format!("{keep}-{kind}");
        assert!(!Path::new(&name).exists(), "{name} is there, and kept stores never change");
        write(Path::new(&name));
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        copy(Path::new(&name), &data);
        fs::write(format!("{name}.txt"), kept::listing(&data)).unwrap();
    }
}
