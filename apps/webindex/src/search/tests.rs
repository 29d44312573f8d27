//! Tests of the search index: which updates are stale, and what survives a kill. Tests of
//! searches and of the files are in the modules below.

use std::fs;
use std::process::Command;

use super::*;

mod files;
mod finding;

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
    // A deletion of a page that was never seen counts as well, and writes nothing.
    let unchanged = Applied { unchanged: 1, ..Applied::default() };
    assert_eq!(index.apply(vec![delete("b", 9)]).unwrap(), unchanged);
    assert_eq!(index.seq_of("b").unwrap(), None);
    assert_eq!(index.apply(vec![update("b", 8, page("cod", ""))]).unwrap(), counts(0, 0, 1));
    assert_eq!(index.apply(vec![delete("a", 4)]).unwrap(), unchanged);
    assert!(urls(&index, "cod").is_empty() && urls(&index, "site:a").is_empty());
    assert!(urls(&index, "deleted:true").is_empty() && urls(&index, "url:a").is_empty());
    assert_eq!((index.pages().unwrap(), entries(&index).len()), (0, 0));
    assert_eq!(index.seq_of("a").unwrap(), Some((3, false)));
    assert_eq!(index.apply(vec![update("a", 4, page("cod", ""))]).unwrap(), counts(0, 0, 1));
    assert_eq!(index.apply(vec![update("a", 5, page("cod", ""))]).unwrap(), counts(1, 0, 0));
    assert_eq!(urls(&index, "cod"), ["a"]);
    // Another writer does not know the numbers of such deletions, and refuses up to the highest.
    assert_eq!(index.apply(vec![delete("c", 12)]).unwrap(), unchanged);
    index.release();
    let error = index.apply(vec![update("c", 11, page("cod", ""))]).unwrap_err();
    assert!(matches!(error, Error::Superseded { seq: 11, floor: 12 }), "{error}");
}

#[test]
fn a_state_is_shown_from_its_number_on_and_as_long_as_the_page_is_there() {
    let (_dir, index) = open();
    let shows = |url: &str, seq: u64| index.shows(&[(url.to_owned(), seq)]).unwrap()[0];
    assert!(!shows("a", 1), "it was never indexed");
    index.apply(vec![update("a", 5, page("cod", ""))]).unwrap();
    assert!(shows("a", 4) && shows("a", 5) && !shows("a", 6));
    // The same page again is confirmed, and not written.
    index.apply(vec![update("a", 9, page("cod", ""))]).unwrap();
    assert!(shows("a", 9) && !shows("a", 10));
    index.apply(vec![delete("a", 12)]).unwrap();
    assert!(!shows("a", 4) && !shows("a", 12), "a deleted page is read from the store");
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
    let unchanged = Applied { unchanged: 1, ..counts(1, 0, 4) };
    assert_eq!(index.apply(batch).unwrap(), unchanged);
    assert_eq!(urls(&index, "two"), ["b"]);
}

#[test]
fn the_dump_is_what_was_applied() {
    let (_dir, index) = open();
    let full = IndexedPage { anchors: vec!["x".into(), "y".into()], ..page("A", "b") };
    index.set_ranks(1, [("a".into(), 0.25)]).unwrap();
    index.apply(vec![update("a", 7, full.clone()), update("b", 8, page("B", ""))]).unwrap();
    let entries = entries(&index);
    assert_eq!(
        entries[0],
        Entry { url: "a".into(), title: "A".into(), digest: full.digest(), rank: 0.25, seq: 7 }
    );
    assert_eq!((entries[1].seq, entries[1].rank), (8, 0.0));
}

#[test]
fn others_search_and_write_during_a_dump() {
    let (dir, index) = open();
    index.apply(vec![update("a", 1, page("A", "")), update("b", 1, page("B", ""))]).unwrap();
    let mut seen = Vec::new();
    index
        .dump(|entry| {
            let another = SearchIndex::open_existing(dir.path()).unwrap();
            assert_eq!(another.search("A", 10).unwrap().len(), usize::from(seen.is_empty()));
            let batch = vec![delete("a", 2), update("c", 2, page("C", ""))];
            index.apply(batch).unwrap();
            seen.push((entry.url, entry.seq));
        })
        .unwrap();
    seen.sort();
    assert_eq!(seen, [("a".into(), 1), ("b".into(), 1)]);
    assert_eq!(urls(&index, "C"), ["c"]);
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
        // Deliver the batch twice, and a late update along with it.
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

/// The environment variable that makes the test program run as the victim in the test below.
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

/// Writes batch after batch, and after each writes its number to a file.
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
    // A state from before the confirmation is stale, though it is newer than the state that
    // was written.
    assert_eq!(index.apply(vec![update("a", 15, old.clone())]).unwrap(), counts(0, 0, 1));
    assert_eq!(index.apply(vec![delete("a", 15)]).unwrap(), counts(0, 0, 1));
    assert_eq!(index.apply(vec![update("b", 15, new.clone())]).unwrap(), counts(1, 0, 0));
    // Ranks do not count as a change of the page.
    index.set_ranks(30, [("a".into(), 0.5)]).unwrap();
    assert_eq!(index.apply(vec![update("a", 40, new.clone())]).unwrap(), same);
    drop(index);
    // The next process does not know which pages were confirmed, but only the floor.
    let index = SearchIndex::open(dir.path()).unwrap();
    let late = index.apply(vec![update("c", 50, old.clone()), update("a", 35, old.clone())]);
    assert!(matches!(late, Err(Error::Superseded { seq: 35, floor: 40 })), "{late:?}");
    assert_eq!(index.pages().unwrap(), 2, "nothing of the batch was applied");
    assert_eq!(index.apply(vec![update("a", 41, old)]).unwrap(), counts(1, 0, 0));
}
