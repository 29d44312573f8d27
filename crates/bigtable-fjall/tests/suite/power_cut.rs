//! Tests power cuts: a result that a reply or a read has shown is in every image that a cut
//! can leave.
//!
//! The engine's journal only grows, and a reply follows its sync. So the test can observe the
//! durable image from outside. It consists of the directory, and of the part of the journal
//! that existed when the reply came. The test derives images from it. It cuts the journal at
//! every byte, puts zeroes or garbage behind the cut, or removes sectors from the last record.
//! The journal's file is allocated ahead, so the end of its data is searched for, not taken
//! from the file's length.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

pub(crate) mod held;
mod image;
mod sound;
mod unsynced;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bigtable::{
    ConditionalMutation, Mutation, PageLimit, Probe, Row, RowKey, RowMutation, RowRange,
};
use bigtable::{Store, Table, TimeRange, Timestamp};
use bigtable_fjall::{Durability, FjallStore, Options};
use futures::executor::block_on;

use crate::{EACH, MEMORY, NEWEST, PLAIN, SPILL, contents, everything, open, options, set, ts};
pub(crate) use image::data_of;
use image::{Image, Tail, journal_end};

const SECTOR: usize = 4096;

/// The state shown by replies, and the length of the journal at that time.
#[derive(Debug, Clone)]
struct Shown {
    end: usize,
    rows: BTreeMap<RowKey, Row>,
    floor: Timestamp,
}

fn rows_of(table: &dyn Table) -> BTreeMap<RowKey, Row> {
    contents(table).into_iter().map(|row| (row.key.clone(), row)).collect()
}

fn request(row: &str, otherwise: Vec<Mutation>) -> ConditionalMutation {
    ConditionalMutation { otherwise, ..ConditionalMutation::new(row) }
}

fn delete(family: &bigtable::Family, time: TimeRange) -> Mutation {
    Mutation::delete(family.clone(), "q", time)
}

/// Text that the engine cannot compress.
fn incompressible(length: usize) -> String {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b' ' + (state >> 24) as u8 % 94)
    };
    (0..length).map(next).collect()
}

/// Makes one request of each kind. Each must survive wholly or not at all. The last request of
/// a round is as long as several sectors.
fn step(store: &FjallStore, table: &dyn Table, number: u64) {
    let now = number + 10;
    let mutate = |request| block_on(table.check_and_mutate_row(request)).unwrap();
    let all = |value: &str| EACH.iter().map(|f| set(f, now, value)).collect();
    match number % 8 {
        0 => assert!(!mutate(request("a", all("everywhere")))),
        // The previous version moves to the history.
        1 => {
            assert!(!mutate(request(
                "a",
                vec![set(&NEWEST, now, "newer"), set(&PLAIN, now, "newer")]
            )))
        }
        2 => {
            let predicate = vec![Probe::new(MEMORY, "q", TimeRange::since(ts(now)))];
            let lock = request("b", vec![set(&MEMORY, now, "lock"), set(&PLAIN, now, "data")]);
            assert!(!mutate(ConditionalMutation { predicate, ..lock }));
        }
        3 => {
            let held = TimeRange::at(ts(now - 1));
            let commit = ConditionalMutation {
                predicate: vec![Probe::new(MEMORY, "q", held)],
                then: vec![set(&NEWEST, now, "write"), delete(&MEMORY, held)],
                ..ConditionalMutation::new("b")
            };
            assert!(mutate(commit));
        }
        4 => {
            let rows = ["a", "c", "d"].map(|row| request(row, all("together")));
            let replies = block_on(table.check_and_mutate_rows(rows.to_vec()));
            replies.into_iter().for_each(|reply| assert!(!reply.unwrap()));
        }
        // A pack of the history moves back under the column's own key.
        5 => {
            let gone = EACH.iter().map(|f| delete(f, TimeRange::since(ts(now - 1))));
            assert!(!mutate(request("a", gone.collect())));
        }
        6 => block_on(store.raise_floor(ts(number))).unwrap(),
        _ => assert!(!mutate(request(
            "e",
            vec![set(&PLAIN, now, &incompressible(10_000)), set(&SPILL, now, "s")]
        ))),
    }
}

/// Runs `steps` on a store, and records the state shown after each.
///
/// The image is that of the moment before the steps, with the journal of the moment after
/// them. The store is open meanwhile. If a step had been written out into a sorted run, its
/// record in the journal would already be durable and could not be cut.
fn shown_by(
    dir: &Path,
    store: &FjallStore,
    table: &dyn Table,
    steps: std::ops::Range<u64>,
) -> (Image, Vec<Shown>) {
    let look = || Shown { end: journal_end(dir), rows: rows_of(table), floor: store.floor() };
    let (image, mut shown) = (Image::of(dir), vec![look()]);
    for number in steps {
        step(store, table, number);
        shown.push(look());
    }
    assert!(shown.is_sorted_by(|a, b| a.end < b.end), "every step has added to the journal");
    (image.with_journal_of(dir), shown)
}

/// Opens an image and checks it against the state shown before the cut, and the request in
/// flight.
fn check(image: &Image, tail: Tail, shown: &[Shown], again: bool) {
    let durable =
        shown.iter().rfind(|shown| shown.end <= tail.cut()).expect("the first is durable");
    let next = shown.iter().find(|shown| shown.end > tail.cut()).unwrap_or(durable);
    let dir = image::directory();
    image.write(dir.path(), tail);
    let (store, table) = open(dir.path(), Durability::Sync);
    let found = rows_of(&*table);
    for key in found.keys().chain(durable.rows.keys()) {
        let row = found.get(key);
        let whole = row == durable.rows.get(key) || row == next.rows.get(key);
        assert!(whole, "{tail:?}: row {key} is {row:?}, was {:?}", durable.rows.get(key));
    }
    assert!([durable.floor, next.floor].contains(&store.floor()), "{tail:?}: {:?}", store.floor());
    let more = RowMutation::new("after").mutation(set(&NEWEST, 99, "more"));
    block_on(table.mutate_row(more)).unwrap_or_else(|e| panic!("{tail:?}: {e}"));
    if !again {
        return;
    }
    let (before, floor) = (rows_of(&*table), store.floor());
    drop((store, table));
    for _ in 0..2 {
        let (store, table) = open(dir.path(), Durability::Sync);
        assert_eq!((rows_of(&*table), store.floor()), (before.clone(), floor), "{tail:?}");
    }
}

/// Checks many images on all processors.
fn check_all(image: &Image, tails: &[Tail], shown: &[Shown]) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(tail) = tails.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(image, *tail, shown, tail.cut() % 64 == 0);
                }
            });
        }
    });
}

/// The positions of cuts: within the last short records every `every` bytes, and within the
/// others less often.
fn cuts(shown: &[Shown], every: usize) -> Vec<usize> {
    let mut cuts = Vec::new();
    for (left, pair) in shown.windows(2).rev().enumerate() {
        let (from, to) = (pair[0].end, pair[1].end);
        let step = match to - from > SECTOR {
            true => 500,
            false if left <= 3 => every,
            false => every * 5,
        };
        cuts.extend((from..to).step_by(step));
        cuts.extend([to - 1, to]);
    }
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// A store with one round of steps, reopened `times` times, and another round to be cut.
fn round(times: u64, steps: u64) -> (Image, Vec<Shown>) {
    let dir = tempfile::tempdir().unwrap();
    for time in 0..times {
        let (store, table) = open(dir.path(), Durability::Sync);
        (8 * time..8 * time + 8).for_each(|number| step(&store, &*table, number));
    }
    let (store, table) = open(dir.path(), Durability::Sync);
    shown_by(dir.path(), &store, &*table, 8 * times..8 * times + steps)
}

#[test]
fn a_cut_at_every_byte() {
    let (image, shown) = round(1, 8);
    let tails: Vec<_> = cuts(&shown, 1).into_iter().map(Tail::Ends).collect();
    check_all(&image, &tails, &shown);
}

#[test]
fn zeroes_or_garbage_behind_the_cut() {
    // The first journal is allocated ahead; a journal of a reopened store ends with its data.
    for times in [0, 1] {
        let (image, shown) = round(times, 8);
        let tails: Vec<_> = cuts(&shown, 11)
            .into_iter()
            .flat_map(|cut| [Tail::Zeroes(cut), Tail::Garbage(cut)])
            .collect();
        check_all(&image, &tails, &shown);
    }
}

#[test]
fn sectors_missing_from_the_last_record() {
    for times in [0, 1] {
        let (image, shown) = round(times, 8);
        let [.., before, last] = &shown[..] else { panic!("eight steps") };
        let first = before.end / SECTOR * SECTOR;
        let tails: Vec<_> = (first..last.end)
            .step_by(SECTOR)
            .map(|at| Tail::Hole { from: at.max(before.end), to: (at + SECTOR).min(last.end) })
            .collect();
        assert!(tails.len() >= 3, "the last record is as long as several sectors");
        check_all(&image, &tails, &shown);
    }
}

#[test]
fn cuts_around_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let small = Options { write_buffer_bytes: 64 << 10, ..options(Durability::Sync) };
    let store = FjallStore::open(dir.path(), small).unwrap();
    let table = block_on(store.open_table("t", &crate::schema())).unwrap();
    let mut segments = 0;
    for moment in 0..12 {
        for row in 0..10 {
            let value = format!("{moment}").repeat(1500);
            let sets = EACH.iter().map(|f| set(f, moment + 1, &value)).collect();
            let row = format!("row{row}");
            block_on(table.check_and_mutate_row(request(&row, sets))).unwrap();
        }
        let (image, shown) = shown_by(dir.path(), &store, &*table, 8 * moment..8 * moment + 2);
        segments = segments.max(image.segments());
        let tails: Vec<_> = cuts(&shown, 60).into_iter().map(Tail::Ends).collect();
        check_all(&image, &tails, &shown);
    }
    assert!(segments > 0, "nothing was written out as a sorted run");
}

/// The engine begins a new journal after 64 MB, when it writes cells out.
#[test]
fn cuts_after_a_new_journal_was_begun() {
    let dir = tempfile::tempdir().unwrap();
    let small = Options { write_buffer_bytes: 4 << 20, ..options(Durability::Sync) };
    let store = FjallStore::open(dir.path(), small).unwrap();
    let table = block_on(store.open_table("t", &crate::schema())).unwrap();
    let value = incompressible(1_000_000);
    let first = image::newest_journal(dir.path());
    for row in 0.. {
        if image::newest_journal(dir.path()) != first {
            break;
        }
        assert!(row < 200, "no new journal was begun");
        let sets = vec![set(&PLAIN, row + 1, &value), set(&NEWEST, row + 1, "v")];
        block_on(table.check_and_mutate_row(request(&format!("row{}", row % 4), sets))).unwrap();
    }
    let (image, shown) = shown_by(dir.path(), &store, &*table, 0..2);
    let cuts = shown[1..].iter().flat_map(|shown| [shown.end - 1, shown.end]);
    let tails: Vec<_> = cuts.flat_map(|cut| [Tail::Ends(cut), Tail::Zeroes(cut)]).collect();
    check_all(&image, &tails, &shown);
}

/// The journal's end right after a read, and the rows that the read returned.
type Seen = (usize, BTreeMap<RowKey, Row>);

/// Reads and scans until `stop` is set, and keeps some of the results.
fn read_on(dir: &Path, table: &dyn Table, stop: &AtomicBool, seen: &Mutex<Vec<Seen>>) {
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let rows = match turn % 2 {
            0 => vec![block_on(table.read_row(&RowKey::from("w0"), &everything())).unwrap()],
            _ => {
                let (all, limit) = (RowRange::all(), PageLimit::default());
                block_on(table.scan(&all, &everything(), limit)).unwrap().rows
            }
        };
        if turn % 16 < 2 {
            let end = journal_end(dir);
            let rows = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
            seen.lock().unwrap().push((end, rows));
        }
    }
}

#[test]
fn readers_see_nothing_that_a_cut_takes_back() {
    const WRITES: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let (_store, table) = open(dir.path(), Durability::Sync);
    let (stop, seen) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let writer = |writer: usize| {
            let table = &*table;
            move || {
                for number in 1..=WRITES {
                    let sets = EACH.iter().map(|f| set(f, number, &"v".repeat(writer * 900)));
                    let write = request(&format!("w{writer}"), sets.collect());
                    block_on(table.check_and_mutate_row(write)).unwrap();
                }
            }
        };
        let writers: Vec<_> = (0..4).map(|number| scope.spawn(writer(number))).collect();
        for _ in 0..2 {
            scope.spawn(|| read_on(dir.path(), &*table, &stop, &seen));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    let (image, seen) = (Image::of(dir.path()), seen.into_inner().unwrap());
    let step = (seen.len() / 100).max(1);
    for (end, rows) in seen.iter().step_by(step) {
        let cut = image::directory();
        image.write(cut.path(), Tail::Ends(*end));
        let (_store, table) = open(cut.path(), Durability::Sync);
        let found = rows_of(&*table);
        for (key, row) in rows {
            let there = found.get(key).map_or(&[][..], |row| &row.cells);
            let lost = row.cells.iter().find(|cell| !there.contains(cell));
            assert!(lost.is_none(), "a cut at {end} takes back {lost:?} of {key}");
        }
    }
}

/// A store that is written without syncs. Also returns its content, and the journal's end,
/// after each batch.
fn unsynced_rounds() -> (Image, Vec<Shown>) {
    let dir = image::directory();
    let (store, table) = open(dir.path(), Durability::Buffered);
    shown_by(dir.path(), &store, &*table, 0..16)
}

/// Opens the image after a restart of the machine. Returns the number of batches that
/// survived.
fn open_after_restart(image: &Image, tail: Tail, shown: &[Shown]) -> usize {
    let dir = image::directory();
    image.write(dir.path(), tail);
    std::fs::write(dir.path().join("UNSYNCED"), "the boot before").unwrap();
    let (store, table) = open(dir.path(), Durability::Buffered);
    let found = (rows_of(&*table), store.floor());
    let kept = shown.iter().rposition(|shown| (&shown.rows, shown.floor) == (&found.0, found.1));
    let kept = kept.unwrap_or_else(|| panic!("{tail:?}: not the state after any batch"));
    // The batch that raises the floor changes no row.
    assert!(shown[kept].end <= tail.cut().max(shown[0].end), "{tail:?}: batch {kept}");
    assert!(kept + 1 == shown.len() || shown[kept + 1].end > tail.cut(), "{tail:?}: {kept}");
    assert_eq!(store.recovery().is_some(), kept + 1 < shown.len(), "{tail:?}");
    kept
}

#[test]
fn a_buffered_store_opens_whatever_a_power_cut_leaves() {
    let (image, shown) = unsynced_rounds();
    let end = shown.last().unwrap().end;
    let mut kept = std::collections::BTreeSet::new();
    // Put a hole into each batch, with sound batches behind it. The step is shorter than a
    // short batch.
    let short = (shown[0].end..end).step_by(149).map(|from| (from, 512));
    let long = (shown[0].end..end).step_by(1999).map(|from| (from, 3 * SECTOR));
    for (from, length) in short.chain(long) {
        let tail = Tail::Hole { from, to: (from + length).min(end) };
        kept.insert(open_after_restart(&image, tail, &shown));
    }
    assert!(kept.len() > shown.len() / 2, "{kept:?}");
}

#[test]
fn without_a_restart_a_hole_in_a_buffered_store_is_damage() {
    let (image, shown) = unsynced_rounds();
    let tail = Tail::Hole { from: shown[3].end + 20, to: shown[3].end + 60 };
    let dir = image::directory();
    image.write(dir.path(), tail);
    let opened = FjallStore::open(dir.path(), options(Durability::Buffered));
    let (problem, _) = crate::files_error(opened);
    assert!(problem.contains("sound batches follow"), "{problem}");
}

#[test]
fn a_store_is_marked_while_it_may_have_unsynced_batches() {
    let marked = |dir: &Path| dir.join("UNSYNCED").exists();
    for (durability, marks) in [(Durability::Sync, false), (Durability::Buffered, true)] {
        let dir = image::directory();
        let (store, table) = open(dir.path(), durability);
        step(&store, &*table, 0);
        assert_eq!(marked(dir.path()), marks, "{durability:?}");
        drop((store, table));
        assert!(!marked(dir.path()), "{durability:?}: closed");
    }
    // In a store that syncs, dropping a table still writes its batches without a sync.
    let dir = image::directory();
    let (store, table) = open(dir.path(), Durability::Sync);
    step(&store, &*table, 0);
    store.drop_table("t").unwrap();
    assert!(marked(dir.path()));
}
