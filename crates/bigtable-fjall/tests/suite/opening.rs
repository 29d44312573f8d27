//! Tests directories that cannot be opened, and the errors about them.

use std::fs;

use bigtable::{Error, Store};
use bigtable_fjall::{Durability, FjallStore, Options};
use futures::executor::block_on;

use crate::{contents, files_error, open, schema};

fn problem(dir: &std::path::Path) -> String {
    let (problem, remedy) = files_error(FjallStore::open(dir, Options::default()));
    assert!(!remedy.is_empty(), "no remedy for: {problem}");
    problem
}

#[test]
fn creates_directories_as_needed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/c");
    drop(open(&path, Durability::Buffered));
    assert!(path.join("FORMAT").exists());
    drop(open(&path, Durability::Buffered));
}

#[test]
fn a_file_is_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "text").unwrap();
    problem(&path);
    problem(&path.join("below"));
    assert_eq!(fs::read(&path).unwrap(), b"text");
}

#[test]
fn a_foreign_directory_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "text").unwrap();
    let problem = problem(dir.path());
    assert!(problem.contains("thesis.tex"), "{problem}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was created");
}

#[test]
fn another_format_is_refused() {
    for (number, says) in [(6, "newer"), (2, "another directory")] {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Durability::Buffered));
        fs::write(dir.path().join("FORMAT"), format!("bigtable-fjall\nformat {number}\n")).unwrap();
        let (problem, remedy) = files_error(FjallStore::open(dir.path(), Options::default()));
        assert!(problem.contains(&format!("format {number}")), "{problem}");
        assert!(problem.contains("reads format 5"), "{problem}");
        assert!(remedy.contains(says), "{remedy}");
    }
}

/// Measures the time to open a store. It needs a release build and an idle machine: `cargo
/// test --release -p bigtable-fjall --test suite opening::a_quarter -- --ignored --nocapture`.
#[test]
#[ignore = "writes 256 MiB, and measures time"]
fn a_quarter_of_a_gigabyte_of_journals_is_opened_within_two_seconds() {
    const VALUE_BYTES: usize = 64 << 10;
    const JOURNAL_BYTES: u64 = 256 << 20;
    let dir = tempfile::tempdir().unwrap();
    // The engine writes no buffer out, so that everything stays in journals.
    let options = Options {
        durability: Durability::Buffered,
        write_buffer_bytes: 4 * JOURNAL_BYTES,
        journal_bytes_max: 4 * JOURNAL_BYTES,
        ..Options::default()
    };
    let store = FjallStore::open(dir.path(), options.clone()).unwrap();
    let table = block_on(store.open_table("t", &schema())).unwrap();
    for row in 0..JOURNAL_BYTES / VALUE_BYTES as u64 {
        let word = |n: u64| (row * VALUE_BYTES as u64 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let value: Vec<u8> =
            (0..VALUE_BYTES as u64 / 8).flat_map(|n| word(n).to_be_bytes()).collect();
        let key = bigtable::RowKey::from(row.to_be_bytes().to_vec());
        let set = bigtable::Mutation::set(crate::PLAIN, "q", bigtable::Timestamp::ZERO, value);
        block_on(table.mutate_row(bigtable::RowMutation::new(key).mutation(set))).unwrap();
    }
    drop((table, store));
    let journals = fs::read_dir(dir.path().join("engine")).unwrap().map(|file| file.unwrap());
    let journals = journals.filter(|file| file.path().extension().is_some_and(|e| e == "jnl"));
    let bytes: u64 = journals.map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes >= JOURNAL_BYTES, "{bytes} bytes of journals");
    let begun = std::time::Instant::now();
    let store = FjallStore::open(dir.path(), options).unwrap();
    let took = begun.elapsed();
    println!("{bytes} bytes of journals were opened in {took:?}");
    assert!(took <= std::time::Duration::from_secs(2), "{took:?}");
    drop(store);
}

#[test]
fn a_damaged_format_is_refused() {
    for text in [
        "",
        "format 1",
        "bigtable-fjall\n",
        "bigtable-fjall\nformat 0",
        "bigtable-fjall\nformat x",
        "\u{0}\u{1}",
    ] {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Durability::Buffered));
        fs::write(dir.path().join("FORMAT"), text).unwrap();
        problem(dir.path());
    }
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(dir.path(), Durability::Buffered);
    let in_use = || match FjallStore::open(dir.path(), Options::default()) {
        Err(Error::InUse { dir: named }) => named == dir.path(),
        other => panic!("expected Error::InUse, got {other:?}"),
    };
    assert!(in_use());
    drop(store);
    assert!(in_use(), "a table keeps the store open");
    drop(table);
    drop(open(dir.path(), Durability::Buffered));
}

#[test]
fn an_interrupted_creation_is_begun_anew() {
    // The files at each moment of the creation; `FORMAT` is always missing.
    let whole = tempfile::tempdir().unwrap();
    drop(open(whole.path(), Durability::Buffered));
    for (step, keep) in [
        (1, vec!["LOCK"]),
        (2, vec!["LOCK", "CREATING"]),
        (3, vec!["LOCK", "CREATING", "engine/0.jnl", "engine/lock"]),
        (
            4,
            vec![
                "LOCK",
                "CREATING",
                "engine/0.jnl",
                "engine/lock",
                "engine/keyspaces",
                "engine/version",
            ],
        ),
        (5, vec!["LOCK", "CREATING", "engine/version"]),
        (6, vec!["LOCK", "CREATING", "FORMAT.new", "engine/version"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("engine")).unwrap();
        if step < 3 {
            fs::remove_dir(dir.path().join("engine")).unwrap();
        }
        for name in keep {
            let path = dir.path().join(name);
            if whole.path().join(name).is_dir() {
                fs::create_dir_all(path).unwrap();
            } else {
                fs::write(path, "half").unwrap();
            }
        }
        let (_store, table) = open(dir.path(), Durability::Buffered);
        assert!(contents(&*table).is_empty(), "step {step}");
        assert!(dir.path().join("FORMAT").exists(), "step {step}");
        assert!(!dir.path().join("CREATING").exists(), "step {step}");
    }
}

#[test]
fn a_crash_after_the_creation_keeps_the_data() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), Durability::Buffered));
    // The last step of the creation, the removal of this file, did not happen.
    fs::write(dir.path().join("CREATING"), "").unwrap();
    let store = FjallStore::open(dir.path(), Options::default()).unwrap();
    assert_eq!(block_on(store.table_names()).unwrap(), ["t"]);
}

#[test]
fn missing_or_damaged_files_are_reported() {
    type Damage = fn(&std::path::Path);
    let damage: [(&str, Damage); 5] = [
        ("no engine", |dir| fs::remove_dir_all(dir.join("engine")).unwrap()),
        ("no files", |dir| {
            fs::remove_dir_all(dir.join("engine")).unwrap();
            fs::create_dir(dir.join("engine")).unwrap();
        }),
        ("no marker", |dir| fs::remove_file(dir.join("engine/version")).unwrap()),
        ("another marker", |dir| fs::write(dir.join("engine/version"), "gibberish").unwrap()),
        ("no keyspaces", |dir| fs::remove_dir_all(dir.join("engine/keyspaces")).unwrap()),
    ];
    for (what, damage) in damage {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), Durability::Buffered));
        damage(dir.path());
        let opened = FjallStore::open(dir.path(), Options::default());
        assert!(matches!(opened, Err(bigtable::Error::Files { .. })), "{what}: {opened:?}");
    }
}

#[cfg(unix)]
#[test]
fn permissions_are_reported() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locked");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).unwrap();
    // The superuser may write everywhere, so the test checks nothing for that user.
    if fs::write(path.join("probe"), "").is_err() {
        let (problem, remedy) = files_error(FjallStore::open(&path, Options::default()));
        assert!(remedy.contains("permission"), "{problem}: {remedy}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn schemas_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), Durability::Buffered));
    let store = FjallStore::open(dir.path(), Options::default()).unwrap();
    let mut other = schema();
    other.groups.pop();
    let opened = block_on(store.open_table("t", &other));
    assert!(matches!(opened, Err(bigtable::Error::InvalidRequest(_))), "{opened:?}");
    let mut other = schema();
    other.groups[0].layout = bigtable::Layout::NewestFirst;
    let opened = block_on(store.open_table("u", &other));
    assert!(matches!(opened, Err(bigtable::Error::InvalidRequest(_))), "{opened:?}");
    assert_eq!(block_on(store.table_names()).unwrap(), ["t"]);
    block_on(store.open_table("t", &schema())).unwrap();
}
