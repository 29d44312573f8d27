//! Tests backups of an open store, and stores made from them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bigtable::{Error, Mutation, RowKey, RowMutation, Store, Table, TimeRange, Timestamp};
use bigtable_fjall::{Durability, FjallStore, Options, Restoring, backup_of, check};
use futures::executor::block_on;

use crate::full::SmallDisk;
use crate::{NEWEST, PLAIN, contents, everything, files_error, open, options, schema, set, ts};

/// A directory for a store, its backup, and a store made from the backup.
struct Bed {
    root: tempfile::TempDir,
}

impl Bed {
    fn new() -> Bed {
        Bed { root: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn sound(&self, name: &str) {
        let checked = check(self.path(name), |_| Vec::new()).expect("it can be checked");
        assert_eq!(checked.problems, [], "{name}");
    }

    /// Restores the backup, and checks it and the new store.
    fn restore(&self) -> PathBuf {
        let new = self.path("new");
        let _ = fs::remove_dir_all(&new);
        self.sound("copy");
        Restoring::begin(self.path("copy"), &new).unwrap().finish().unwrap();
        self.sound("new");
        new
    }
}

fn put(table: &dyn Table, row: &str, value: &str) {
    let mutation = RowMutation::new(row.to_owned()).mutation(set(&PLAIN, 1, value));
    block_on(table.mutate_row(mutation.mutation(set(&NEWEST, 1, value)))).unwrap();
}

/// The contents of a backup, by name.
fn pool(copy: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(copy.join("files")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_store_is_restored_as_it_was_under_another_id() {
    let bed = Bed::new();
    let (store, table) = open(&bed.path("data"), Durability::Sync);
    for row in 0..50 {
        put(&*table, &format!("row {row}"), &"v".repeat(row * 50));
    }
    block_on(store.raise_floor(ts(1))).unwrap();
    let made = store.backup(bed.path("copy")).unwrap();
    assert_eq!(made.store, store.id().unwrap());
    assert_eq!(backup_of(bed.path("copy")).unwrap().files, made.files);
    put(&*table, "later", "not in the backup");

    let new = bed.restore();
    let (restored, again) = open(&new, Durability::Sync);
    assert_ne!(restored.id(), store.id());
    assert_eq!(restored.floor(), ts(1));
    let rows = contents(&*again);
    assert_eq!(rows.len(), 50);
    assert_eq!(
        rows,
        contents(&*table)
            .into_iter()
            .filter(|r| r.key != RowKey::from("later"))
            .collect::<Vec<_>>()
    );
    // It is a store like any other: its own backups are those of another store.
    put(&*again, "later", "of its own");
    let (problem, _) = files_error(restored.backup(bed.path("copy")));
    assert!(problem.contains("another store"), "{problem}");
    restored.backup(bed.path("copy of the new one")).unwrap();
    drop((restored, again));
    let (reopened, _) = open(&new, Durability::Sync);
    assert_ne!(reopened.id(), store.id());
}

/// Writers, merges and new journals while backups are made, one after the other.
#[test]
fn a_backup_under_load_has_all_that_was_acknowledged_before_it() {
    const WRITERS: usize = 4;
    let bed = Bed::new();
    let small = Options { write_buffer_bytes: 1 << 20, ..options(Durability::Buffered) };
    let store = FjallStore::open(bed.path("data"), small).unwrap();
    let table = block_on(store.open_table("t", &schema())).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..WRITERS).map(|_| 0.into()).collect());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (table, ended) = (table.clone(), ended.clone());
            let acknowledged = acknowledged.clone();
            std::thread::spawn(move || {
                let filling = "x".repeat(3000);
                for number in 1.. {
                    if ended.load(Ordering::SeqCst) {
                        return;
                    }
                    put(
                        &*table,
                        &format!("{writer} {:03}", number % 300),
                        &format!("{number} {filling}"),
                    );
                    put(&*table, &format!("last {writer}"), &number.to_string());
                    acknowledged[writer].store(number, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let now = || acknowledged.iter().map(|one| one.load(Ordering::SeqCst)).collect::<Vec<_>>();
    for _ in 0..3 {
        let begun = now();
        while now().iter().zip(&begun).any(|(now, begun)| *now < begun + 400) {
            std::thread::yield_now();
        }
        let before = now();
        store.backup(bed.path("copy")).unwrap();
        let (_restored, again) = open(&bed.restore(), Durability::Buffered);
        for (writer, before) in before.into_iter().enumerate() {
            let row =
                block_on(again.read_row(&format!("last {writer}").as_str().into(), &everything()));
            let row = row.unwrap();
            let last: u64 = {
                let cell = row.newest(&PLAIN, b"q").expect("it was acknowledged");
                // Both groups are of the same batch.
                assert_eq!(row.newest(&NEWEST, b"q").unwrap().value, cell.value);
                str::from_utf8(&cell.value).unwrap().parse().unwrap()
            };
            assert!(last >= before, "writer {writer} was told of {before}, and {last} is there");
            // Nothing in between is missing, either.
            for number in last.saturating_sub(200).max(1)..=last {
                let key = format!("{writer} {:03}", number % 300);
                let row = block_on(again.read_row(&key.as_str().into(), &everything())).unwrap();
                let value = row.newest(&PLAIN, b"q").expect("it was acknowledged").value.clone();
                let found = str::from_utf8(&value).unwrap().split(' ').next().unwrap();
                let found: u64 = found.parse().unwrap();
                assert!(found == number || found == last + 1, "{found} instead of {number}");
            }
        }
    }
    ended.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn the_next_backup_writes_what_is_new_and_renews_what_is_damaged() {
    let bed = Bed::new();
    let (store, table) = open(&bed.path("data"), Durability::Sync);
    (0..200).for_each(|row| put(&*table, &format!("{row}"), &"v".repeat(2000)));
    drop((store, table));
    let write_out = |number: u64| {
        let small = Options { write_buffer_bytes: 64 << 10, ..options(Durability::Sync) };
        let store = FjallStore::open(bed.path("data"), small).unwrap();
        let table = block_on(store.open_table("t", &schema())).unwrap();
        let filling = "v".repeat(2000);
        (0..200).for_each(|row| put(&*table, &format!("{number} {row}"), &filling));
        store.close().unwrap();
    };
    write_out(1);
    let (store, table) = open(&bed.path("data"), Durability::Sync);
    let first = store.backup(bed.path("copy")).unwrap();
    // Equal contents are kept once, so there may be fewer of them.
    assert_eq!(first.new_files, pool(&bed.path("copy")).len());
    put(&*table, "one more", "row");
    let second = store.backup(bed.path("copy")).unwrap();
    assert!(second.new_files < first.new_files, "{second:?} after {first:?}");
    bed.sound("copy");
    // A content of the earlier backup that nobody needs any more is gone.
    let listed = fs::read_to_string(bed.path("copy/BACKUP")).unwrap();
    for file in pool(&bed.path("copy")) {
        assert!(listed.contains(file.file_name().unwrap().to_str().unwrap()), "{file:?}");
    }
    // Each content in turn is damaged in the backup: found, refused, and written anew.
    for file in pool(&bed.path("copy")) {
        let whole = fs::read(&file).unwrap();
        if whole.is_empty() {
            continue;
        }
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        for damaged in [damaged, whole[..whole.len() - 1].to_vec()] {
            fs::write(&file, damaged).unwrap();
            let checked = check(bed.path("copy"), |_| Vec::new()).unwrap();
            assert_eq!(checked.problems[0].path, file);
            let refused = Restoring::begin(bed.path("copy"), bed.path("never")).map(drop);
            let (problem, _) = files_error(refused);
            assert!(problem.contains("the backup is damaged"), "{problem}");
            assert!(!bed.path("never").exists() && !bed.path("never.restoring").exists());
        }
        fs::remove_file(&file).unwrap();
        let (problem, _) =
            files_error(Restoring::begin(bed.path("copy"), bed.path("never")).map(drop));
        assert!(problem.contains("missing"), "{problem}");
        store.backup(bed.path("copy")).unwrap();
        bed.sound("copy");
    }
}

#[test]
fn a_backup_of_a_damaged_store_says_so_and_leaves_the_earlier_one() {
    let bed = Bed::new();
    {
        let (store, table) = open(&bed.path("data"), Durability::Sync);
        (0..3000).for_each(|row| put(&*table, &format!("{row}"), &"v".repeat(1000)));
        store.close().unwrap();
    }
    let (store, table) = open(&bed.path("data"), Durability::Sync);
    put(&*table, "in the journal", "of the store");
    store.backup(bed.path("copy")).unwrap();
    let earlier = (fs::read(bed.path("copy/BACKUP")).unwrap(), pool(&bed.path("copy")));
    let mut runs = Vec::new();
    for keyspace in fs::read_dir(bed.path("data/engine/keyspaces")).unwrap() {
        let tables = keyspace.unwrap().path().join("tables");
        runs.extend(fs::read_dir(tables).unwrap().map(|file| file.unwrap().path()));
    }
    let journals = fs::read_dir(bed.path("data/engine")).unwrap().map(|file| file.unwrap().path());
    let journal = journals.filter(|path| path.extension().is_some_and(|e| e == "jnl")).max();
    let journal = journal.unwrap();
    assert!(runs.len() > 1, "the store has runs");
    let second = bed.path("data/journals").join(journal.file_name().unwrap());
    let refused = |file: &Path, what: &str| {
        match store.backup(bed.path("copy")) {
            Err(Error::Files { path, problem, .. }) => {
                assert_eq!(path.file_name(), file.file_name(), "{problem}");
                assert!(problem.contains("the store is damaged"), "{problem}");
                assert!(problem.contains(what), "{problem}");
            }
            other => panic!("{}: {other:?}", file.display()),
        }
        assert_eq!(earlier, (fs::read(bed.path("copy/BACKUP")).unwrap(), pool(&bed.path("copy"))));
    };
    for file in runs.into_iter().chain([journal]) {
        let names = [file.clone(), second.clone()];
        let names = if file.extension().is_some() { &names[..] } else { &names[..1] };
        let aside = |name: &Path| name.with_extension("aside");
        names.iter().for_each(|name| fs::rename(name, aside(name)).unwrap());
        refused(&file, "it is missing");
        names.iter().for_each(|name| fs::rename(aside(name), name).unwrap());
        let whole = fs::read(&file).unwrap();
        let written = whole.iter().rposition(|byte| *byte != 0).unwrap();
        let mut damaged = whole.clone();
        damaged[written / 2] ^= 1;
        fs::write(&file, damaged).unwrap();
        refused(&file, "");
        fs::write(&file, whole).unwrap();
    }
    bed.sound("copy");
    store.backup(bed.path("copy")).unwrap();
}

#[test]
fn directories_of_others_are_left_alone() {
    let bed = Bed::new();
    let (store, _table) = open(&bed.path("data"), Durability::Sync);
    let (problem, remedy) = files_error(store.backup(bed.path("data")));
    assert!(problem.contains("holds no backup") && remedy.contains("choose"), "{problem}");
    fs::create_dir(bed.path("papers")).unwrap();
    fs::write(bed.path("papers/thesis"), "").unwrap();
    files_error(store.backup(bed.path("papers")));
    store.backup(bed.path("copy")).unwrap();
    for taken in ["papers", "data", "copy"] {
        let (problem, _) =
            files_error(Restoring::begin(bed.path("copy"), bed.path(taken)).map(drop));
        assert!(problem.contains("not empty"), "{problem}");
    }
    // A backup cannot be opened as a store, so nothing is written to it by mistake.
    let (problem, _) = files_error(FjallStore::open(bed.path("copy"), Options::default()));
    assert!(problem.contains("holds no store"), "{problem}");
    // While one backup is written, another one is refused.
    let lock = fs::File::open(bed.path("copy/LOCK")).unwrap();
    lock.lock().unwrap();
    assert!(matches!(store.backup(bed.path("copy")), Err(Error::InUse { .. })));
    // Its end removes contents, so nobody reads them meanwhile.
    let checked = check(bed.path("copy"), |_| Vec::new());
    assert!(matches!(checked, Err(Error::InUse { .. })), "{checked:?}");
    let restored = Restoring::begin(bed.path("copy"), bed.path("new")).map(drop);
    assert!(matches!(restored, Err(Error::InUse { .. })), "{restored:?}");
    drop(lock);
    let checked = check(bed.path("copy"), |_| {
        assert!(matches!(store.backup(bed.path("copy")), Err(Error::InUse { .. })));
        Vec::new()
    });
    assert_eq!(checked.unwrap().problems, []);
    // Files of another origin lie where a restore makes its store.
    fs::create_dir(bed.path("new.restoring")).unwrap();
    fs::write(bed.path("new.restoring/thesis"), "").unwrap();
    files_error(Restoring::begin(bed.path("copy"), bed.path("new")).map(drop));
    assert!(bed.path("new.restoring/thesis").exists());
}

/// A directory cannot be moved there, so the restore says so before it copies anything.
#[cfg(unix)]
#[test]
fn a_place_that_cannot_be_replaced_is_refused_at_once() {
    let bed = Bed::new();
    open(&bed.path("data"), Durability::Sync).0.backup(bed.path("copy")).unwrap();
    let refused = |place: &str| {
        let begun = Restoring::begin(bed.path("copy"), bed.path(place)).map(drop);
        let (problem, remedy) = files_error(begun);
        assert!(remedy.contains("inside it"), "{problem}: {remedy}");
        assert!(!bed.path(&format!("{place}.restoring")).exists());
        Restoring::begin(bed.path("copy"), bed.path(place).join("new")).unwrap().finish().unwrap();
        bed.sound(&format!("{place}/new"));
    };
    fs::create_dir(bed.path("elsewhere")).unwrap();
    for link in ["link", "with a slash/"] {
        let name = bed.path(link).components().collect::<PathBuf>();
        std::os::unix::fs::symlink(bed.path("elsewhere"), name).unwrap();
        refused(link);
        fs::remove_dir_all(bed.path("elsewhere/new")).unwrap();
    }
    let mounted = bed.path("mounted");
    fs::create_dir(&mounted).unwrap();
    let Some(_disk) = SmallDisk::new(&mounted, 64, "a restore to a mount point") else { return };
    refused("mounted");
}

/// After any crash, no half backup passes for a whole one, and no half store is opened.
#[test]
fn an_interrupted_backup_or_restore_is_made_again() {
    let bed = Bed::new();
    let (store, table) = open(&bed.path("data"), Durability::Sync);
    put(&*table, "row", "value");
    // Before the list was written.
    fs::create_dir_all(bed.path("copy/files")).unwrap();
    fs::write(bed.path("copy/LOCK"), "").unwrap();
    fs::write(bed.path("copy/files/new"), "half a content").unwrap();
    fs::write(bed.path("copy/BACKUP.new"), "half a list").unwrap();
    files_error(backup_of(bed.path("copy")));
    files_error(check(bed.path("copy"), |_| Vec::new()));
    let (problem, remedy) =
        files_error(Restoring::begin(bed.path("copy"), bed.path("new")).map(drop));
    assert!(problem.contains("no whole backup") && remedy.contains("again"), "{problem}");
    store.backup(bed.path("copy")).unwrap();
    assert!(!bed.path("copy/files/new").exists());
    // After the new list, before the earlier contents were removed.
    fs::write(bed.path(&format!("copy/files/{}-1", "0".repeat(32))), "x").unwrap();
    bed.sound("copy");
    // A restore that was cut off at any file: nothing is at its place, and the next one succeeds.
    let restoring = Restoring::begin(bed.path("copy"), bed.path("new")).unwrap();
    let again = Restoring::begin(bed.path("copy"), bed.path("new")).map(drop);
    assert!(matches!(again, Err(Error::InUse { .. })), "{again:?}");
    std::mem::forget(restoring);
    assert!(!bed.path("new").exists() && bed.path("new.restoring/RESTORING").exists());
    let left = tempfile::tempdir().unwrap();
    copy_all(&bed.path("new.restoring"), left.path());
    fs::rename(left.path(), bed.path("cut off.restoring")).unwrap();
    fs::remove_dir_all(bed.path("cut off.restoring/engine/keyspaces")).unwrap();
    Restoring::begin(bed.path("copy"), bed.path("cut off")).unwrap().finish().unwrap();
    bed.sound("cut off");
    assert!(!bed.path("cut off.restoring").exists());
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            copy_all(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn closing_the_store_ends_its_backups() {
    let bed = Bed::new();
    let (store, table) = open(&bed.path("data"), Durability::Buffered);
    (0..2000).for_each(|row| put(&*table, &format!("{row}"), &"v".repeat(1000)));
    let closed = Arc::new(AtomicBool::new(false));
    let backups = {
        let (store, copy, closed) = (store.clone(), bed.path("copy"), closed.clone());
        std::thread::spawn(move || {
            let mut made = 0;
            while store.backup(&copy).is_ok() {
                made += 1;
            }
            (made, closed.load(Ordering::SeqCst))
        })
    };
    while !bed.path("copy/BACKUP").exists() {
        std::thread::yield_now();
    }
    store.close().unwrap();
    closed.store(true, Ordering::SeqCst);
    let (made, _) = backups.join().unwrap();
    assert!(made > 0);
    bed.sound("copy");
    open(&bed.path("data"), Durability::Buffered);
}

/// A pipe without a reader stands for a disk that hangs: opening it to write does not return.
#[cfg(unix)]
fn hang(file: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(file).status().unwrap().success());
}

/// The store's files are given back before the list of the backup is written.
#[cfg(unix)]
#[test]
fn closing_the_store_does_not_wait_for_the_list_of_a_backup() {
    let bed = Bed::new();
    let (store, table) = open(&bed.path("data"), Durability::Sync);
    put(&*table, "row", "value");
    store.backup(bed.path("copy")).unwrap();
    let listed = fs::read_to_string(bed.path("copy/BACKUP")).unwrap();
    let inventory = listed.lines().find(|line| line.ends_with(" INVENTORY")).unwrap();
    let last = bed.path("copy/files").join(inventory.split(' ').nth(1).unwrap());
    fs::remove_file(&last).unwrap();
    hang(&bed.path("copy/BACKUP.new"));
    let (backing_up, copy) = (store.clone(), bed.path("copy"));
    let backup = std::thread::spawn(move || backing_up.backup(copy));
    while !last.exists() {
        std::thread::yield_now();
    }
    let (closed, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || closed.send(store.close()));
    let closed = told.recv_timeout(std::time::Duration::from_secs(30));
    fs::File::open(bed.path("copy/BACKUP.new")).unwrap();
    assert!(matches!(closed, Ok(Ok(()))), "{closed:?}");
    backup.join().unwrap().unwrap_err();
    bed.sound("data");
}

/// A store of a release that knew no ids gets one, and keeps it.
#[test]
fn a_store_without_an_id_gets_one() {
    let bed = Bed::new();
    let id = |name: &str| FjallStore::open(bed.path(name), options(Durability::Sync)).unwrap().id();
    let first = id("data");
    assert_eq!(id("data"), first);
    fs::remove_file(bed.path("data/ID")).unwrap();
    let second = id("data");
    assert_ne!(second, first);
    assert_eq!(id("data"), second);
    fs::write(bed.path("data/ID"), "gibberish").unwrap();
    let opened = FjallStore::open(bed.path("data"), options(Durability::Sync)).map(drop);
    assert!(files_error(opened).1.contains("another id"));
    let checked = check(bed.path("data"), |_| Vec::new()).unwrap();
    assert!(checked.problems[0].path.ends_with("ID"), "{checked:?}");
}

#[test]
fn deleted_cells_stay_deleted() {
    let bed = Bed::new();
    let (store, table) = open(&bed.path("data"), Durability::Sync);
    put(&*table, "row", "value");
    let delete = Mutation::delete(PLAIN, "q", TimeRange { from: Timestamp::ZERO, to: ts(1) });
    block_on(table.mutate_row(RowMutation::new("row").mutation(delete))).unwrap();
    store.backup(bed.path("copy")).unwrap();
    let (_restored, again) = open(&bed.restore(), Durability::Sync);
    assert_eq!(contents(&*again), contents(&*table));
}
