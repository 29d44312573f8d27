//! Tests of the index's directory: its format, its locks, and the traces of an interruption.

use super::*;

#[test]
fn a_lock_file_left_behind_is_no_obstacle_but_a_writer_is() {
    let (dir, index) = open();
    index.apply(vec![update("a", 1, page("cod", ""))]).unwrap();
    let other = SearchIndex::open(dir.path()).unwrap();
    assert_eq!(urls(&other, "cod"), ["a"], "reading needs no lock");
    let error = other.apply(vec![delete("a", 2)]).unwrap_err();
    assert!(matches!(error, Error::IndexInUse { .. }), "{error}");
    drop(index);
    // A killed process leaves the file, but no lock on it.
    let lock = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.path());
    let locks: Vec<_> = lock.filter(|p| p.to_string_lossy().ends_with(".lock")).collect();
    for lock in locks {
        fs::write(lock, "").unwrap();
    }
    fs::write(dir.path().join(".tantivy-writer.lock"), "").unwrap();
    // A process that another test has just started holds the file of the lock until its exec.
    let begun = std::time::Instant::now();
    let applied = loop {
        match other.apply(vec![delete("a", 2)]) {
            Err(Error::IndexInUse { .. }) if begun.elapsed().as_secs() < 10 => {
                std::thread::yield_now();
            }
            applied => break applied.unwrap(),
        }
    };
    assert_eq!(applied, counts(0, 1, 0));
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "precious").unwrap();
    let error = SearchIndex::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::ForeignDirectory { .. }), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn another_format_is_refused_with_the_remedy() {
    let (dir, index) = open();
    drop(index);
    fs::write(dir.path().join("FORMAT"), "webindex search index 99\n").unwrap();
    let error = SearchIndex::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("99") && error.contains("delete"), "{error}");
    fs::write(dir.path().join("FORMAT"), [0xff; 10_000]).unwrap();
    assert!(matches!(SearchIndex::open(dir.path()), Err(Error::IndexFormat { .. })));
}

#[test]
fn an_index_with_other_fields_is_refused() {
    let (dir, index) = open();
    drop(index);
    let meta = dir.path().join("meta.json");
    let json = fs::read_to_string(&meta).unwrap();
    fs::write(&meta, json.replace("\"body\"", "\"corpse\"")).unwrap();
    assert!(matches!(SearchIndex::open(dir.path()), Err(Error::IndexFormat { .. })));
    fs::write(&meta, "{ not json").unwrap();
    let error = SearchIndex::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Index { .. }), "{error}");
}

#[test]
fn an_interrupted_making_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("FORMAT.tmp"), "webind").unwrap();
    drop(SearchIndex::open(dir.path()).unwrap());
    fs::remove_file(dir.path().join("meta.json")).unwrap();
    let index = SearchIndex::open(dir.path()).unwrap();
    assert_eq!(index.pages().unwrap(), 0);
}

#[test]
fn a_path_that_is_a_file_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = SearchIndex::open(&file).unwrap_err().to_string();
    assert!(error.contains("file"), "{error}");
}

#[test]
fn workers_that_come_up_together_make_it_once() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let path = dir.path().join(round.to_string());
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    SearchIndex::open(&path).unwrap();
                });
            }
        });
    }
}

#[test]
fn one_at_a_time_is_the_writer_and_others_see_what_it_writes() {
    let dir = tempfile::tempdir().unwrap();
    let first = SearchIndex::open(dir.path()).unwrap();
    let second = SearchIndex::open(dir.path()).unwrap();
    assert!(first.claim().unwrap() && first.claim().unwrap());
    assert!(!second.claim().unwrap());
    let page = IndexedPage { text: "fish".into(), ..IndexedPage::default() };
    first.apply(vec![Update { url: "https://a/".into(), seq: 1, page: Some(page) }]).unwrap();
    assert_eq!((second.pages().unwrap(), second.search("fish", 1).unwrap().len()), (1, 1));
    drop(first);
    assert!(second.claim().unwrap());
}

#[test]
fn a_full_disk_is_not_written_to_and_what_is_there_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mount = |options: &str| {
        let mut mount = Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path()).output();
        done.is_ok_and(|done| done.status.success())
    };
    if !mount("size=64m") {
        use std::io::Write;
        let why = "this user may not mount a tmpfs";
        let _ = writeln!(std::io::stderr(), "SKIPPED: a full disk of the search index: {why}");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let index = SearchIndex::open(&dir.path().join("index")).unwrap();
        index.apply(vec![update("u1", 1, page("eel", "smoked"))]).unwrap();
        assert!(mount("remount,size=20m"));
        let refused = index.apply(vec![update("u2", 2, page("bream", "grilled"))]);
        assert!(matches!(refused, Err(Error::IndexFull { .. })), "{refused:?}");
        assert_eq!(urls(&index, "eel"), ["u1"]);
        assert!(mount("remount,size=64m"));
        index.apply(vec![update("u2", 2, page("bream", "grilled"))]).unwrap();
        assert_eq!(urls(&index, "bream"), ["u2"]);
    });
    let _ = Command::new("umount").arg("--lazy").arg(dir.path()).status();
    result.unwrap();
}

#[test]
fn an_index_of_an_earlier_format_is_made_anew_and_says_that_it_lacks_pages() {
    let (dir, index) = open();
    assert!(index.is_incomplete(), "so is a new one");
    index.set_complete().unwrap();
    index.apply(vec![update("a", 1, page("cod", ""))]).unwrap();
    index.set_ranks(1, [("a".into(), 1.0)]).unwrap();
    assert!(!index.is_incomplete());
    drop(index);
    assert!(!SearchIndex::open(dir.path()).unwrap().is_incomplete(), "not each time");
    fs::write(dir.path().join("FORMAT"), "webindex search index 1\n").unwrap();
    let error = SearchIndex::open_existing(dir.path()).unwrap_err().to_string();
    assert!(error.contains("index 1") && error.contains("webindex load"), "{error}");
    assert!(dir.path().join("meta.json").exists(), "a reader changes nothing");
    let index = SearchIndex::open(dir.path()).unwrap();
    assert!(index.is_incomplete() && index.pages().unwrap() == 0);
    assert!(!dir.path().join("RANKS").exists(), "ranks are exported again, too");
    index.apply(vec![update("a", 1, page("cod", ""))]).unwrap();
    assert_eq!(urls(&index, "cod"), ["a"]);
}

#[test]
fn an_index_of_another_store_or_of_none_is_made_anew() {
    for name in [Some("another"), None] {
        let dir = tempfile::tempdir().unwrap();
        let id = StoreId::new(7);
        let open = |store| SearchIndex::open_of(dir.path(), store).unwrap();
        let index = open(Some(id));
        index.set_complete().unwrap();
        index.apply(vec![update("a", 1, page("cod", ""))]).unwrap();
        drop(index);
        assert_eq!(open(Some(id)).pages().unwrap(), 1, "the same store");
        let file = dir.path().join("STORE");
        match name {
            Some(name) => fs::write(&file, name).unwrap(),
            // As earlier releases left it.
            None => fs::remove_file(&file).unwrap(),
        }
        assert_eq!(open(None).pages().unwrap(), 1, "a store without an id");
        let index = open(Some(id));
        assert!(index.is_incomplete() && index.pages().unwrap() == 0, "{name:?}");
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), id.to_string());
    }
}

#[test]
fn an_index_of_an_earlier_format_that_is_written_to_is_left_alone() {
    let (dir, index) = open();
    index.apply(vec![update("a", 1, page("cod", ""))]).unwrap();
    fs::write(dir.path().join("FORMAT"), "webindex search index 1\n").unwrap();
    let error = SearchIndex::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::IndexInUse { .. }), "{error}");
    index.apply(vec![update("b", 1, page("ling", ""))]).unwrap();
    assert_eq!(index.pages().unwrap(), 2);
}

#[test]
fn emptying_that_was_interrupted_is_finished() {
    let (dir, index) = open();
    index.set_complete().unwrap();
    drop(index);
    fs::write(dir.path().join("FORMAT"), "webindex search index 1\n").unwrap();
    fs::remove_file(dir.path().join("meta.json")).unwrap();
    assert!(SearchIndex::open(dir.path()).unwrap().is_incomplete());
    // The new format's file is written, but the index is not created yet.
    let index = SearchIndex::open(dir.path()).unwrap();
    index.set_complete().unwrap();
    drop(index);
    fs::remove_file(dir.path().join("meta.json")).unwrap();
    assert!(SearchIndex::open(dir.path()).unwrap().is_incomplete());
}

#[test]
fn a_reader_needs_an_index_that_is_there_and_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_path_buf(), dir.path().join("nowhere")] {
        let error = SearchIndex::open_existing(&path).unwrap_err();
        assert!(matches!(error, Error::NoIndex { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let writer = SearchIndex::open(dir.path()).unwrap();
    writer.apply(vec![update("a", 1, page("cod", ""))]).unwrap();
    let reader = SearchIndex::open_existing(dir.path()).unwrap();
    assert_eq!(urls(&reader, "cod"), ["a"]);
    writer.apply(vec![update("b", 2, page("cod", ""))]).unwrap();
    writer.set_ranks(3, [("b".into(), 0.9), ("a".into(), 0.1)]).unwrap();
    assert_eq!(urls(&reader, "cod"), ["b", "a"], "what the writer has done since");
}

#[test]
fn damage_of_the_ranks_is_found() {
    let (dir, index) = open();
    index.apply(vec![update("a", 1, page("cod", ""))]).unwrap();
    index.set_ranks(1, [("a".into(), 1.0)]).unwrap();
    assert!(SearchIndex::damaged_files(dir.path()).unwrap().is_empty());
    let file = dir.path().join("RANKS");
    let mut bytes = fs::read(&file).unwrap();
    bytes[40] ^= 1;
    fs::write(&file, bytes).unwrap();
    assert_eq!(SearchIndex::damaged_files(dir.path()).unwrap(), [Path::new("RANKS")]);
}
