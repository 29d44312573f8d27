//! Tests of the search index: what is found, what is stale, and what survives.

use std::fs;
use std::process::Command;

use super::*;

fn page(title: &str, text: &str) -> IndexedPage {
    IndexedPage { title: title.into(), text: text.into(), ..IndexedPage::default() }
}

fn update(url: &str, seq: u64, page: IndexedPage) -> Update {
    Update { url: url.into(), seq, page: Some(page) }
}

fn delete(url: &str, seq: u64) -> Update {
    Update { url: url.into(), seq, page: None }
}

fn open() -> (tempfile::TempDir, SearchIndex) {
    let dir = tempfile::tempdir().unwrap();
    let index = SearchIndex::open(dir.path()).unwrap();
    (dir, index)
}

fn urls(index: &SearchIndex, query: &str) -> Vec<String> {
    index.search(query, 10).unwrap().into_iter().map(|hit| hit.url).collect()
}

fn entries(index: &SearchIndex) -> Vec<Entry> {
    let mut entries = Vec::new();
    index.dump(|entry| entries.push(entry)).unwrap();
    entries.sort_by(|a, b| a.url.cmp(&b.url));
    entries
}

fn counts(written: usize, deleted: usize, stale: usize) -> Applied {
    Applied { written, deleted, stale, unchanged: 0 }
}

#[test]
fn pages_are_found_by_title_text_and_anchors() {
    let (_dir, index) = open();
    let linked = IndexedPage { anchors: vec!["smoked eel".into()], ..page("", "other") };
    let batch = vec![
        update("t", 1, page("Eel soup", "a recipe")),
        update("x", 1, page("Soup", "with a little eel and many other things in it")),
        update("a", 1, linked),
        update("n", 1, page("Nothing", "of interest")),
    ];
    assert_eq!(index.apply(batch).unwrap(), counts(4, 0, 0));
    assert_eq!(index.pages().unwrap(), 4);
    let mut found = urls(&index, "EEL");
    assert_eq!(found.pop().as_deref(), Some("x"), "the text counts least");
    assert_eq!(urls(&index, "eel soup recipe"), ["t"], "all words must occur");
    assert_eq!(urls(&index, "title:soup -recipe"), ["x"]);
    assert_eq!(urls(&index, "\"smoked eel\""), ["a"]);
    assert!(urls(&index, "halibut").is_empty());
    assert!(index.search("eel", 0).unwrap().is_empty());
    assert_eq!(index.search("eel", usize::MAX).unwrap().len(), 3);
}

#[test]
fn the_rank_decides_between_equals_and_not_against_words() {
    let (_dir, index) = open();
    let ranked = |rank, title: &str, text: &str| IndexedPage { rank, ..page(title, text) };
    let batch = vec![
        update("low", 1, ranked(0.1, "Cod", "fish")),
        update("high", 1, ranked(0.8, "Cod", "fish")),
        update("famous", 1, ranked(1e9, "Whale", "unlike cod it is no fish at all")),
        update("odd", 1, ranked(f64::NAN, "Carp", "fish")),
    ];
    index.apply(batch).unwrap();
    let found = index.search("title:cod", 10).unwrap();
    assert_eq!(found.iter().map(|hit| hit.url.as_str()).collect::<Vec<_>>(), ["high", "low"]);
    assert_eq!(found[0].rank, 0.8);
    assert!(found[0].score > found[1].score && found[0].score < 2.0 * found[1].score);
    assert_eq!(urls(&index, "carp"), ["odd"]);
}

#[test]
fn snippets_show_the_words_or_else_the_beginning() {
    let (_dir, index) = open();
    let filler = "lorem ipsum dolor ".repeat(30);
    let text = format!("{filler} the rare pike <b>bites</b> here {filler}");
    let far = format!("Beginning ü {} turbot", "x ".repeat(EXCERPT_BYTES_MAX));
    index.apply(vec![update("a", 1, page("T", &text)), update("b", 1, page("U", &far))]).unwrap();
    let hit = &index.search("pike", 1).unwrap()[0];
    assert!(hit.snippet.contains("pike <b>bites</b>"), "text as it is: {}", hit.snippet);
    assert_eq!(&hit.snippet[hit.highlights[0].clone()], "pike");
    assert!(hit.snippet.chars().count() <= SNIPPET_CHARS_MAX);
    let hit = &index.search("turbot", 1).unwrap()[0];
    assert!(hit.snippet.starts_with("Beginning ü") && hit.highlights.is_empty());
    assert_eq!(hit.snippet.chars().count(), SNIPPET_CHARS_MAX);
}

#[test]
fn queries_of_any_syntax_are_answered() {
    let (_dir, index) = open();
    index.apply(vec![update("a", 1, page("Cod", "fish and chips"))]).unwrap();
    for query in [
        "",
        " ",
        "\"",
        "(",
        ")",
        "cod AND",
        "OR",
        "title:",
        "nofield:cod",
        "https://example.org/a?b=c",
        "*",
        "-cod",
        "cod^",
        "[a TO",
        "rank:[0 TO 1]",
        "std::vec::Vec<T>",
        "\\",
        "ü\u{0}",
        "a:b:c",
        &"(".repeat(2_000),
        &"a AND (b OR ".repeat(500),
        &"ü".repeat(2_000),
    ] {
        index.search(query, 10).unwrap();
    }
    assert_eq!(urls(&index, "cod AND"), ["a"]);
    assert_eq!(urls(&index, "\"fish and"), ["a"]);
    assert_eq!(urls(&index, "(fish"), ["a"]);
}

#[test]
fn only_newer_states_are_applied() {
    let (_dir, index) = open();
    assert_eq!(index.apply(vec![update("a", 5, page("five", ""))]).unwrap(), counts(1, 0, 0));
    assert_eq!(index.apply(vec![update("a", 5, page("five", ""))]).unwrap(), counts(0, 0, 1));
    assert_eq!(index.apply(vec![update("a", 4, page("four", ""))]).unwrap(), counts(0, 0, 1));
    assert_eq!(index.apply(vec![delete("a", 5)]).unwrap(), counts(0, 0, 1));
    assert_eq!(index.apply(vec![update("a", 6, page("six", ""))]).unwrap(), counts(1, 0, 0));
    assert_eq!(urls(&index, "six"), ["a"]);
    assert!(urls(&index, "five").is_empty() && urls(&index, "four").is_empty());
    assert_eq!(index.seq_of("a").unwrap(), Some((6, true)));
    assert_eq!(index.seq_of("b").unwrap(), None);
    assert_eq!(index.apply(vec![]).unwrap(), counts(0, 0, 0));
}

#[test]
fn a_late_add_does_not_resurrect_a_deleted_page() {
    let (_dir, index) = open();
    index.apply(vec![update("a", 1, page("cod", ""))]).unwrap();
    assert_eq!(index.apply(vec![delete("a", 3)]).unwrap(), counts(0, 1, 0));
    assert_eq!(index.apply(vec![update("a", 2, page("cod", ""))]).unwrap(), counts(0, 0, 1));
    // A deletion of what was never seen counts as well.
    assert_eq!(index.apply(vec![delete("b", 9)]).unwrap(), counts(0, 1, 0));
    assert_eq!(index.apply(vec![update("b", 8, page("cod", ""))]).unwrap(), counts(0, 0, 1));
    assert!(urls(&index, "cod").is_empty() && urls(&index, "*").is_empty());
    assert!(urls(&index, "deleted:true").is_empty() && urls(&index, "url:a").is_empty());
    assert_eq!((index.pages().unwrap(), entries(&index).len()), (0, 0));
    assert_eq!(index.seq_of("a").unwrap(), Some((3, false)));
    assert_eq!(index.apply(vec![update("a", 4, page("cod", ""))]).unwrap(), counts(1, 0, 0));
    assert_eq!(urls(&index, "cod"), ["a"]);
}

#[test]
fn within_a_batch_the_highest_number_wins() {
    let (_dir, index) = open();
    let batch = vec![
        update("a", 2, page("two", "")),
        delete("a", 3),
        update("a", 1, page("one", "")),
        delete("b", 1),
        update("b", 2, page("two", "")),
        update("b", 2, page("again", "")),
    ];
    assert_eq!(index.apply(batch).unwrap(), counts(1, 1, 4));
    assert_eq!(urls(&index, "two"), ["b"]);
}

#[test]
fn the_dump_is_what_was_applied() {
    let (_dir, index) = open();
    let full = IndexedPage { anchors: vec!["x".into(), "y".into()], rank: 0.25, ..page("A", "b") };
    index.apply(vec![update("a", 7, full.clone()), update("b", 8, page("B", ""))]).unwrap();
    let entries = entries(&index);
    assert_eq!(
        entries[0],
        Entry { url: "a".into(), title: "A".into(), digest: full.digest(), rank: 0.25, seq: 7 }
    );
    assert_eq!(entries[1].seq, 8);
}

#[test]
fn digests_tell_apart_where_a_text_stands() {
    let anchored = |anchors: &[&str]| IndexedPage {
        anchors: anchors.iter().map(|&anchor| anchor.into()).collect(),
        ..page("t", "x")
    };
    let digests = [
        anchored(&[]).digest(),
        anchored(&["ab"]).digest(),
        anchored(&["a", "b"]).digest(),
        anchored(&["b", "a"]).digest(),
        page("tx", "").digest(),
        page("", "tx").digest(),
    ];
    for (n, digest) in digests.iter().enumerate() {
        assert!(!digests[n + 1..].contains(digest), "{n}");
    }
    assert_eq!(IndexedPage { rank: 1.0, ..anchored(&[]) }.digest(), digests[0]);
}

#[test]
fn many_small_commits_keep_every_number() {
    let (dir, index) = open();
    for round in 0..40_u64 {
        let batch = (0..20).map(|n| {
            let url = format!("u{n}");
            if (n + round) % 7 == 0 {
                delete(&url, round)
            } else {
                update(&url, round, page("p", &format!("q{round}")))
            }
        });
        // Delivered twice, and a late one along with it.
        let batch: Vec<Update> = batch.collect();
        let late = update("u3", round.saturating_sub(1), page("late", ""));
        let first = index.apply(batch.clone()).unwrap();
        assert_eq!(first.stale, 0);
        assert_eq!(index.apply([batch, vec![late]].concat()).unwrap(), counts(0, 0, 21));
    }
    let expected = (0..20).filter(|n| (n + 39) % 7 != 0).count();
    assert_eq!(index.pages().unwrap(), expected);
    drop(index);
    let index = SearchIndex::open(dir.path()).unwrap();
    let entries = entries(&index);
    assert_eq!(entries.len(), expected);
    assert!(entries.iter().all(|entry| entry.seq == 39));
    let segments = index.reader.searcher().segment_readers().len();
    assert!(segments < 20, "{segments} segments were left unmerged");
}

#[test]
fn a_lock_file_left_behind_is_no_obstacle_but_a_writer_is() {
    let (dir, index) = open();
    index.apply(vec![update("a", 1, page("cod", ""))]).unwrap();
    let other = SearchIndex::open(dir.path()).unwrap();
    assert_eq!(urls(&other, "cod"), ["a"], "reading needs no lock");
    let error = other.apply(vec![delete("a", 2)]).unwrap_err();
    assert!(matches!(error, Error::IndexInUse { .. }), "{error}");
    drop(index);
    // What a killed process leaves: the file, without anyone who has it locked.
    let lock = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.path());
    let locks: Vec<_> = lock.filter(|p| p.to_string_lossy().ends_with(".lock")).collect();
    for lock in locks {
        fs::write(lock, "").unwrap();
    }
    fs::write(dir.path().join(".tantivy-writer.lock"), "").unwrap();
    assert_eq!(other.apply(vec![delete("a", 2)]).unwrap(), counts(0, 1, 0));
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
    fs::write(&meta, json.replace("\"excerpt\"", "\"extract\"")).unwrap();
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

/// The environment variable that makes the test program run as the victim of the test below.
const VICTIM: &str = "WEBINDEX_TEST_KILLED_WRITER_DIR";

#[test]
fn a_killed_writer_loses_nothing_that_was_acknowledged() {
    if let Some(dir) = std::env::var_os(VICTIM) {
        write_until_killed(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let acknowledged = dir.path().join("acknowledged");
    let path = dir.path().join("index");
    for kill in 1..=3_u64 {
        let program = std::env::current_exe().unwrap();
        let name = "search::tests::a_killed_writer_loses_nothing_that_was_acknowledged";
        let mut child = Command::new(program)
            .args([name, "--exact", "--nocapture"])
            .env(VICTIM, dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let read = || fs::read_to_string(&acknowledged).ok().and_then(|s| s.trim().parse().ok());
        while read().unwrap_or(0_u64) < kill * 5 {
            assert!(child.try_wait().unwrap().is_none(), "the victim died too early");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let seq = read().unwrap();
        let index = SearchIndex::open(&path).unwrap();
        let (held, is_live) = index.seq_of("a").unwrap().unwrap();
        assert!(is_live && (held == seq || held == seq + 1), "held {held}, acknowledged {seq}");
        assert_eq!(index.seq_of("b").unwrap(), Some((held, true)), "half a batch");
        assert_eq!(index.apply(vec![update("a", seq, page("", ""))]).unwrap(), counts(0, 0, 1));
    }
}

/// Writes batch after batch, and after each its number to a file.
fn write_until_killed(dir: &Path) -> ! {
    let index = SearchIndex::open(&dir.join("index")).unwrap();
    let mut seq = index.seq_of("a").unwrap().map_or(0, |(seq, _)| seq);
    loop {
        seq += 1;
        let text = page("t", &format!("words and {seq} words ").repeat(100));
        index.apply(vec![update("a", seq, text.clone()), update("b", seq, text)]).unwrap();
        let next = dir.join("acknowledged.tmp");
        fs::write(&next, seq.to_string()).unwrap();
        fs::rename(next, dir.join("acknowledged")).unwrap();
    }
}

#[test]
fn a_page_held_as_it_is_to_be_shown_is_not_written_again() {
    let (dir, index) = open();
    let (old, new) = (page("Cod", "old"), page("Cod", "new"));
    index.apply(vec![update("a", 10, new.clone()), delete("b", 10)]).unwrap();
    let same = Applied { unchanged: 1, ..counts(0, 0, 0) };
    assert_eq!(index.apply(vec![update("a", 20, new.clone())]).unwrap(), same);
    assert_eq!(entries(&index)[0].seq, 10, "left alone");
    // What was true before it was confirmed is stale, though it is newer than what was written.
    assert_eq!(index.apply(vec![update("a", 15, old.clone())]).unwrap(), counts(0, 0, 1));
    assert_eq!(index.apply(vec![delete("a", 15)]).unwrap(), counts(0, 0, 1));
    assert_eq!(index.apply(vec![update("b", 15, new.clone())]).unwrap(), counts(1, 0, 0));
    // Another rank is another state.
    let ranked = IndexedPage { rank: 0.5, ..new.clone() };
    assert_eq!(index.apply(vec![update("a", 30, ranked.clone())]).unwrap(), counts(1, 0, 0));
    assert_eq!(index.apply(vec![update("a", 40, ranked)]).unwrap(), same);
    drop(index);
    // The next process does not know which pages were confirmed, only up to which number.
    let index = SearchIndex::open(dir.path()).unwrap();
    let late = index.apply(vec![update("c", 50, old.clone()), update("a", 35, old.clone())]);
    assert!(matches!(late, Err(Error::Superseded { seq: 35, floor: 40 })), "{late:?}");
    assert_eq!(index.pages().unwrap(), 2, "nothing of the batch was applied");
    assert_eq!(index.apply(vec![update("a", 41, old)]).unwrap(), counts(1, 0, 0));
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
