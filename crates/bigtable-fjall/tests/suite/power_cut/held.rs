//! Tests reads and scans while a batch is held at one of four places:
//! * before its sync,
//! * between the sync and its first item,
//! * among its items,
//! * before the cells in memory change.
//!
//! The engine logs its position on the thread that commits, and a logger may take its time.
//! This holds a batch at an exact place, in the program as it is shipped. The request to be
//! held identifies the thread when the store asks it for its timestamp. There is no log
//! message among the items. For that place, readers run freely until enough of their reads
//! came between the release of a large batch and its reply.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Once};

use bigtable::{AtCommit, CommitRow, CommitRows, Family, Mutation, PageLimit, Row, RowKey};
use bigtable::{RowRange, RowsOutcome, Selection, Store, Table, Timestamp};
use bigtable_fjall::{Durability, FjallStore, RowEdit};
use futures::executor::block_on;

use super::image::{self, Image, Tail, journal_end};
use super::{request, rows_of};
use crate::{EACH, MEMORY, NEWEST, PLAIN, SPILL, everything, open, schema, set, ts};

/// The place before which a batch is held, identified by the engine's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The batch's record is written to the journal's file and is synced next.
    Sync,
    /// The batch is durable, and none of its items is in the tables.
    Items,
    /// The engine has published the batch, and the cells in memory are unchanged.
    Memory,
}

impl Place {
    fn message(self) -> &'static str {
        match self {
            Place::Sync => "Persisting journal",
            Place::Items => "Applying batch",
            Place::Memory => "batch: Freed journal writer",
        }
    }
}

#[derive(Debug)]
struct Hold {
    place: Place,
    reached: Sender<bool>,
    release: Receiver<()>,
}

/// Holds the batch of one request, after the request has identified its thread.
#[derive(Debug)]
pub(crate) struct Catch(Mutex<Option<Hold>>);

impl Catch {
    /// Called on the thread that commits the request, before its batch is written.
    pub(crate) fn here(&self) {
        HOLD.set(self.0.lock().unwrap().take());
    }
}

/// A request of several rows that sets all families.
#[derive(Debug)]
struct Step {
    catch: Arc<Catch>,
    at: u64,
    value: String,
}

impl AtCommit for Step {
    fn timestamp(&self) -> Option<Timestamp> {
        self.catch.here();
        Some(ts(self.at))
    }

    fn mutations(&self, _: usize, commit_ts: Timestamp) -> Vec<Mutation> {
        EACH.iter().map(|family| set(family, commit_ts.as_u64(), &self.value)).collect()
    }
}

thread_local! {
    /// The hold for the next batch of this thread.
    static HOLD: RefCell<Option<Hold>> = const { RefCell::new(None) };
}

/// The last log message about persisting the journal, by thread.
static PERSISTED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

fn this_thread() -> String {
    format!("{:?}", std::thread::current().id())
}

struct Holding;

impl log::Log for Holding {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let said = record.args().to_string();
        if said.starts_with(Place::Sync.message()) {
            PERSISTED.lock().unwrap().insert(this_thread(), said.clone());
        }
        let here = |hold: &mut Hold| said.starts_with(hold.place.message());
        // The thread-local value is gone while the thread ends; then there is nothing to hold.
        let hold = HOLD.try_with(|hold| hold.borrow_mut().take_if(here));
        if let Ok(Some(Hold { reached, release, .. })) = hold {
            reached.send(true).unwrap();
            release.recv().unwrap();
        }
    }

    fn flush(&self) {}
}

/// Installs this logger for the engine.
fn listen() {
    static LOGGER: Once = Once::new();
    LOGGER.call_once(|| {
        log::set_boxed_logger(Box::new(Holding)).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
}

/// Writes `rows` as one batch, holds it at a place, and runs `meanwhile` while it is held.
fn held(
    store: &FjallStore,
    (rows, at, value): (&[&str], u64, &str),
    place: Place,
    meanwhile: impl FnOnce(),
) {
    let write = |catch| {
        let step = Step { catch, at, value: value.to_owned() };
        let row =
            |row: &&str| CommitRow { table: "t".into(), row: (*row).into(), predicate: vec![] };
        let mut rows: Vec<CommitRow> = rows.iter().map(row).collect();
        rows.sort_by(|a, b| a.row.cmp(&b.row));
        let (above, bytes) = (ts(at - 1), 100 * rows.len());
        let request = CommitRows { rows, above, bytes, at: Arc::new(step) };
        let outcome = block_on(store.commit_rows(request)).unwrap();
        assert_eq!(outcome, RowsOutcome::Committed(ts(at)));
    };
    hold(place, write, meanwhile);
}

/// Lets `write` write one batch, holds it at a place, and runs `meanwhile` while it is held.
pub(crate) fn hold(place: Place, write: impl FnOnce(Arc<Catch>) + Send, meanwhile: impl FnOnce()) {
    listen();
    let ((reached, is_reached), (let_go, release)) = (channel(), channel());
    std::thread::scope(|scope| {
        // Moved here, so that a failed assertion drops it and the writer does not wait
        // forever.
        let let_go = let_go;
        let writer = scope.spawn(move || {
            let ended = reached.clone();
            write(Arc::new(Catch(Mutex::new(Some(Hold { place, reached, release })))));
            // The test may have ended already.
            let _ = ended.send(false);
        });
        assert!(is_reached.recv().unwrap(), "the engine no longer says where it is");
        meanwhile();
        assert!(!writer.is_finished(), "nobody is told before the batch is complete");
        let_go.send(()).unwrap();
    });
}

fn newest(row: Option<&Row>, family: &Family) -> Option<u64> {
    row?.newest(family, b"q").map(|cell| cell.timestamp.as_u64())
}

/// Opens the directory as a cut at `end` leaves it.
fn after_a_cut(dir: &Path, end: usize) -> BTreeMap<RowKey, Row> {
    let cut = image::directory();
    Image::of(dir).write(cut.path(), Tail::Ends(end));
    let (_store, table) = open(cut.path(), Durability::Sync);
    rows_of(&*table)
}

/// Checks that all cells seen are found.
fn assert_kept(seen: &BTreeMap<RowKey, Row>, found: &BTreeMap<RowKey, Row>, what: &str) {
    for (key, row) in seen {
        let there = found.get(key).map_or(&[][..], |row| &row.cells);
        let lost = row.cells.iter().find(|cell| !there.contains(cell));
        assert!(lost.is_none(), "{what}: a cut takes back {lost:?} of {key}");
    }
}

#[test]
fn a_batch_that_is_held_before_or_after_its_sync_is_seen_by_nobody() {
    for (place, read_before) in
        [(Place::Sync, true), (Place::Sync, false), (Place::Items, true), (Place::Items, false)]
    {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = open(dir.path(), Durability::Sync);
        let table = &*table;
        let old = EACH.iter().map(|family| set(family, 1, "old")).collect();
        block_on(table.check_and_mutate_row(request("a", old))).unwrap();
        // A reader that has read before already holds the shared snapshot.
        let before = if read_before { rows_of(table) } else { BTreeMap::new() };
        let end = journal_end(dir.path());
        held(&store, (&["a", "b"], 2, "new"), place, || {
            let seen = rows_of(table);
            assert!(!read_before || seen == before, "{place:?}: {seen:?}");
            assert_eq!(seen.len(), 1, "{place:?}: {seen:?}");
            for family in &EACH {
                assert_eq!(newest(seen.values().next(), family), Some(1), "{place:?}: {family}");
            }
            let row = block_on(table.read_row(&RowKey::from("b"), &everything())).unwrap();
            assert!(row.cells.is_empty(), "{place:?}: {row:?}");
            // Before the sync, a cut may remove the record, so all cells seen are older.
            assert_eq!(after_a_cut(dir.path(), end), seen, "{place:?}");
            if place == Place::Items {
                let durable = after_a_cut(dir.path(), journal_end(dir.path()));
                assert_kept(&seen, &durable, "before the items");
                assert_eq!(newest(durable.get(&RowKey::from("b")), &MEMORY), Some(2));
            }
        });
        let after = rows_of(table);
        assert!(after.values().all(|row| newest(Some(row), &MEMORY) == Some(2)), "{after:?}");
        assert_eq!(after.len(), 2);
    }
}

#[test]
fn cells_in_memory_are_never_newer_than_those_on_disk_and_all_that_is_seen_survives() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(dir.path(), Durability::Sync);
    let table = &*table;
    let old = EACH.iter().map(|family| set(family, 1, "old")).collect();
    block_on(table.check_and_mutate_row(request("a", old))).unwrap();
    held(&store, (&["a", "b"], 2, "new"), Place::Memory, || {
        let seen = rows_of(table);
        let row = seen.get(&RowKey::from("a"));
        let of = |family: &Family| newest(row, family);
        assert_eq!([of(&MEMORY), of(&SPILL)], [Some(1); 2], "not published yet");
        assert_eq!(of(&PLAIN), of(&NEWEST), "one snapshot");
        assert_kept(&seen, &after_a_cut(dir.path(), journal_end(dir.path())), "before the memory");
    });
    assert_eq!(newest(rows_of(table).get(&RowKey::from("b")), &SPILL), Some(2));
}

/// The rows that a reader saw among the items of a batch, and the journal's end right after
/// the read.
type Seen = (usize, BTreeMap<RowKey, Row>);

/// Stops the readers, whatever the result.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Reads and scans until `stop` is set, and checks that each result shows the whole batch or
/// nothing of it.
fn read_on(
    dir: &Path,
    table: &dyn Table,
    (stop, turns): (&AtomicBool, &AtomicU64),
    kept: &Mutex<Vec<Seen>>,
) {
    for turn in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let rows = match turn % 2 {
            0 => vec![block_on(table.read_row(&RowKey::from("r7"), &everything())).unwrap()],
            _ => {
                let limit = PageLimit { rows_max: 40, ..PageLimit::default() };
                block_on(table.scan(&RowRange::all(), &everything(), limit)).unwrap().rows
            }
        };
        let first = newest(rows.first(), &PLAIN);
        for row in &rows {
            let of = |family: &Family| newest(Some(row), family);
            assert_eq!((of(&PLAIN), of(&NEWEST)), (first, first), "half a batch: {}", row.key);
            assert!(of(&MEMORY) <= first, "{} is newer in memory", row.key);
            let spilled = [of(&MEMORY), first].contains(&of(&SPILL));
            assert!(spilled, "half a row: {}", row.key);
        }
        if turn % 64 < 2 {
            let rows = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
            kept.lock().unwrap().push((journal_end(dir), rows));
        }
        turns.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn readers_among_the_items_of_a_batch_see_all_of_it_or_nothing() {
    const ROWS: usize = 500;
    const ENOUGH: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(dir.path(), Durability::Sync);
    let table = &*table;
    let names: Vec<String> = (0..ROWS).map(|row| format!("r{row}")).collect();
    let rows: Vec<&str> = names.iter().map(String::as_str).collect();
    let (stop, turns, kept) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
    std::thread::scope(|scope| {
        let _stopped = Stopped(&stop);
        for _ in 0..2 {
            scope.spawn(|| read_on(dir.path(), table, (&stop, &turns), &kept));
        }
        let mut among = 0;
        for at in 1.. {
            let mut released = 0;
            held(&store, (&rows, at, "v"), Place::Items, || {
                released = turns.load(Ordering::SeqCst);
            });
            among += turns.load(Ordering::SeqCst) - released;
            if among >= ENOUGH && at > 2 {
                break;
            }
            assert!(at < 150, "no reader ever runs while a batch is written");
        }
    });
    let (image, kept) = (Image::of(dir.path()), kept.into_inner().unwrap());
    for (end, seen) in kept.iter().step_by((kept.len() / 10).max(1)) {
        let cut = image::directory();
        image.write(cut.path(), Tail::Ends(*end));
        let (_store, table) = open(cut.path(), Durability::Sync);
        assert_kept(seen, &rows_of(&*table), "among the items");
    }
}

#[test]
fn a_change_is_synced_alone_or_with_others() {
    listen();
    for (durability, mode) in
        [(Durability::Buffered, "mode=Buffer"), (Durability::Sync, "mode=SyncData")]
    {
        let dir = image::directory();
        let (store, _) = open(dir.path(), durability);
        let table = block_on(store.open_fjall_table("t", &schema())).unwrap();
        // Returns the way in which the batch of these changes was persisted.
        let persisted = |sets: Vec<Mutation>| {
            let thread = Arc::new(Mutex::new(String::new()));
            let committing = thread.clone();
            let decide = move |_| {
                *committing.lock().unwrap() = this_thread();
                PERSISTED.lock().unwrap().remove(&this_thread());
                sets.clone()
            };
            block_on(table.edit_row(RowEdit::new("row", Selection::default(), decide))).unwrap();
            PERSISTED.lock().unwrap().remove(&*thread.lock().unwrap()).unwrap_or_default()
        };
        for families in [&EACH[..1], &EACH[..]] {
            for family in families {
                let how = persisted(vec![set(family, 1, "value")]);
                assert!(how.ends_with(mode), "{family:?}: {how:?} instead of {mode}");
            }
            let how = persisted(families.iter().map(|family| set(family, 2, "value")).collect());
            assert!(how.ends_with(mode), "of {} families: {how:?}", families.len());
        }
    }
}
