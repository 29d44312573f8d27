//! Tests writes that fail although they were admitted. These tests bypass the reserve.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use bigtable::{Family, Layout, LocalityGroup, Mutation, OnFull, RowMutation, Selection, Store};
use bigtable::{Table, TimeRange, Timestamp};
use futures::executor::block_on;
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::commit::puts::Puts;
use crate::commit::write::write_batch;
use crate::engine::Failure;
use crate::{Durability, FjallStore, FjallTable};

const CELLS: Family = Family::from_static("cells");
const HALVES: [&str; 2] = ["half", "other half"];
const LOCK: Family = Family::from_static("lock");

fn schema() -> TableSchema {
    let lock = LocalityGroup::in_memory("lock", OnFull::Refuse { cells_max: 1000 });
    TableSchema { groups: vec![LocalityGroup::on_disk("cells", Layout::NewestFirst), lock] }
}

fn open(dir: &Path, durability: Durability) -> (FjallStore, FjallTable) {
    let options = Options { durability, write_buffer_bytes: 1 << 20, ..Options::default() };
    let store = FjallStore::open(dir, options).unwrap();
    let table = block_on(store.open_fjall_table("t", &schema())).unwrap();
    (store, table)
}

fn write(table: &FjallTable, row: usize) -> Result<()> {
    let at = Timestamp::new(1).unwrap();
    let cells = [CELLS, LOCK].map(|family| Mutation::set(family, "q", at, format!("value {row}")));
    let row = RowMutation::new(format!("row {row}"));
    block_on(table.mutate_row(cells.into_iter().fold(row, RowMutation::mutation)))
}

fn read(table: &FjallTable, row: usize) -> bool {
    let newest = |select: Selection, family| select.column(family, "q", TimeRange::ALL, 1);
    let select = [CELLS, LOCK].into_iter().fold(Selection::default(), newest);
    let read = block_on(table.read_row(&format!("row {row}").as_str().into(), &select)).unwrap();
    let values = read.cells.iter().filter(|cell| *cell.value == *format!("value {row}").as_bytes());
    values.count() == 2
}

/// Makes the engine write a batch that the reserve would have refused. Returns the error that
/// its caller receives.
fn write_at_once(table: &FjallTable, bytes: usize) -> Error {
    let generation = table.opened().0.generation;
    let result = {
        let (engine, info) = table.opened();
        let _lead = engine.wait_to_lead().unwrap();
        let mut puts = Puts::default();
        // The bytes do not repeat, because the journal is compressed.
        let part = |part: usize| xxh3_64(&part.to_le_bytes()).to_le_bytes();
        let value: Vec<u8> = (0..bytes / 2 / 8).flat_map(part).collect();
        for key in HALVES {
            puts.insert(&info.groups[0].cells, key.as_bytes(), &value[..]);
        }
        write_batch(&engine, puts.into(), engine.sync())
    };
    table.store.answer(generation, result).unwrap_err()
}

fn is_half_there(table: &FjallTable) -> bool {
    let (_, info) = table.opened();
    HALVES.iter().any(|key| info.groups[0].cells.get(key).unwrap().is_some())
}

#[test]
fn a_write_that_finds_no_space_is_undone_in_place() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(dir.path());
        if !mount.output().is_ok_and(|done| done.status.success()) {
            use std::io::Write;
            let why = "this user may not mount a tmpfs";
            let _ = writeln!(std::io::stderr(), "SKIPPED: a write without space, because {why}");
            return;
        }
        let unmount = || {
            let _ = Command::new("umount").arg("--lazy").arg(dir.path()).status();
        };
        let result = std::panic::catch_unwind(|| without_space(&dir.path().join("s"), durability));
        unmount();
        result.unwrap();
    }
}

fn without_space(dir: &Path, durability: Durability) {
    let (store, table) = open(dir, durability);
    let other = block_on(store.open_fjall_table("other", &schema())).unwrap();
    let dropped = block_on(store.open_fjall_table("dropped", &schema())).unwrap();
    store.drop_table("dropped").unwrap();
    block_on(store.raise_floor(Timestamp::new(1).unwrap())).unwrap();
    for row in 0..100 {
        write(&table, row).unwrap();
        write(&other, row + 1000).unwrap();
    }
    let before = table.opened().0.generation;
    let error = write_at_once(&table, 20 << 20);
    // The error says that the batch is certainly not applied.
    assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
    assert_eq!(table.opened().0.generation, before + 1);
    assert!(!is_half_there(&table));
    let check = |table: &FjallTable, other: &FjallTable, rows: usize| {
        assert!((0..rows).all(|row| read(table, row)), "all rows of {rows} are there");
        assert!((1000..1100).all(|row| read(other, row)));
        assert!(!read(other, 5));
    };
    check(&table, &other, 100);
    assert!(matches!(write(&dropped, 1), Err(Error::InvalidRequest(_))), "it stays dropped");
    assert_eq!(store.floor(), Timestamp::new(1).unwrap());
    // The same handles accept further writes, and no part of the batch exists after a crash
    // either.
    (100..200).for_each(|row| write(&table, row).unwrap());
    check(&table, &other, 200);
    drop((table, other, dropped, store));
    let (store, table) = open(dir, durability);
    let other = block_on(store.open_fjall_table("other", &schema())).unwrap();
    check(&table, &other, 200);
    assert!(!is_half_there(&table));
    assert_eq!(block_on(store.table_names()).unwrap(), ["other", "t"]);
}

#[test]
fn an_engine_that_has_stopped_is_opened_anew_by_the_next_write() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = open(dir.path(), durability);
        (0..10).for_each(|row| write(&table, row).unwrap());
        let stop = || table.opened().0.stop(&fjall::Error::Poisoned);
        stop();
        assert!(read(&table, 9), "reads go on");
        assert_eq!(table.opened().0.generation, 0, "and do not wait for anything");
        let error = write(&table, 10).unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert_eq!(table.opened().0.generation, 1);
        write(&table, 10).unwrap();
        assert!((0..=10).all(|row| read(&table, row)));
        // The engine stops again at once: writes have to wait, reads do not.
        assert_eq!(store.condition(), Condition::Writable);
        stop();
        assert!(read(&table, 10));
        assert!(write(&table, 11).is_err());
        assert_eq!(table.opened().0.generation, 2);
        let error = write(&table, 11).unwrap_err();
        assert!(error.to_string().contains("keeps failing"), "{error}");
        assert!(matches!(store.condition(), Condition::Failing { .. }));
        assert!((0..=10).all(|row| read(&table, row)));
    }
}

/// A pipe without a reader stands for a disk that hangs: opening it to write does not return.
#[cfg(unix)]
#[test]
fn a_backup_whose_disk_hangs_blocks_no_request_for_ever() {
    for closes in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, table) = open(&dir.path().join("s"), Durability::Buffered);
        write(&table, 0).unwrap();
        let (copy, hung) = (dir.path().join("copy"), dir.path().join("copy/files/new"));
        std::fs::create_dir_all(dir.path().join("copy/files")).unwrap();
        assert!(Command::new("mkfifo").arg(&hung).status().unwrap().success());
        let users = || Arc::strong_count(&table.opened().0);
        let (backing_up, before) = (store.clone(), users());
        let backup = std::thread::spawn(move || backing_up.backup(copy));
        while users() == before {
            std::thread::yield_now();
        }
        let (done, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            if closes {
                done.send(store.close())
            } else {
                table.opened().0.fail(Failure::Write("by plan".to_owned(), io::ErrorKind::Other));
                done.send(write(&table, 1))
            }
        });
        let done = told.recv_timeout(Duration::from_secs(40));
        std::fs::File::open(&hung).unwrap();
        assert!(matches!(done, Ok(Err(Error::Halted { .. }))), "closes: {closes}, {done:?}");
        backup.join().unwrap().unwrap_err();
    }
}

#[test]
fn readers_and_writers_go_on_while_the_engine_is_opened_anew() {
    const GENERATIONS: u64 = 4;
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = open(dir.path(), Durability::Buffered);
    (0..50).for_each(|row| write(&table, row).unwrap());
    let (over, reads) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    let acknowledged = std::thread::scope(|scope| {
        for first in 0..3 {
            let (over, reads, table) = (&over, &reads, &table);
            scope.spawn(move || {
                for row in (first..).take_while(|_| !over.load(Ordering::SeqCst)) {
                    assert!(read(table, row % 50), "row {row}");
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let writer = scope.spawn(|| {
            let until = |row: &usize| !over.load(Ordering::SeqCst) && *row < 100_000;
            let rows = (50..).take_while(until);
            rows.filter(|row| write(&table, *row).is_ok()).collect::<Vec<_>>()
        });
        for generation in 0..GENERATIONS {
            let failure = Failure::Write("by plan".to_owned(), io::ErrorKind::StorageFull);
            table.opened().0.fail(failure);
            let before = reads.load(Ordering::SeqCst);
            while reads.load(Ordering::SeqCst) < before + 200 {
                // Handles of the store and of other tables keep working, too.
                block_on(store.open_fjall_table(&format!("t{generation}"), &schema())).ok();
                std::thread::yield_now();
            }
            assert_eq!(table.opened().0.generation, generation + 1);
        }
        over.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    assert!(acknowledged.iter().all(|row| read(&table, *row)));
    drop((store, table));
    let (_store, table) = open(dir.path(), Durability::Buffered);
    assert!((0..50).chain(acknowledged).all(|row| read(&table, row)));
}
